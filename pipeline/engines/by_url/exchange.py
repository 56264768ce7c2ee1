"""One request to a server and its answer, as bytes or events: time-outs and cancellation."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from pipeline.engines.by_url.failures import EngineAddress, broke_off, garbled, too_slow
from pipeline.engines.by_url.options import UrlOptions
from pipeline.engines.by_url.pool import HttpFailure, HttpResponse
from pipeline.engines.by_url.sse import EventReader, TooLong
from pipeline.work import Cancelled, Work

T = TypeVar("T")

STALLED_S = 1.0
"""After this much silence in a request, the server is probed: llama-server, when told to exit,
closes its port but not the answers that it has begun."""
MOST_ERROR_BYTES = 64 * 1024
MOST_BODY_BYTES = 16 * 1024 * 1024
_EVENT_FIELD = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry|):")


class HttpExchange:
    """One request and its answer. Every wait has a time limit, and ends at once if the work is
    cancelled."""

    def __init__(
        self,
        work: Work,
        options: UrlOptions,
        place: EngineAddress,
        first_s: float,
        on_stall: Callable[[], None],
    ) -> None:
        """``on_stall`` is called when nothing has come for ``STALLED_S``."""
        self.answer: HttpResponse
        """Set once it has begun."""
        self.waited_s = 0.0
        """Time spent waiting for the server, without the time the caller spends between reads."""
        self._work = work
        self._place = place
        self._between_s = options.between_s
        self._limit = (first_s, "first_s")
        self._left_s = first_s
        self._hurry_by = math.inf
        self._now: asyncio.Timeout | None = None
        self._on_stall = on_stall
        self._end: Exception | None = None
        """Why the exchange was ended early."""
        self._begin = b""
        """What ``peek`` has read."""
        self._whole = False
        """Whether the body has been read to its end."""
        self.is_over = asyncio.Event()
        """Set once the server has, as far as we know, stopped working on the answer."""
        self.closed = False

    def is_abandoned(self, client: int) -> bool:
        """Whether ``client`` no longer wants the answer."""
        return self._work.client == client and (self.closed or self._work.cancelled)

    @property
    def has_begun(self) -> bool:
        """Whether part of an answer that is not an error has arrived."""
        return self._limit[1] == "between_s" and self.accepted

    @property
    def accepted(self) -> bool:
        """Whether the answer is no error; some servers answer a POST with 201."""
        return self.answer.status // 100 == 2

    @property
    def compressed(self) -> bool:
        """Whether the answer is compressed, although the request forbids it."""
        encoding = self.answer.headers.get("content-encoding", "")
        return encoding.strip().lower() not in ("", "identity")

    @property
    def content_type(self) -> str:
        return self.answer.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives; each piece is a sign of life. Raises ``EngineError``,
        ``Cancelled``."""
        async with aclosing(self._raw()) as raw:
            async for piece in raw:
                self._alive()
                yield piece

    async def events(self) -> AsyncGenerator[str, None]:
        """The data of the body's server-sent events, or the body if it is one JSON object, as some
        servers do not stream. Comments, which some servers send as keep-alives, do not count as a
        sign of life."""
        if (await self.peek()).lstrip().startswith(b"{"):
            yield (await self.body()).decode("utf-8", "replace")
            return
        if not self._streams:
            kind = self.content_type or "a body without a type"
            raise garbled(self._place, f"expected an event stream, got {kind}")
        reader = EventReader()
        try:
            async with aclosing(self._raw()) as raw:
                async for piece in raw:
                    for event in reader.feed(piece):
                        self._alive()
                        yield event
        except TooLong as error:
            raise garbled(self._place, str(error)) from error
        for event in reader.finish():
            yield event

    def linger(self, seconds: float) -> None:
        """The important part has arrived: wait at most ``seconds`` for the rest."""
        self._hurry_by = asyncio.get_running_loop().time() + seconds

    async def body(self, most_bytes: int = MOST_BODY_BYTES) -> bytes:
        """The whole body, up to ``most_bytes``."""
        whole = b""
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                whole += piece
                if len(whole) >= most_bytes:
                    break
        return whole[:most_bytes]

    async def peek(self) -> bytes:
        """The body's first piece, or all up to its first event; later reads return it again. Raises
        ``EngineError``, ``Cancelled``."""
        if not self._begin:
            async with aclosing(self._raw()) as raw:
                async for piece in raw:
                    self._begin += piece
                    long = len(self._begin) > MOST_ERROR_BYTES
                    if long or not self._streams or EventReader().feed(self._begin):
                        break
        return self._begin

    @property
    def _streams(self) -> bool:
        """Whether these are server-sent events, whatever the server calls them."""
        labelled = self.content_type == "text/event-stream"
        return labelled or bool(_EVENT_FIELD.match(self._begin))

    async def _raw(self) -> AsyncGenerator[bytes, None]:
        if begin := self._begin:
            yield begin
        if self._whole:
            return
        try:
            async with aclosing(self.answer.pieces()) as pieces:
                while (piece := await self.until(anext(pieces, None))) is not None:
                    yield piece
            self._whole = True
        except HttpFailure as broken:
            raise broke_off(self._place, broken.detail) from broken

    # -- waiting

    async def until(self, awaitable: Awaitable[T]) -> T:
        """Await it within the time limit. Raises ``Cancelled``, or ``EngineError`` if too slow."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        is_over = self._work.cancelled or self._end
        stall_timer = loop.call_later(STALLED_S, self._on_stall)
        try:
            left_s = 0.0 if is_over else min(self._left_s, self._hurry_by - began)
            async with asyncio.timeout(max(0.0, left_s)) as self._now:
                return await awaitable
        except TimeoutError:
            if self._work.cancelled:
                raise Cancelled from None
            raise self._end or too_slow(self._place, *self._limit) from None
        finally:
            stall_timer.cancel()
            self._now = None
            waited_s = loop.time() - began
            self._left_s -= waited_s
            self.waited_s += waited_s

    def _alive(self) -> None:
        """Part of the answer has arrived."""
        self._limit = (self._between_s, "between_s")
        self._left_s = self._between_s

    def changed(self, work: Work) -> None:
        if work.cancelled:
            self._interrupt()

    def extend(self, first_s: float) -> None:
        """Allow at least ``first_s`` in all for the answer to begin."""
        limit_s, option = self._limit
        more_s = first_s - limit_s
        if option != "first_s" or more_s <= 0:
            return
        self._limit = (first_s, option)
        self._left_s += more_s
        if self._now and not self._now.expired() and (when := self._now.when()) is not None:
            self._now.reschedule(when + more_s)

    def end(self, reason: Exception) -> None:
        """Make the caller that waits for the answer raise ``reason``."""
        self._end = reason
        self._interrupt()

    def _interrupt(self) -> None:
        if self._now and not self._now.expired():
            self._now.reschedule(asyncio.get_running_loop().time())
