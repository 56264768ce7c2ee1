"""JSON text <-> plain data, and bytes <-> samples: the wire format, without its meaning.

The hot path, ``input_audio_buffer.append``, skips the schema: 2 us of JSON and 3 us of base64 per
20 ms of audio.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from pipeline.audio import AudioFormat, Pcm, pcm_from_bytes, pcm_to_bytes
from pipeline.realtime import g711

APPEND = "input_audio_buffer.append"

MAX_APPEND_BYTES = 15 * 1024 * 1024
"""Most audio in one append, decoded (API reference of ``input_audio_buffer.append``). Also applies
to audio and images in items."""

MAX_FRAME_CHARS = 900_000
"""Longest text sent in one frame. Clients refuse 1 MiB by default."""

MAX_SHOWN_CHARS = 600_000
"""Longest item or session, as JSON without its media, since events send it back, alone or with
audio."""

MAX_EVENT_ID_CHARS = 512
"""API reference: "Optional client-generated ID used to identify this event", at most 512."""

DELTA_MS = 200
"""Longest audio in one delta: 200 ms at 24 kHz are 13 kB; clients refuse frames of 1 MiB."""

MAX_DEPTH = 100
"""Deepest nesting of a message. Deeper ones can be read, but not always written again."""

MAX_VALUES = 20_000
"""Most values in a message, on all levels, as checking many more would keep other clients waiting.
A robot's whole session has under a thousand."""

MAX_COMMAS = 200_000
"""Most commas in a message, including those in strings. With more, it is not even decoded."""

_BASE64_SLICE_CHARS = 64 * 1024
"""Characters decoded per call, so that a thread decoding a huge message lets the event loop run in
between."""


class WireError(Exception):
    """An unusable client message; becomes one ``error`` event."""

    def __init__(self, code: str, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.event_id: str | None = None


def missing(path: str) -> WireError:
    return WireError(
        "missing_required_parameter", f"Missing required parameter: '{path}'.", param=path
    )


def invalid(path: str, why: str) -> WireError:
    return WireError("invalid_value", f"Invalid value at '{path}': {why}.", param=path)


def invalid_audio(problem: str, param: str) -> WireError:
    return WireError("invalid_value", f"Invalid audio at '{param}': {problem}.", param=param)


@dataclass(frozen=True, slots=True, eq=False)
class ClientMessage:
    """One client event. ``body`` is the whole JSON object; ``audio`` is set only for an append, in
    the session's encoding."""

    type: str
    event_id: str | None
    body: Mapping[str, Any]
    audio: bytes = b""


class Send(Protocol):
    """Queues one server event."""

    def __call__(self, kind: str, /, **fields: Any) -> None: ...


def parse(text: str | bytes) -> ClientMessage:
    """Read one frame. Pure, so it may run in a thread. Raises ``WireError``."""
    if isinstance(text, bytes):
        raise WireError("invalid_frame", "Binary frames are not supported: send JSON as text.")
    body = _decode(text)
    event_id = body.get("event_id")
    if not isinstance(event_id, str) or len(event_id) > MAX_EVENT_ID_CHARS:
        event_id = None
    kind = body.get("type")
    try:
        _require_usable(body, text)
        if kind == APPEND:
            return ClientMessage(APPEND, event_id, body, audio_bytes(body.get("audio"), "audio"))
        return ClientMessage(_text_type(kind), event_id, body)
    except WireError as error:
        error.event_id = event_id
        raise


def encode(message: Mapping[str, Any]) -> str:
    """Compact ASCII JSON, so that any character from a client can be sent back."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False)


def audio_bytes(audio: object, param: str) -> bytes:
    """Decode base64. Raises ``WireError``."""
    if audio is None:
        raise missing(param)
    if not isinstance(audio, str):
        raise invalid_audio("expected a base64 string", param)
    if len(audio) // 4 * 3 > MAX_APPEND_BYTES + 2:
        raise invalid_audio("more than 15 MiB of audio in one event", param)
    try:
        return b"".join(base64_slices(audio))
    except ValueError as error:  # binascii.Error, or a character outside ASCII
        raise invalid_audio("not valid base64", param) from error


def base64_slices(text: str) -> Iterator[bytes]:
    """Decode ``text`` in parts. Raises ``ValueError``."""
    last = max(0, len(text) - 1) // _BASE64_SLICE_CHARS * _BASE64_SLICE_CHARS
    for start in range(0, len(text), _BASE64_SLICE_CHARS):
        piece = binascii.a2b_base64(text[start : start + _BASE64_SLICE_CHARS], strict_mode=True)
        if start != last and len(piece) != _BASE64_SLICE_CHARS // 4 * 3:
            raise ValueError("padding inside the data")
        yield piece


def base64_text(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def pieces(pcm: Pcm, rate: int) -> Iterator[Pcm]:
    """``pcm`` in parts of at most ``DELTA_MS``."""
    step = rate * DELTA_MS // 1000
    for start in range(0, len(pcm), step):
        yield pcm[start : start + step]


def shown_format(format: AudioFormat) -> dict[str, Any]:
    """The format in the API's notation, where G.711 has no ``rate``."""
    kind = f"audio/{format.encoding}"
    return {"type": kind, "rate": format.rate} if format.encoding == "pcm" else {"type": kind}


def samples_of(data: bytes, format: AudioFormat, param: str) -> Pcm:
    """The samples in ``data``. Raises ``WireError`` if the last one is incomplete."""
    if format.encoding != "pcm":
        return g711.decode(data, format.encoding)
    if len(data) % 2:
        raise invalid_audio(f"16-bit audio needs an even number of bytes, got {len(data)}", param)
    return pcm_from_bytes(data)


def bytes_of(pcm: Pcm, format: AudioFormat) -> bytes:
    """``pcm``, at the format's rate, encoded for the wire."""
    if format.encoding != "pcm":
        return g711.encode(pcm, format.encoding)
    return pcm_to_bytes(pcm)


# --- parts -------------------------------------------------------------------------------------


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("number out of range")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant)
_TOO_DEEP = "The message is nested too deeply."
_escaped_surrogate = re.compile(r"\\u[dD][89a-fA-F]")


