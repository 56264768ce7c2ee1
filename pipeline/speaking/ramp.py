"""How much the voice may be given at once, so that its audio is there when it is needed. Pure.

The listener has some seconds of audio ahead. A piece of text whose audio will be ready before
they are over makes no gap; the longest such piece makes the fewest joints. How long the voice
takes is learned from what it did before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.speaking.tuning import (
    RAMP_CAUTION,
    RAMP_FORGETTING,
    RAMP_KEPT,
    RAMP_MARGIN_S,
    RAMP_MOST_S,
    RAMP_PACES,
    RAMP_SHORTEST_WAIT_S,
    RAMP_TRUST_S,
)


@dataclass(frozen=True, slots=True)
class Spoken:
    """One piece that a voice has made: so many ``letters`` (``pipeline.spoken.length``) became
    ``audio_s``, in ``work_s``; the first chunk, of ``first_chunk_s``, was there after ``first_s``.
    Our own waits do not count."""

    letters: int
    audio_s: float
    work_s: float
    first_chunk_s: float
    first_s: float


_AT_FIRST = (Spoken(0, 0.0, 0.1, 0.0, 0.1), Spoken(66, 4.0, 0.7, 4.0, 0.7))
"""Before anything is known: 0.1 s and 0.15 s per second of speech, a little more than Piper needs
on a busy core, and all of a piece at once."""


class Ramp:
    """What is known of one voice; for all answers that it gives."""

    def __init__(self) -> None:
        self._voice: object = None
        self._seen: deque[Spoken] = deque(maxlen=RAMP_KEPT)
        self._fixed_s = 0.0
        self._per_second = 0.0
        self.s_per_letter = 0.0
        self._fit()

    def of(self, voice: object) -> None:
        """What follows is of this voice. Of another one nothing is known yet: its pace would pass
        for a fault (``pipeline.speaking.clause_watch``)."""
        if self._voice is not None and self._voice is not voice:
            self._seen.clear()
            self._fit()
        self._voice = voice

    def learn(self, spoken: Spoken) -> None:
        """Take one more piece into account."""
        if spoken.letters > 0 and spoken.audio_s > 0:
            self._seen.append(spoken)
            self._fit()

    def ready_s(self, letters: int) -> float:
        """How long it may take until the first audio of such a piece, in seconds."""
        expected = self._fixed_s + self._per_second * letters * self.s_per_letter
        return RAMP_CAUTION * expected + RAMP_MARGIN_S

    @property
    def known(self) -> bool:
        """Whether the voice has spoken yet."""
        return bool(self._seen)

    def work_s(self, letters: int) -> float:
        """How long all of such a piece usually takes, in seconds."""
        seen = self._seen or _AT_FIRST
        audio_s = sum(s.audio_s for s in seen)
        return self._fixed_s + sum(s.work_s for s in seen) / audio_s * self.speech_s(letters)

    def speech_s(self, letters: int) -> float:
        """How many seconds of speech such a piece will be."""
        return letters * self.s_per_letter

    def longest_letters(self, buffered_s: float) -> int:
        """The longest piece that is ready in time if it is begun now; 0 if none is.

        ``buffered_s``: audio that the listener has still to hear.
        """
        most = int(RAMP_MOST_S / self.s_per_letter)
        if self.streams and buffered_s > 0:
            return most
        if self.ready_s(0) > buffered_s:
            return 0
        per_letter = RAMP_CAUTION * self._per_second * self.s_per_letter
        if per_letter <= 0:
            return most
        return min(most, int((buffered_s - self.ready_s(0)) / per_letter))

    def patience_s(self, buffered_s: float, letters: int) -> float:
        """How long a piece can wait for more text before it has to be begun; 0 if it is no use."""
        patience_s = buffered_s - self.ready_s(letters)
        return patience_s if patience_s >= RAMP_SHORTEST_WAIT_S else 0.0

    @property
    def streams(self) -> bool:
        """Whether it gives the beginning of a piece while it makes the rest, so that a piece may
        be long even if there is hardly any time."""
        return any(2 * s.first_chunk_s < s.audio_s and s.first_chunk_s < 1.0 for s in self._seen)

    def _fit(self) -> None:
        """A line through work against audio, the newest pieces counting most."""
        seen = list(self._seen) or list(_AT_FIRST)
        streams = self.streams
        points = [
            (RAMP_FORGETTING ** (len(seen) - 1 - n), s.audio_s, s.first_s if streams else s.work_s)
            for n, s in enumerate(seen)
        ]
        per_letter = sum(s.audio_s for s in seen) / sum(s.letters for s in seen)
        self.s_per_letter = min(max(per_letter, RAMP_PACES[0]), RAMP_PACES[1])
        self._fixed_s, self._per_second = _line([*points, (RAMP_TRUST_S[1], 0.0, RAMP_TRUST_S[0])])


def _line(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Through weighted points (weight, x, y): y at 0, and slope; neither is negative."""
    total = sum(w for w, _, _ in points)
    mean_x = sum(w * x for w, x, _ in points) / total
    mean_y = sum(w * y for w, _, y in points) / total
    spread = sum(w * (x - mean_x) ** 2 for w, x, _ in points)
    shared = sum(w * (x - mean_x) * (y - mean_y) for w, x, y in points)
    slope = min(max(0.0, shared / spread), mean_y / mean_x) if spread else 0.0
    return mean_y - slope * mean_x, slope
