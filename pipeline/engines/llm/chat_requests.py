"""Requests chat answers, rewrites requests that a server refuses, and remembers what it accepts."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.exchange import HttpExchange
from pipeline.engines.by_url.failures import Misconfiguration, ServerFailure, complaint, refusal
from pipeline.engines.by_url.families import OPENAI
from pipeline.engines.by_url.pool import json_body
from pipeline.engines.llm.chat_completions import PATH, body_of
from pipeline.engines.llm.chat_template import capabilities_of
from pipeline.engines.llm.template_messages import BARE, STRICT, Capabilities
from pipeline.engines.llm.url_prompts import UrlRequest, error_in, for_the_blind
from pipeline.errors import EngineError, PromptTooLong, Rejection
from pipeline.work import Work

log = logging.getLogger("reachy_voice.llm")


class ChatRequests:
    """The requests of one language model."""

    def __init__(self, engine: UrlEngine) -> None:
        self._engine = engine
        self._capabilities = "", capabilities_of("")
        """The server's chat template, and its capabilities."""
        self._rungs: dict[str, int] = {}
        """The rung of ``_ladder`` to start from, for each model."""
        self._refused: dict[str, set[str]] = {}
        """Fields that the server refuses for each model."""

    def forbids_thoughts(self, request: UrlRequest) -> bool:
        """Whether the server accepts the fields that turn thinking off."""
        return bool(request.family.chat.keys() - self._refused.get(request.model, set()))

    @asynccontextmanager
    async def ask(
        self, request: UrlRequest, work: Work, *, stream: bool
    ) -> AsyncIterator[HttpExchange]:
        """Send a request. If the server refuses it, retry it in forms for less capable templates,
        and remember which form works, unless the refusal may have been a passing failure. Pictures
        that it refuses become sentences."""
        async with AsyncExitStack() as open_exchange:
            try:
                exchange = await self._accept(request, work, stream, open_exchange)
            except (Rejection, ServerFailure, PromptTooLong) as refusal:
                blind = replace(request, messages=list(map(for_the_blind, request.messages)))
                if blind == request or not _is_of_pictures(refusal):
                    raise
                exchange = await self._accept(blind, work, stream, open_exchange)
                log.warning("pictures were left out: %s", refusal)
            yield exchange

    async def _accept(
        self, request: UrlRequest, work: Work, stream: bool, open_exchange: AsyncExitStack
    ) -> HttpExchange:
        before, refusal = None, None
        for rung, capabilities in await self._ladder():
            if capabilities is BARE and refusal and not _is_of_tools(refusal):
                break  # describing tools in words costs quality: only if they are at fault
            attempt = replace(request, capabilities=capabilities)
            if (body := body_of(attempt, stream=stream)) == before:
                continue
            before = body
            try:
                exchange = await self._accept_fields(attempt, work, stream, open_exchange)
            except (Rejection, ServerFailure, Misconfiguration) as problem:
                refusal = refusal or problem
            else:
                if refusal and (isinstance(refusal, Rejection) or _is_of_template(refusal)):
                    if _SCHEMA_WORDS.search(refusal.says):
                        return exchange  # another conversation may have better tools
                    self._rungs[self._engine.server.model] = rung
                    log.warning("conversations are now written in a simpler form: %s", refusal)
                return exchange
        assert refusal
        raise refusal

    async def _ladder(self) -> list[tuple[int, Capabilities]]:
        """Capabilities to try for the model's template, likeliest first, without those refused."""
        server = self._engine.server
        if self._capabilities[0] != server.template:
            # In a thread, as trying the template out takes some 10 ms.
            capabilities = await asyncio.to_thread(capabilities_of, server.template)
            self._capabilities = server.template, capabilities
        likeliest = Capabilities() if server.family is OPENAI else self._capabilities[1]
        rungs = [replace(one, tools=server.shows_tools) for one in (likeliest, STRICT)]
        return list(enumerate([*rungs, BARE]))[self._rungs.get(server.model, 0) :]

    async def _accept_fields(
        self, request: UrlRequest, work: Work, stream: bool, open_exchange: AsyncExitStack
    ) -> HttpExchange:
        """Send a request, if need be without fields that the server refuses."""
        body, refusal = body_of(request, stream=stream), None
        refused = set(self._refused.get(request.model, ()))
        while True:
            if "max_tokens" in refused and "max_tokens" in body:  # OpenAI's newer models
                body["max_completion_tokens"] = body["max_tokens"]
            accepted = {name: body[name] for name in body if name not in refused}
            try:
                exchange = await self._send(request, accepted, work, open_exchange)
            except (Rejection, ServerFailure) as problem:
                if more := _refused_fields(problem, accepted, request.family.chat):
                    refusal = refusal or problem
                    refused |= more
                    continue
                if refusal and not _is_of_fields(problem):  # else other fields are refused
                    self._leave_out(request, refused, refusal)
                raise
            if refusal:
                self._leave_out(request, refused, refusal)
            return exchange

    def _leave_out(self, request: UrlRequest, refused: set[str], refusal: EngineError) -> None:
        self._refused[request.model] = refused
        log.warning("%s: no longer sent: %s", ", ".join(sorted(refused)), refusal)

    async def _send(
        self,
        request: UrlRequest,
        body: dict[str, Any],
        work: Work,
        open_exchange: AsyncExitStack,
    ) -> HttpExchange:
        engine = self._engine
        content = json_body(engine.options.with_extra(body))
        async with AsyncExitStack() as attempt:
            exchange = await attempt.enter_async_context(
                engine.endpoint.ask(PATH, content, work, request.private)
            )
            if error := error_in(await exchange.peek()):
                raise refusal(engine.place, complaint(200, error), request.private)
            open_exchange.push_async_exit(attempt.pop_all())
        return exchange


