"""How busy this process is, now and over the last hour: a server that is too full stutters for all
its clients."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from typing import Any, NoReturn

import psutil

from app.server.process_usage import MIB, ProcessUsage, usage

PERIOD_S = 5.0
"""Time over which load is measured."""

MOST_BUSY = 0.75
"""Largest share of a core that the event loop may take before new clients are refused. Chosen, not
measured: 12 talking clients took 0.6, and 20 made the sound stutter."""


LATE_SHARE = 0.05
"""Largest share of timers that may be later than the limit."""


class Load:
    """The event loop runs in one thread, so one core is all that it can get."""

    def __init__(self, late_s: float | None = None) -> None:
        self.too_high = False
        self._late_s = late_s
        """Timers that are later than this show an overloaded machine; ``None``: no limit."""
        self._timers = self._late = 0
        self._last: tuple[float, float] | None = None

    def note(self, lag_s: float) -> None:
        """Record how late a timer fired."""
        self._timers += 1
        self._late += self._late_s is not None and lag_s > self._late_s

    def look(self, now: float, cpu_s: float) -> None:
        """Update ``too_high``. ``cpu_s``: CPU time of the event loop's thread; both in seconds."""
        if self._last is not None:
            then, cpu_then_s = self._last
            busy = cpu_s - cpu_then_s > MOST_BUSY * (now - then)
            self.too_high = busy or self._late > LATE_SHARE * self._timers
        self._last = (now, cpu_s)
        self._timers = self._late = 0


SAMPLE_S = 10.0
"""Time between two samples of memory and load."""
SAMPLES = 360
"""How many are kept: an hour."""


class LoadHistory:
    """Memory and processor time of the server and its engines' processes over the last hour."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=SAMPLES)
        self._last: tuple[float, float] | None = None

    async def watch(self) -> NoReturn:
        """Take samples until cancelled."""
        while True:
            self.note(await asyncio.to_thread(usage, os.getpid()), time.time())
            await asyncio.sleep(SAMPLE_S)

    def note(self, now: ProcessUsage, at: float) -> None:
        """When a process ends, its CPU time vanishes from the sum: the load counts as 0."""
        cores = 0.0
        if self._last is not None and at > self._last[0]:
            cores = max(0.0, (now.cpu_seconds - self._last[1]) / (at - self._last[0]))
        self._last = (at, now.cpu_seconds)
        self._samples.append((round(at, 1), round(now.rss_mib), round(cores, 2)))

    def shown(self) -> dict[str, Any]:
        """``samples``: Unix time, memory in MiB, and cores busy since the sample before."""
        return {
            "cores": os.cpu_count() or 1,
            "memory_mib": round(psutil.virtual_memory().total / MIB),
            "samples": list(self._samples),
        }
