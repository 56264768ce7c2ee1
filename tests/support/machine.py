"""What the machine itself did while something was measured: its load, and when it stood still.

A virtual machine is stopped by its host as the host likes ("steal"). A measurement in real time
that does not say so measures the host.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

BEAT_S = 0.005
"""How long the watching process sleeps."""
STOP_S = 0.010
"""Woken later than this, it was not let run: nobody on its core was."""


class Machine:
    """Watches from a process of its own, which no lock of ours holds up, while the context lasts.

    ``report``, afterwards: ``load_average`` before and after; ``steal``: the share of all cores'
    time that the host took, of what was wanted; ``stops``: how often the machine stood still for
    more than 10 ms, the longest in ms, and for how many seconds in all.
    """

    def __init__(self) -> None:
        self.report: dict[str, Any] = {}
        self.stops: list[tuple[float, float]] = []
        """(begin, end), seconds of ``time.monotonic``."""

    def __enter__(self) -> Self:
        self._load = os.getloadavg()[0]
        self._times = _cpu_times()
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(self, *_: object) -> None:
        told, _errors = self._watcher.communicate()
        self.stops = [(begin, end) for begin, end in json.loads(told)]
        lasted_s = [end - begin for begin, end in self.stops]
        self.report = {
            "load_average": [round(self._load, 2), round(os.getloadavg()[0], 2)],
            "steal": _steal(self._times, _cpu_times()),
            "stops": len(lasted_s),
            "longest_stop_ms": round(1000 * max(lasted_s, default=0.0), 1),
            "stopped_s": round(sum(lasted_s), 2),
        }

    def stopped_s(self, begin: float, end: float) -> float:
        """For how long, between two moments, the machine stood still; once the context is over."""
        return sum(max(0.0, min(end, b) - max(begin, a)) for a, b in self.stops)


def _cpu_times() -> tuple[int, ...] | None:
    """The first line of /proc/stat (proc(5)), in ticks; None where there is none."""
    try:
        return tuple(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]))
    except OSError:
        return None


def _steal(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> float | None:
    if before is None or after is None:
        return None
    user, nice, system, _idle, _waiting, irq, soft_irq, stolen = (
        b - a for a, b in zip(before, after, strict=True)
    )
    wanted = user + nice + system + irq + soft_irq + stolen
    return round(stolen / wanted, 3) if wanted else 0.0


def _watch() -> None:
    """Until stdin ends; then the stops, as JSON."""
    stops = []
    last = time.monotonic()
    while not select.select([sys.stdin], [], [], BEAT_S)[0]:
        now = time.monotonic()
        if now - last > BEAT_S + STOP_S:
            stops.append((last + BEAT_S, now))
        last = now
    sys.stdout.write(json.dumps(stops))


if __name__ == "__main__":
    _watch()