_TEMPLATE_WORDS = re.compile(
    r"template|jinja|\broles?\b|alternat(?:e|ing)\b"
    r"|\b(?:system|developer) (?:message|prompt|instruction)"
    r"|\btools\b.{0,60}permitted|(?:unknown|unrecogni[sz]ed|unexpected)\b.{0,60}\btools\b"
    r"|(?:support|requir|enabl).{0,60}\b(?:tool|function)"
    r"|\b(?:tool|function).{0,60}(?:support|requir|enabl)",
    re.IGNORECASE,
)
"""Matches errors of servers whose chat template refuses a conversation, or that take no tools: "…
does not support tools" (Ollama), "… requires --tool-call-parser to be set" (vLLM)."""


_SCHEMA_WORDS = re.compile(
    r"\btools(?:[\[.]\d|: )|schema.{0,60}\bfunction|\bfunction.{0,60}(?:schema|declaration)",
    re.IGNORECASE,
)
"""Matches errors about the name or schema of one tool."""


_FIELD_WORDS = re.compile(
    r"chat_template_kwargs|reasoning|\bthink|validation error|not permitted"
    r"|(?:unknown|unrecogni[sz]ed|unexpected|unsupported|extra|additional)\b.{0,20}"
    r"\b(?:name|field|key|input|(?:arg|param|propert)\w*)",
    re.IGNORECASE,
)
"""Matches errors of servers that do not know a field, or not for this model."""


_PICTURE_WORDS = re.compile(r"image|picture|vision|multi-?modal|mmproj", re.IGNORECASE)

_OPTIONAL = re.compile(
    r"\b(?:temperature|top_p|min_p|repeat_penalty|repetition_penalty|seed|stream_options"
    r"|max_tokens|max_completion_tokens|parallel_tool_calls)\b"
)
"""Fields without which a request still makes sense."""


def _refused_fields(
    refusal: EngineError, sent: Mapping[str, Any], no_thoughts: Mapping[str, Any]
) -> set[str]:
    """Which of the fields that were sent to leave out: those that the refusal names, or those that
    turn thinking off, if it is about fields."""
    named = {*_OPTIONAL.findall(refusal.says)} & sent.keys()
    if not named and _is_of_fields(refusal):
        named = {*no_thoughts} & sent.keys()
    return named


def _is_of_pictures(refusal: EngineError) -> bool:
    """Whether it is about pictures, or by a proxy that says nothing but that the request is too
    large."""
    silent = isinstance(refusal, PromptTooLong) and not refusal.says
    return silent or bool(_PICTURE_WORDS.search(refusal.says))


def _is_of_fields(refusal: EngineError) -> bool:
    return bool(_FIELD_WORDS.search(refusal.says))


def _is_of_tools(refusal: EngineError) -> bool:
    return _is_of_template(refusal) or bool(_SCHEMA_WORDS.search(refusal.says))


def _is_of_template(refusal: EngineError) -> bool:
    return bool(_TEMPLATE_WORDS.search(refusal.says))