def _decode(text: str) -> dict[str, Any]:
    if text.count(",") > MAX_COMMAS:
        raise _too_many_values()
    try:
        body = _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise WireError("invalid_json", _json_problem(error)) from error
    if not isinstance(body, dict):
        raise WireError("invalid_json", "The message is not a JSON object.")
    return body


def _require_usable(body: dict[str, Any], text: str) -> None:
    """Refuse valid JSON that cannot be passed on or sent back. Raises ``WireError``."""
    try:
        if "\\u" in text and _escaped_surrogate.search(text):
            _require_encodable(body)
    except (ValueError, RecursionError) as error:
        raise WireError("invalid_json", _json_problem(error)) from error
    if text.count("[") + text.count("{") > MAX_DEPTH or text.count(",") > MAX_VALUES:
        _require_modest(body)


def _require_encodable(body: object) -> None:
    """Raise ``ValueError`` for half a surrogate pair: valid JSON, but tokenizers and sockets fail
    on it."""
    json.dumps(body, ensure_ascii=False).encode()


def _require_modest(body: dict[str, Any]) -> None:
    level: list[Any] = [body]
    values = 0
    for _ in range(MAX_DEPTH):
        values += sum(map(len, level))
        if values > MAX_VALUES:
            raise _too_many_values()
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise WireError("invalid_json", _TOO_DEEP)


def _too_many_values() -> WireError:
    return WireError("invalid_json", f"The message has more than {MAX_VALUES} values.")


def _children(node: dict[str, Any] | list[Any]) -> Iterator[Any]:
    children = node.values() if isinstance(node, dict) else node
    return (child for child in children if isinstance(child, dict | list))


def _json_problem(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"The message is not valid JSON: {error.msg} at character {error.pos}."
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    if isinstance(error, UnicodeEncodeError):
        return "The message is not valid JSON: it has half a surrogate pair in a string."
    return "The message is not valid JSON: a number in it cannot be represented."


def _text_type(kind: object) -> str:
    if kind is None:
        raise missing("type")
    if not isinstance(kind, str):
        raise invalid("type", "not a string")
    return kind
