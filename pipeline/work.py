"""Work: everything that one reply asks of engines, cancelled and reprioritised together."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from contextvars import ContextVar
from enum import IntEnum
from typing import Protocol, TypeVar

T = TypeVar("T")

CLIENT: ContextVar[int] = ContextVar("reachy_voice_client", default=0)
"""The client that work is done for: a number set by the server, or else by a session's ``run``, and
inherited by its tasks. Engines serve clients in turn, however much each of them asks for."""

_numbers = itertools.count(1)


def new_client() -> int:
    """A number for ``CLIENT``."""
    return next(_numbers)


class Priority(IntEnum):
    """Engines serve the lowest number first, and step aside for it within one slice."""

    CONFIRMED = 0
    SPECULATIVE = 1
    WARM_UP = 2
    BACKGROUND = 3
    """Work for no conversation."""


class Work:
    """A unit of work for engines. Used on the event loop only.

    ``engine_seconds`` adds up the time that engines have spent on it.
    """

    def __init__(self, priority: Priority = Priority.CONFIRMED) -> None:
        self.client = CLIENT.get()
        self.priority = priority
        self.cancelled = False
        self._listeners: dict[object, Callable[[Work], None]] = {}
        self.engine_seconds = 0.0
        self._jobs = 0
        self._when_idle: list[Callable[[], None]] = []

    def promote(self, priority: Priority) -> None:
        """Change its priority; running and waiting jobs notice at once."""
        if priority != self.priority:
            self.priority = priority
            self._notify()

    def cancel(self) -> None:
        """Stop all its jobs, wherever they run. Cancelling twice is harmless."""
        if not self.cancelled:
            self.cancelled = True
            self._notify()

    def job_began(self) -> None:
        """An engine has taken one of its jobs."""
        self._jobs += 1

    def job_ended(self, engine_seconds: float) -> None:
        """A job is over, done or not, and has cost ``engine_seconds``."""
        self._jobs -= 1
        self.engine_seconds += engine_seconds
        if not self._jobs:
            waiting, self._when_idle = self._when_idle, []
            for callback in waiting:
                callback()

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when no engine works on this any more, so that ``engine_seconds`` is
        final. A cancelled job may still run to the end of its slice."""
        if self._jobs:
            self._when_idle.append(callback)
        else:
            callback()

    def watch(self, key: object, listener: Callable[[Work], None]) -> None:
        """Call ``listener`` on every change, until ``unwatch(key)``."""
        self._listeners[key] = listener

    def unwatch(self, key: object) -> None:
        self._listeners.pop(key, None)

    def _notify(self) -> None:
        for listener in list(self._listeners.values()):
            listener(self)


class CancelToken(Protocol):
    """Tells blocking code to stop or step aside. Its properties are cheap to read."""

    @property
    def cancelled(self) -> bool:
        """The result is no longer wanted: return or raise ``Cancelled`` as soon as possible."""
        ...

    @property
    def preempted(self) -> bool:
        """More urgent work waits for this engine: yield ``None`` as soon as possible."""
        ...

    @property
    def priority(self) -> int:
        """Its ``Priority`` now. An engine without room for all makes the highest number wait."""
        ...


class _Never:
    cancelled = preempted = False
    priority = Priority.CONFIRMED


NEVER: CancelToken = _Never()
"""For work that is never cancelled, such as an engine's warm-up."""


class Cancelled(Exception):
    """Raised by an engine that noticed its cancelled token; it is not a failure."""


async def in_thread(function: Callable[[], T]) -> T:
    """Call ``function`` in a thread. A cancelled caller waits for it: a thread cannot be stopped,
    and what it does may have to be undone."""
    call = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        while not call.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([call])
        call.exception()  # seen, so it is not logged
        raise
