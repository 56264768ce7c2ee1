"""Requests to one server: concurrency limit, time-outs, cancellation.

    async with endpoint.ask("chat/completions", body, work, private) as exchange:
        async for event in exchange.events(): ...

Leaving the block in any way closes the request. If the answer is unfinished, the connection is
closed too, which tells the server to stop.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import TypeVar

from pipeline.engines.by_url.failures import (
    ConnectionLoss,
    EngineAddress,
    ServerLoading,
    ServerTimeout,
    broke_off,
    complaint_of_bytes,
    garbled,
    refusal,
    retry_after_s,
    too_slow,
    unreachable,
)
from pipeline.engines.by_url.options import UrlOptions, joined
from pipeline.engines.by_url.places import Places
from pipeline.engines.by_url.pool import Body, HttpFailure, HttpRequest, HttpResponse, Pool
from pipeline.engines.by_url.sse import EventReader, TooLong
from pipeline.errors import EngineError
from pipeline.work import Cancelled, Priority, Work

T = TypeVar("T")

STALLED_S = 1.0
"""After this much silence in a request, the server is probed: llama-server, when told to exit,
closes its port but not the answers that it has begun."""
LOADING_S = 180.0
"""Longest wait while a server loads its model or asks to wait. Ollama and LM Studio load a model on
its first request; large ones take a minute or two."""
ASLEEP_S = 240.0
"""A server that has been idle this long may have unloaded its model; Ollama does after 5 min."""
LOADING_AGAIN_S = (0.25, 0.5)
"""Pauses before retrying a request while the server loads; the last one repeats."""
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


class Endpoint:
    """The requests of one engine."""

    def __init__(
        self,
        place: EngineAddress,
        options: UrlOptions,
        pool: Pool,
        doubt: Callable[[EngineError | None], None],
        on_load: Callable[[], None],
    ) -> None:
        """``doubt`` is called with the error that shows the server to be unusable, or ``None`` if
        it may be down; ``on_load`` at the first answer after the server loaded its model."""
        self.place = place
        self.options = options
        self.problem: str | None = None
        """Why no requests are made now."""
        self.loading = False
        """Whether the server is loading its model or asks to wait: requests then wait."""
        self.patience_s = options.first_s
        """Longest wait for an answer to begin."""
        self.last_used = 0.0
        """When the last request ended, in loop time."""
        self.last_answered = 0.0
        """When the server last used its model or timed out, in loop time."""
        self._pool = pool
        self._doubt = doubt
        self._on_load = on_load
        self._places = Places(options.max_requests)
        self._under_way: set[HttpExchange] = set()
        self._answers: set[HttpExchange] = set()
        """Answers that the server may still be working on."""

    @property
    def busy(self) -> bool:
        """Whether an answer is in progress."""
        return bool(self._under_way)

    def limit(self, slots: int) -> None:
        """The server handles ``slots`` requests at once (0: unknown). Further requests queue here,
        where they have priorities, rather than at the server."""
        most = self.options.max_requests
        self._places.resize(min(most, slots) if slots else most)

    def wait_longer(self) -> None:
        """Give pending requests more time: the server is loading its model."""
        for exchange in self._under_way:
            exchange.extend(LOADING_S)

    def end(self, reason: Exception) -> None:
        """End all requests; they raise ``reason``."""
        for exchange in list(self._under_way):
            exchange.end(reason)

    @asynccontextmanager
    async def ask(
        self,
        path: str,
        body: Body,
        work: Work,
        private: Iterable[str] = (),
    ) -> AsyncIterator[HttpExchange]:
        """Send ``body`` to ``path`` and wait for the answer to begin. If the model is loading, wait
        for that first, unless the work only reads ahead. ``private``: the people's words in
        ``body``. Raises ``EngineError`` (including ``PromptTooLong``) and ``Cancelled``."""
        waits_s = 0.0
        async with AsyncExitStack() as stack:
            for pause_s in chain(LOADING_AGAIN_S, repeat(LOADING_AGAIN_S[-1])):
                try:
                    request = self._ask_once(path, body, work, private)
                    exchange = await stack.enter_async_context(request)
                    break
                except ServerLoading as loading:
                    pause_s = max(pause_s, loading.retry_s)
                    if work.priority is Priority.WARM_UP or waits_s + pause_s > LOADING_S:
                        raise
                await self._pause(pause_s, work)
                waits_s += pause_s
            yield exchange

    async def _pause(self, seconds: float, work: Work) -> None:
        """Let the server load its model. Raises ``Cancelled``."""
        exchange = HttpExchange(work, self.options, self.place, seconds + 1, lambda: None)
        self._under_way.add(exchange)
        work.watch(exchange, exchange.changed)
        try:
            await exchange.until(asyncio.sleep(seconds))
        finally:
            work.unwatch(exchange)
            self._under_way.discard(exchange)

    @asynccontextmanager
    async def _ask_once(
        self, path: str, body: Body, work: Work, private: Iterable[str]
    ) -> AsyncIterator[HttpExchange]:
        self._require_ready()
        self._pool.use()
        await self._places.take(work)
        on_stall = partial(self._doubt, None)
        exchange = HttpExchange(work, self.options, self.place, self._first_s(), on_stall)
        try:
            self._require_ready()
            self._under_way.add(exchange)
            work.job_began()
            work.watch(exchange, exchange.changed)
            try:
                for earlier in [each for each in self._answers if each.is_abandoned(work.client)]:
                    # Else llama-server reads this prompt in another slot, without the cache.
                    await exchange.until(earlier.is_over.wait())
                exchange.answer = await self._answer(path, body, exchange)
                self._answers.add(exchange)
                try:
                    if exchange.compressed:
                        raise garbled(self.place, "its answer is compressed")
                    if not exchange.accepted:
                        raise await self._complaint(exchange, private)
                    if self.loading:
                        self._on_load()
                    yield exchange
                finally:
                    exchange.closed = True
                    exchange.answer.close()
                    exchange.answer.task.add_done_callback(partial(self._end_answer, exchange))
            except ServerTimeout:
                self._doubt(None)
                self.last_answered = asyncio.get_running_loop().time()
                raise
            finally:
                work.unwatch(exchange)
                self._under_way.discard(exchange)
                self.last_used = asyncio.get_running_loop().time()
                if exchange.has_begun:
                    self.last_answered = self.last_used
                work.job_ended(exchange.waited_s)
        finally:
            self._places.give_back(work)

    def _end_answer(self, exchange: HttpExchange, _task: asyncio.Future[None]) -> None:
        self._answers.discard(exchange)
        exchange.is_over.set()

    def _first_s(self) -> float:
        idle_s = asyncio.get_running_loop().time() - self.last_answered
        asleep = self.loading or (self.last_answered and idle_s > ASLEEP_S)
        return max(self.patience_s, LOADING_S) if asleep else self.patience_s

    def _require_ready(self) -> None:
        if self.problem and not self.loading:
            raise EngineError(f"The {self.place.kind} engine is not ready", why=self.problem)

    async def _answer(self, path: str, body: Body, exchange: HttpExchange) -> HttpResponse:
        content, content_type = body
        headers = {**self.options.headers, "Content-Type": content_type}
        request = HttpRequest("POST", joined(self.options.url, path), headers, content)
        try:
            return await exchange.until(self._pool.send(request, self.options.connect_s))
        except HttpFailure as broken:
            raise self._failure(broken) from broken

    def _failure(self, failure: HttpFailure) -> EngineError:
        error = unreachable(self.place, failure)
        # The server may have lost one of several processes.
        self._doubt(None if isinstance(error, ConnectionLoss) else error)
        return error

    async def _complaint(self, exchange: HttpExchange, private: Iterable[str]) -> EngineError:
        content = await exchange.body(MOST_ERROR_BYTES)
        status, headers = exchange.answer.status, exchange.answer.headers
        says = complaint_of_bytes(status, content)
        if "retry-after" in headers:
            says = replace(says, retry_s=retry_after_s(headers["retry-after"]))
        error = refusal(self.place, says, private)
        if status == 503 or isinstance(error, ServerLoading):
            self._doubt(error)
        return error
