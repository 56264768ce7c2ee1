"""Detects that this machine stood still: a host may pause a virtual machine at any time ("steal").

Runs as a separate process, which no lock of ours holds up; when stdin ends, it reports how often it
was not scheduled.
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BEAT_S = 0.005
"""How long the watching process sleeps."""
STOP_S = 0.010
"""If it wakes later than this, its whole core was stopped."""


@contextmanager
def watched() -> Iterator[Callable[[], int]]:
    """Afterwards the result says how often the machine stood still for more than 10 ms."""
    with subprocess.Popen(
        [sys.executable, "-I", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as watcher:
        told: list[int] = []
        try:
            yield lambda: told[0]
        finally:
            told.append(int(watcher.communicate()[0]))


def _watch() -> int:
    stops, last = 0, time.monotonic()
    while not select.select([sys.stdin], [], [], BEAT_S)[0]:
        now = time.monotonic()
        stops += now - last > BEAT_S + STOP_S
        last = now
    return stops


if __name__ == "__main__":
    sys.stdout.write(str(_watch()))
