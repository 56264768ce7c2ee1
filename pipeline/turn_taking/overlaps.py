"""Speech that began over an answer, until it is known whether it interrupts. Pure state: the caller
holds the answer, reads the words and carries the verdict out.

While speech is weighed nothing of it is published, and no more of the answer is sent. Its words are
read again and again, and in each pause. If it interrupts, it is published from its beginning; if
not, the answer goes on where it was held, and the client never knew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pipeline.audio import LISTEN_RATE
from pipeline.settings import BargeIn
from pipeline.turn_taking import tuning
from pipeline.work import Work

Step = Literal["wait", "read the words", "judge by length"]


@dataclass(slots=True, eq=False)
class Weighing:
    """``look_at``: sample index at which the words are read next; ``looked_at``: of the last look.
    ``looking``: whether they are being read."""

    settings: BargeIn
    onset: int
    work: Work = field(default_factory=Work)
    look_at: int = 0
    looks: int = 0
    looked_at: int = 0
    looking: bool = False

    def __post_init__(self) -> None:
        self.look_at = self.onset + _samples(self.settings.first_look_ms)

    def heard(self, end: int) -> Step:
        """More of the speech has been heard, up to sample ``end``: what to do now."""
        if end < self.look_at:
            return "wait"
        self.looks += 1
        every_ms = self.settings.look_every_ms * max(1, self.looks // tuning.LOOKS_IN_A_ROW)
        self.look_at = end + _samples(every_ms)
        if not self.looking:
            self.looking = True
            self.looked_at = end
            return "read the words"
        overdue = end - self.looked_at >= _samples(tuning.READ_WITHIN_MS)
        return "judge by length" if overdue else "wait"

    def resumed(self, end: int) -> None:
        """Speech goes on after a pause: look soon."""
        self.look_at = min(self.look_at, end + _samples(self.settings.look_every_ms))


def _samples(ms: int) -> int:
    return ms * LISTEN_RATE // 1000
