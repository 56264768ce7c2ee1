"""How busy this process is: a server that is too full stutters for all its clients."""

from __future__ import annotations

PERIOD_S = 5.0
"""Time over which load is measured."""

MOST_BUSY = 0.75
"""Largest share of a core that the event loop may take before new clients are refused. Chosen, not
measured: 12 talking clients took 0.6, and 20 made the sound stutter."""


class Load:
    """The event loop runs in one thread, so one core is all that it can get."""

    def __init__(self) -> None:
        self.too_high = False
        self._last: tuple[float, float] | None = None

    def look(self, now: float, cpu_s: float) -> None:
        """``cpu_s``: CPU time of the event loop's thread until ``now``, both in seconds."""
        if self._last is not None:
            then, cpu_then_s = self._last
            self.too_high = cpu_s - cpu_then_s > MOST_BUSY * (now - then)
        self._last = (now, cpu_s)
