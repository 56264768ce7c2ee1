"""The base of all scripted engines: their work takes time, can be cancelled, and can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pipeline.errors import EngineCrashed
from pipeline.work import Cancelled, Work


@dataclass(eq=False)
class ScriptedEngine:
    """``crash`` fails all running calls; until ``repair``, every new call fails at once."""

    listener: Callable[[str], None] | None = field(init=False, default=None)
    """Called with a line of text for each request to the engine."""
    generation: int = field(init=False, default=0)
    running: int = field(init=False, default=0)
    """Number of running calls."""
    opened: int = field(init=False, default=0)
    """Number of open utterances or conversations."""
    _down: bool = field(init=False, default=False)
    _waits: set[asyncio.Future[None]] = field(init=False, default_factory=set)

    def tell(self, line: str) -> None:
        if self.listener:
            self.listener(line)

    def crash(self) -> None:
        self._down = True
        self.generation += 1
        for wait in self._waits:
            _settle(wait, EngineCrashed("The engine ended under its work"))

    def repair(self) -> None:
        self._down = False

    def require(self, generation: int) -> None:
        """Raise ``EngineCrashed`` if the engine has crashed since ``generation``."""
        if generation != self.generation:
            raise EngineCrashed("The engine was restarted during this call")

    @contextmanager
    def job(self, work: Work) -> Iterator[ScriptedJob]:
        """One call. At its end, its time is added to ``work``, as a worker does."""
        if self._down:
            raise EngineCrashed("The engine is not ready")
        self.running += 1
        work.job_began()
        job = ScriptedJob(work, self._waits)
        try:
            yield job
        finally:
            self.running -= 1
            work.job_ended(job.seconds)


class ScriptedJob:
    def __init__(self, work: Work, waits: set[asyncio.Future[None]]) -> None:
        self.seconds = 0.0
        self._work = work
        self._waits = waits

    async def take(self, seconds: float) -> None:
        """Be busy. Raises ``Cancelled`` if the work is cancelled, ``EngineCrashed`` on a crash."""
        if self._work.cancelled:
            raise Cancelled
        loop = asyncio.get_running_loop()
        began = loop.time()
        end: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _settle, end, None)
        self._work.watch(end, lambda work: _stop(end, work))
        self._waits.add(end)
        try:
            await end
        finally:
            timer.cancel()
            self._work.unwatch(end)
            self._waits.discard(end)
            self.seconds += loop.time() - began


def _stop(future: asyncio.Future[None], work: Work) -> None:
    if work.cancelled:
        _settle(future, Cancelled())


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error:
        future.set_exception(error)
    else:
        future.set_result(None)
