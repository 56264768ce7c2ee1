"""How late the event loop is: a timer tells by how much it came after the moment it was due.

One timer callback every 50 ms is all that it costs, and only while metrics are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PERIOD_S = 0.05
"""Shorter stalls than this may fall between two timers."""


class LoopLag:
    """Gives ``observe`` the lateness of each timer, in seconds. Use it on one event loop."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._watchers = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Measure for as long as the context lasts; contexts may overlap."""
        self._watchers += 1
        if self._timer is None:
            self._start()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers and self._timer:
                self._timer.cancel()
                self._timer = None

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + PERIOD_S
        self._timer = loop.call_at(due, self._tick, loop, due)

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        # The clock's own grain lets a timer come a hair early.
        self._observe(max(0.0, loop.time() - due))
        self._start()
