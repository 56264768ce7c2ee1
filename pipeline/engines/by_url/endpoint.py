"""Requests to one server: concurrency limit, loading, and who waits for whom.

    async with endpoint.ask("chat/completions", body, work, private) as exchange:
        async for event in exchange.events(): ...

Leaving the block in any way closes the request. If the answer is unfinished, the connection is
closed too, which tells the server to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, repeat

from pipeline.engines.by_url.exchange import MOST_ERROR_BYTES, HttpExchange
from pipeline.engines.by_url.failures import (
    ConnectionLoss,
    EngineAddress,
    Misconfiguration,
    ServerLoading,
    ServerTimeout,
    complaint_of_bytes,
    garbled,
    refusal,
    retry_after_s,
    unreachable,
)
from pipeline.engines.by_url.options import UrlOptions, joined
from pipeline.engines.by_url.places import Places
from pipeline.engines.by_url.pool import Body, HttpFailure, HttpRequest, HttpResponse, Pool
from pipeline.errors import EngineError
from pipeline.work import Priority, Work

LOADING_S = 180.0
"""Longest wait while a server loads its model or asks to wait. Ollama and LM Studio load a model on
its first request; large ones take a minute or two."""
ASLEEP_S = 240.0
"""A server that has been idle this long may have unloaded its model; Ollama does after 5 min."""
LOADING_AGAIN_S = (0.25, 0.5)
"""Pauses before retrying a request while the server loads; the last one repeats."""


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
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + LOADING_S
        async with AsyncExitStack() as stack:
            for pause_s in chain(LOADING_AGAIN_S, repeat(LOADING_AGAIN_S[-1])):
                try:
                    request = self._ask_once(path, body, work, private)
                    exchange = await stack.enter_async_context(request)
                    break
                except ServerLoading as loading:
                    pause_s = max(pause_s, loading.retry_s)
                    if work.priority is Priority.WARM_UP or loop.time() + pause_s > ends_at:
                        raise
                await self._pause(pause_s, work)
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
        says = complaint_of_bytes(status, exchange.answer.redirects_to.encode() or content)
        if "retry-after" in headers:
            says = replace(says, retry_s=retry_after_s(headers["retry-after"]))
        error = refusal(self.place, says, private)
        if status == 404:  # it may have another model now
            self._doubt(None)
        elif status == 503 or isinstance(error, ServerLoading | Misconfiguration):
            self._doubt(error)
        return error
