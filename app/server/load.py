"""How busy this process is: a server that is too full stutters for all its clients."""

from __future__ import annotations

PERIOD_S = 5.0
"""Time over which load is measured."""

MOST_BUSY = 0.75
"""Largest share of a core that the event loop may take before new clients are refused. Chosen, not
measured: 12 talking clients took 0.6, and 20 made the sound stutter."""


LATE_SHARE = 0.05
"""Largest share of timers that may be later than the limit."""


class Load:
    """The event loop runs in one thread, so one core is all that it can get. ``late_s``: how late
    its timers may be; beyond, the machine has no more to give. ``None``: however late."""

    def __init__(self, late_s: float | None = None) -> None:
        self.too_high = False
        self._late_s = late_s
        self._timers = self._late = 0
        self._last: tuple[float, float] | None = None

    def note(self, lag_s: float) -> None:
        """A timer fired so late."""
        self._timers += 1
        self._late += self._late_s is not None and lag_s > self._late_s

    def look(self, now: float, cpu_s: float) -> None:
        """``cpu_s``: CPU time of the event loop's thread until ``now``, both in seconds."""
        if self._last is not None:
            then, cpu_then_s = self._last
            busy = cpu_s - cpu_then_s > MOST_BUSY * (now - then)
            self.too_high = busy or self._late > LATE_SHARE * self._timers
        self._last = (now, cpu_s)
        self._timers = self._late = 0
