"""Whether this machine stood still: its host may stop a virtual one as it likes ("steal").

Run as a process of its own, which no lock of ours holds up, it watches until stdin ends, and then
says how often it was not let run.
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
"""Woken later than this, it was not let run: nobody on its core was."""


@contextmanager
def watched() -> Iterator[Callable[[], int]]:
    """Afterwards it tells how often the machine stood still for more than 10 ms."""
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
