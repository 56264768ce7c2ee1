"""Lets plain requests in, a few at a time, and behind every conversation.

An engine serves a conversation's work first (``pipeline.work.Priority``), but a step that has begun
runs to its end, and engines share the cores. So a plain request also waits, between its steps,
while anyone is speaking or being answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from app.access.api_errors import RETRY, ApiError
from pipeline.work import CLIENT, Priority, Work, new_client

MOST_WAIT_S = 60.0
"""How long one request waits for conversations in total: a television may keep one busy."""


class Turnstile:
    def __init__(self, most: int, resting: Callable[[], Iterable[asyncio.Event]]) -> None:
        self._most = most
        """Plain requests at a time."""
        self._resting = resting
        """An event for each conversation, set while neither side speaks or may be about to."""
        self._inside: set[Passage] = set()
        self._left = asyncio.Event()

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[Passage]:
        """Raises ``ApiError`` (429) if too many are inside. All work ends with the block."""
        if len(self._inside) >= self._most:
            message = f"{self._most} requests are under way (limits.plain_requests). Try again."
            raise ApiError(429, "rate_limit_exceeded", message, headers=RETRY)
        CLIENT.set(new_client())
        passage = Passage(self._resting)
        self._inside.add(passage)
        try:
            yield passage
        finally:
            passage.work.cancel()
            self._inside.remove(passage)
            self._left.set()

    async def empty(self) -> None:
        """Return when the last request is gone."""
        while self._inside:
            self._left.clear()
            await self._left.wait()

    def close(self) -> None:
        """End the work of all requests."""
        for passage in self._inside:
            passage.work.cancel()


class Passage:
    def __init__(self, resting: Callable[[], Iterable[asyncio.Event]]) -> None:
        self.work = Work(Priority.BACKGROUND)
        """Everything that it asks of engines."""
        self._resting = resting
        self._left_s = MOST_WAIT_S

    async def quiet(self) -> None:
        """Wait until no conversation needs the engines."""
        loop = asyncio.get_running_loop()
        while self._left_s > 0 and (busy := [e for e in self._resting() if not e.is_set()]):
            began = loop.time()
            try:
                async with asyncio.timeout(self._left_s):
                    await busy[0].wait()
            except TimeoutError:
                pass
            self._left_s -= loop.time() - began
