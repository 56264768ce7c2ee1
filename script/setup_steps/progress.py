"""How far a step is, read from what its command prints, and one line that shows it."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from typing import TextIO

Reader = Callable[[str], float]
"""Takes one line of output, returns the fraction that is done (0..1, never falling)."""

PLAIN_INTERVAL_S = 30.0
MIN_CELLS, MAX_CELLS = 5, 24
PLAIN_WIDTH = 200
MOST_BY_TIME = 0.95
MIN_FRACTION = 0.04
"""Below it the pace says too little, and the typical duration is shown instead."""


class PipProgress:
    """pip prints one line for each requirement that it looks up, then installs them all."""

    LOOKUP = 0.7

    def __init__(self, requirements: int) -> None:
        self.requirements = max(1, requirements)
        self.seen = 0
        self.fraction = 0.0

    def __call__(self, line: str) -> float:
        if line.startswith(("Collecting ", "Requirement already satisfied: ", "Ignoring ")):
            self.seen += 1
            done = self.LOOKUP * min(1.0, self.seen / self.requirements)
        elif line.startswith("Installing collected packages"):
            done = self.LOOKUP
        else:
            done = 0.0
        self.fraction = max(self.fraction, done)
        return self.fraction


class NinjaProgress:
    """Ninja prints ``[12/140] Building ...``; the source archive comes before it."""

    PREPARED = 0.04
    _COUNTER = re.compile(r"^\s*\[(\d+)/(\d+)\]")
    _SMALLEST_BUILD = 20  # what CMake compiles to try the compiler is no progress

    def __init__(self) -> None:
        self.fraction = 0.0

    def __call__(self, line: str) -> float:
        match = self._COUNTER.match(line)
        if match and (total := int(match[2])) >= self._SMALLEST_BUILD:
            compiled = min(1.0, int(match[1]) / total)
            done = self.PREPARED + (1 - self.PREPARED) * compiled
            self.fraction = max(self.fraction, done)
        return self.fraction


def remaining_s(elapsed_s: float, fraction: float, typical_s: float) -> float:
    """Estimate of the time that is left: from the pace, or from the typical duration at first."""
    if fraction < MIN_FRACTION:
        return max(0.0, typical_s - elapsed_s)
    return elapsed_s * (1 - fraction) / fraction


def clock(seconds: float) -> str:
    """``1:05`` for 65 seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def bar_line(title: str, elapsed_s: float, fraction: float, typical_s: float, width: int) -> str:
    """One line of at most ``width`` characters; the bar itself takes what the words leave."""
    left_s = remaining_s(elapsed_s, fraction, typical_s)
    left = f"about {clock(left_s)} left" if left_s >= 1 else "nearly done"
    words = f"{fraction:4.0%}  {clock(elapsed_s)}, {left}"
    cells = min(MAX_CELLS, width - len(title) - len(words) - 4)
    full = int(cells * fraction)
    bar = f" [{'#' * full + '.' * (cells - full)}]" if cells >= MIN_CELLS else ""
    return f"{title}{bar} {words}"[:width]


class Bar:
    """A step's line on a terminal; elsewhere a plain line now and then."""

    def __init__(
        self,
        title: str,
        typical_s: float,
        out: TextIO,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.title = title
        self.typical_s = typical_s
        self.out = out
        self.now = now
        self.started = now()
        self.fraction = 0.0
        self.is_terminal = out.isatty()
        self.last_plain = self.started
        if not self.is_terminal:
            self._write(f"{title} (about {clock(typical_s)})\n")

    def show(self, fraction: float | None) -> None:
        """``None``: the command does not tell, so the typical duration does, as far as it can."""
        now = self.now()
        if fraction is None:
            fraction = min(MOST_BY_TIME, (now - self.started) / self.typical_s)
        fraction = self.fraction = max(self.fraction, fraction)
        if self.is_terminal:
            self._write("\r" + self._line(now, fraction) + "\x1b[K")
        elif now - self.last_plain >= PLAIN_INTERVAL_S:
            self.last_plain = now
            self._write(self._line(now, fraction) + "\n")

    def done(self) -> None:
        line = f"{self.title}: done in {clock(self.now() - self.started)}"
        self._write(f"\r{line}\x1b[K\n" if self.is_terminal else f"{line}\n")

    def failed(self) -> None:
        if self.is_terminal:
            self._write("\n")

    def _line(self, now: float, fraction: float) -> str:
        width = shutil.get_terminal_size().columns - 1 if self.is_terminal else PLAIN_WIDTH
        return bar_line(self.title, now - self.started, fraction, self.typical_s, width)

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()
