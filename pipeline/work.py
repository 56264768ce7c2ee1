"""Work: what one reply asks of all engines, cancelled and re-prioritised as one."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from enum import IntEnum
from typing import Protocol

CLIENT: ContextVar[int] = ContextVar("reachy_voice_client", default=0)
"""For whom work is done: a number that is set where a session runs, and inherited by its tasks.
Engines serve clients in turns, however much each of them asks for."""


class Priority(IntEnum):
    """Engines serve the lowest number first, and step aside for it within one slice."""

    CONFIRMED = 0
    SPECULATIVE = 1
    WARM_UP = 2


class Work:
    """A unit of intent that engines work for. Used on the event loop only.

    ``engine_seconds`` adds up what engines have spent on it.
    """

    def __init__(self, priority: Priority = Priority.CONFIRMED) -> None:
        self.client = CLIENT.get()
        self._priority = priority
        self._cancelled = False
        self._listeners: dict[object, Callable[[Work], None]] = {}
        self.engine_seconds = 0.0
        self._jobs = 0
        self._when_idle: list[Callable[[], None]] = []

    @property
    def priority(self) -> Priority:
        return self._priority

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def promote(self, priority: Priority) -> None:
        """Change how urgent it is; running and waiting jobs notice at once."""
        if priority != self._priority:
            self._priority = priority
            self._tell()

    def cancel(self) -> None:
        """Stop every job of it, wherever it runs. Cancelling twice is harmless."""
        if not self._cancelled:
            self._cancelled = True
            self._tell()

    def job_began(self) -> None:
        """An engine has taken a job of it."""
        self._jobs += 1

    def job_ended(self, engine_seconds: float) -> None:
        """The job is over, done or not, and has cost so much."""
        self._jobs -= 1
        self.engine_seconds += engine_seconds
        if not self._jobs:
            waiting, self._when_idle = self._when_idle, []
            for callback in waiting:
                callback()

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call it when no engine works for this any more: then ``engine_seconds`` is complete.
        What is cancelled may still run to the end of its slice."""
        if self._jobs:
            self._when_idle.append(callback)
        else:
            callback()

    def watch(self, key: object, listener: Callable[[Work], None]) -> None:
        """Have ``listener`` called on every change, until ``unwatch(key)``."""
        self._listeners[key] = listener

    def unwatch(self, key: object) -> None:
        self._listeners.pop(key, None)

    def _tell(self) -> None:
        for listener in list(self._listeners.values()):
            listener(self)


class CancelToken(Protocol):
    """How blocking code learns that it should stop or step aside. Both are cheap to read."""

    @property
    def cancelled(self) -> bool:
        """The result is no longer wanted: return or raise ``Cancelled`` as soon as possible."""
        ...

    @property
    def preempted(self) -> bool:
        """More urgent work waits for this engine: yield ``None`` as soon as possible."""
        ...


class _Never:
    cancelled = preempted = False


NEVER: CancelToken = _Never()
"""For work that nobody cancels, such as an engine's warming up."""


class Cancelled(Exception):
    """Raised by an engine that noticed its cancelled token; it is not a failure."""
