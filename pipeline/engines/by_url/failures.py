"""Errors for everything that can go wrong with a server; each tells the user what to do.

A server's error message may quote the conversation. Errors are logged and conversations are not, so
``without`` masks every word of the conversation in the message.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from pipeline.engines.by_url.pool import HttpFailure
from pipeline.engines.registry import Kind
from pipeline.errors import EngineCrashed, EngineError, PromptTooLong, Rejection, Unreachable

MOST_SHOWN_CHARS = 240
"""Longest excerpt of a server's message that is shown."""


class ServerLoading(Unreachable):
    """The server is loading its model or asks to wait; requests wait for it."""

    retry_s = 0.0
    """How long the server asks to wait."""


class ConnectionLoss(Unreachable, EngineCrashed):
    """The server accepted a request and closed the connection without an answer."""


class Misconfiguration(EngineError):
    """The server answers but does not match the settings; waiting does not help."""


class ServerFailure(EngineCrashed):
    """The server failed on this request; some do when their chat template rejects it."""


class ServerOverload(EngineError):
    """The server takes no more requests for now."""


class ServerTimeout(EngineError):
    """The server sent nothing for too long."""


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Which engine and where it is, for messages."""

    kind: Kind
    url: str
    key: str = field(default="", repr=False)
    """The API key, which no message may quote."""

    @property
    def who(self) -> str:
        return f"The {self.kind} server at {self.url}"


# --- no answer ---------------------------------------------------------------------------------


def unreachable(place: EngineAddress, cause: HttpFailure) -> EngineError:
    """The error for a failure before the answer began."""
    fix = f"Start it, or correct {place.kind}.url"
    match cause.why:
        case "connect" if "CERTIFICATE_VERIFY_FAILED" in cause.detail:
            what = f"{place.who} has a certificate that is not trusted"
            fix = "Set SSL_CERT_FILE to a file with its certificate, or its CA's certificate"
            return Misconfiguration(what, why=cause.detail, fix=fix)
        case "connect" if "[SSL" in cause.detail:
            what = f"{place.who} does not speak TLS as expected"
            return Misconfiguration(what, why=cause.detail, fix=f"Try http:// in {place.kind}.url")
        case "connect" | "slow":
            return Unreachable(f"{place.who} cannot be reached", why=cause.detail, fix=fix)
        case "broken":
            what = f"{place.who} closed the connection without an answer"
            return ConnectionLoss(what, why=cause.detail, fix="Check its log")
        case _:
            what = f"{place.who} does not answer in HTTP"
            return Misconfiguration(what, why=cause.detail, fix=fix)


def loading(place: EngineAddress) -> ServerLoading:
    return ServerLoading(f"{place.who} is not ready", why="it is loading its model", fix=_WAIT)


def broke_off(place: EngineAddress, why: str) -> EngineError:
    """The error for a failure in the middle of an answer. It does not mean that the server is down:
    one URL may lead to several processes."""
    return EngineCrashed(f"{place.who} broke off its answer", why=why, fix="Check its log")


def too_slow(place: EngineAddress, seconds: float, option: str) -> EngineError:
    return ServerTimeout(
        f"{place.who} does not answer in time",
        why=f"it sent nothing for {seconds:g} s",
        fix=f"Check whether it is overloaded, or raise {place.kind}.{option}",
    )


def garbled(place: EngineAddress, why: str) -> EngineError:
    return EngineError(
        f"{place.who} sent an invalid answer",
        why=why,
        fix=f"Correct {place.kind}.url or {place.kind}.engine",
    )


# --- an answer that is an error ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Complaint:
    """A server's error report. ``prompt_tokens`` and ``limit_tokens`` are set if the prompt is too
    long and the server gives the numbers."""

    status: int
    message: str = ""
    too_long: bool = False
    prompt_tokens: int = 0
    limit_tokens: int = 0
    retry_s: float | None = None
    """How long the server asks to wait."""


_TOO_LONG_KINDS = ("exceed_context_size_error", "context_length_exceeded")
"""llama-server's ``type``; OpenAI's ``code``."""
_TOO_LONG = re.compile(
    r"context (?:length|window|size|limit|overflow)|max_seq_len|maximum model length"
    r"|less than \d+ tokens|maximum prompt length|reduce the length",
    re.IGNORECASE,
)
"""How vLLM, llama-server, OpenAI, LM Studio, SGLang, TGI, TabbyAPI and others say that a prompt is
too long."""
_EXCEEDS = re.compile(
    r"\b(?:prompt|input|token)s?\b.{0,60}(?:too (?:long|large)|exceed|longer than|<=)",
    re.IGNORECASE,
)
"""The same, unless ``_RATE`` or ``_SIZE`` shows that another limit is meant."""
_RATE = re.compile(r"\bper (?:second|min|hour|day)|\brate.?limit|\bquota", re.IGNORECASE)
_SIZE = re.compile(
    r"^(?!.*\btokens?\b).*(?:image|picture|photo|pixel|audio|video|\bfile|\d ?[kmg]i?b\b|bytes)",
    re.IGNORECASE | re.DOTALL,
)
"""Limits on files and media, which a shorter prompt does not help with."""
_OF_THE_SERVER = frozenset({401, 403, 404, 429, 503})
"""HTTP statuses that are not about the prompt, though their messages may mention tokens."""
_STATUS = re.compile(r"[45]\d\d", re.ASCII)
_LIMIT = re.compile(r"(?:context length is|context size|limit is)\D{0,12}(\d+)", re.IGNORECASE)
_ASKED = re.compile(r"(?:requested|request|prompt|contains|has)\D{0,40}?(\d+)", re.IGNORECASE)


def complaint(status: int, body: Any) -> Complaint:
    """Parse the body of an error. Formats: ``{"error": {...}}`` (OpenAI, vLLM, llama-server,
    Ollama), ``{"error": "..."}`` (LM Studio), flat (older vLLM), ``{"detail": ...}`` (FastAPI),
    or the first entry of a list (Gemini). Some proxies send an error with HTTP status 200; the
    real status is then in the body."""
    body = first_of(body)
    error = body.get("error", body.get("detail", body)) if isinstance(body, dict) else body
    if error is True:
        error = body
    if not isinstance(error, dict):
        error = {"message": error}
    message = _words_in(error)
    if isinstance(about := error.get("metadata"), dict):  # OpenRouter's own message says nothing
        message = ": ".join(filter(None, (message, _words_in(about.get("raw")))))
    status = _status_in(error) if status == 200 else status
    kinds = [error[key] for key in ("type", "code") if isinstance(error.get(key), str)]
    listed = any(kind in _TOO_LONG_KINDS for kind in kinds)
    # A server that has begun to answer (0) has accepted the prompt.
    long = status != 0 and (listed or _is_too_long(status, message))
    limit, length = _LIMIT.search(message), _ASKED.search(message)
    return Complaint(
        status,
        message,
        long,
        _number(error.get("n_prompt_tokens")) or (int(length[1]) if long and length else 0),
        _number(error.get("n_ctx")) or (int(limit[1]) if long and limit else 0),
    )


def _words_in(error: Any) -> str:
    """The message in ``error``: gateways put one error into another, also as text, and FastAPI
    sends a list with the name of each field, and the input, which is left out."""
    if isinstance(error, dict):
        place = error.get("loc")
        field = [str(name) for name in place[1:2]] if isinstance(place, list) else []
        keys = ("message", "error", "errors", "detail", "msg", "text")
        inner = (error.get(key) for key in keys if error.get(key) is not True)
        return ": ".join((*field, _words_in(next(filter(None, inner), ""))))
    if isinstance(error, list):
        return "; ".join(filter(None, map(_words_in, error)))
    if not isinstance(error, str):
        return ""
    if error.startswith(("{", "[")):
        with suppress(ValueError):
            return _words_in(json.loads(error)) or error
    return error


def first_of(body: Any) -> Any:
    """``body``, taken out of its list if it is an error in a list, as Gemini sends."""
    is_list = isinstance(body, list) and body and isinstance(body[0], dict) and "error" in body[0]
    return body[0] if is_list else body


def _is_too_long(status: int, message: str) -> bool:
    if status in _OF_THE_SERVER:
        return False
    exceeds = status == 413 or (_EXCEEDS.search(message) and not _RATE.search(message))
    return bool(_TOO_LONG.search(message) or (exceeds and not _SIZE.search(message)))


def retry_after_s(header: str) -> float:
    """Seconds from now according to a ``Retry-After`` header; 0 if it is invalid."""
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return 0.0


def _status_in(error: Mapping[str, Any]) -> int:
    codes = (str(error.get(key)) for key in ("code", "status", "http_status_code"))
    return next((int(text) for text in codes if _STATUS.fullmatch(text)), 200)


def complaint_of_bytes(status: int, content: bytes) -> Complaint:
    """``complaint`` for a raw body, which need not be JSON."""
    try:
        return complaint(status, json.loads(content))
    except (ValueError, RecursionError):
        text = content[:2000].decode("utf-8", "replace").strip()
        return complaint(status, "" if text.startswith("<") else text)


_NO_ENTRY = (
    Misconfiguration,
    "refuses access",
    "Set {kind}.api_key, or REACHY_VOICE__{KIND}__API_KEY in the environment",
)
_UNKNOWN = (
    Misconfiguration,
    "does not know the path or the model",
    "Correct {kind}.url (most end in /v1) and {kind}.model",
)
_MOVED = (Misconfiguration, "redirects to another address", "Correct {kind}.url")
_WAIT = "Wait until its model is loaded"
_LOADS = re.compile(
    r"\b(re|down)?(load(s|ing)|(?<!heavily )loaded|load\b.*\bmodel)\b"
    r"|\b(start|warm|wak|boot)ing\b|initiali|not ready|cold start",
    re.IGNORECASE,
)
"""How llama-server, Ollama and others say, with HTTP status 503, that the model is loading."""
_UNLOADED = re.compile(
    r"\bmodel (is |was |has )?(been )?(un|not )loaded\b"
    r"|\bno models? (is |are )?(currently )?loaded\b|\bfailed to load (the )?model\b",
    re.IGNORECASE,
)
"""How LM Studio, TabbyAPI and the router of llama-server say that they have no model."""
_FOR_NOW = (ServerOverload, "refuses the request for now", "Check its log, and your account there")
_OVERLOADED = (
    ServerOverload,
    "is overloaded",
    "Lower {kind}.max_requests, or give it more capacity",
)
_FAILED = (ServerFailure, "failed", "Check its log")
_REFUSED = "Check its log; {kind}.extra adds and removes fields"
_BY_STATUS: Mapping[int, tuple[type[EngineError], str, str]] = {
    0: (EngineError, "refuses the request", _REFUSED),
    200: _FAILED,
    401: _NO_ENTRY,
    403: _NO_ENTRY,
    **dict.fromkeys((404, 405), _UNKNOWN),
    **dict.fromkeys((301, 302, 303, 307, 308), _MOVED),
    **dict.fromkeys((402, 408, 409, 425), _FOR_NOW),
    **dict.fromkeys((429, 529), _OVERLOADED),
    503: (Unreachable, "is not ready", "Wait, or check its log"),
}
"""What an HTTP status means, and what to do. 0: an error in the middle of an answer; 200: an error
without a real status."""


def refusal(place: EngineAddress, complaint: Complaint, private: Iterable[str] = ()) -> EngineError:
    """The error to raise for ``complaint``. ``private``: what people said."""
    if complaint.too_long and place.kind is Kind.LLM:
        return _too_long(place, complaint)
    private = [*private, place.key]
    status, says = complaint.status, without(complaint.message, private)
    other = _FAILED if status >= 500 else (Rejection, "refuses the request", _REFUSED)
    kind, what, fix = _BY_STATUS.get(status, other)
    if status not in (401, 403, 429, 503, 529) and _UNLOADED.search(complaint.message):
        # Asked again, it may load the model.
        kind = Misconfiguration if status == 404 else ServerFailure
        what, fix = "has no model loaded", "Load {kind}.model there, and let it keep it loaded"
    elif status == 503 and _LOADS.search(complaint.message):
        kind, fix = ServerLoading, _WAIT
    elif status in (429, 503, 529) and complaint.retry_s is not None:
        kind = ServerLoading
    code = f"HTTP {status}" if status else "in the middle of its answer"
    error = kind(
        f"{place.who} {what}",
        why=f"{code}, {says}" if says else code,
        fix=fix.format(kind=place.kind, KIND=place.kind.upper()),
    )
    error.says = complaint.message
    for text in private:
        if " " in text:  # a quotation
            error.says = error.says.replace(text, "…")
    if isinstance(error, ServerLoading):
        error.retry_s = complaint.retry_s or 0.0
    return error


def _too_long(place: EngineAddress, complaint: Complaint) -> PromptTooLong:
    error = PromptTooLong(complaint.prompt_tokens, complaint.limit_tokens)
    error.says = complaint.message
    if not complaint.prompt_tokens or not complaint.limit_tokens:
        error.why = f"reported by the {place.kind} server at {place.url}"
    error.fix = "Shorten the instructions or tools, or start that server with more context"
    return error


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


# --- privacy -----------------------------------------------------------------------------------

_HARMLESS_TEXT = (
    "a all an and any are argument as at auto be but by can cannot chat choice context does effort "
    "enable error exceeds extra failed field fields for found from function has have if in input "
    "inputs invalid is it its key kwargs length limit loaded loading many max maximum message "
    "messages missing model must no not of on only or output parameter parser permitted please "
    "prompt reasoning request requests required requires role server set should size supported "
    "template that the then thinking this to token tokens too tool tools try type unexpected "
    "unknown unrecognized unsupported use validation value was when with you your"
)
"""Common words of error messages, which reveal nothing about a conversation."""
_HARMLESS = frozenset(_HARMLESS_TEXT.split())
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def without(message: str, private: Iterable[str]) -> str:
    """The first line of ``message``, with all words that occur in ``private`` masked."""
    line = message.strip().split("\n")[0]
    words = {word.lower() for text in private for word in _WORD.findall(text)} - _HARMLESS
    line = _WORD.sub(lambda word: "…" if word[0].lower() in words else word[0], line)
    return line[:MOST_SHOWN_CHARS].strip().rstrip(".")
