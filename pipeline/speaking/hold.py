"""Holding an answer back while it is not known whether the user interrupts it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Hold:
    """One reason to send no more of an answer, until ``release``."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds

    def release(self) -> None:
        """Let the answer go on, unless something else holds it. Harmless if done twice."""
        self._holds.remove(self)


class Holds:
    """Everything that holds one answer back. The answer goes on after the last."""

    def __init__(self, on_change: Callable[[bool], None]) -> None:
        """``on_change``: called when this changes, with whether the answer is held."""
        self.free = asyncio.Event()
        """Set while nothing holds it."""
        self.free.set()
        self._on_change = on_change
        self._holds: set[Hold] = set()

    def add(self) -> Hold:
        hold = Hold(self)
        self._holds.add(hold)
        if self.free.is_set():
            self.free.clear()
            self._on_change(True)
        return hold

    def remove(self, hold: Hold) -> None:
        self._holds.discard(hold)
        if not (self._holds or self.free.is_set()):
            self.free.set()
            self._on_change(False)
