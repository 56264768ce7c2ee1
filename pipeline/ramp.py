"""How much the voice may be given at once, so that its audio is there when it is needed. Pure.

The listener has some seconds of audio ahead. A piece of text whose audio will be ready before
they are over makes no gap; the longest such piece makes the fewest joints. How long the voice
takes is learned from what it did before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

MOST_S = 12.0
"""Longest piece: more would be thrown away when somebody interrupts."""
CAUTION = 1.3
"""A piece may take so many times as long as expected."""
MARGIN_S = 0.06
"""And so much longer. A step of the event loop and of the engine's host is a few ms on an idle
machine; on a busy one, what is learned shows it."""
_KEPT = 12
_FORGETTING = 0.85
"""Weight of each observation against the one after it."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """One piece that a voice has made: ``chars`` of text became ``audio_s``, in ``work_s``; the
    first chunk, of ``first_chunk_s``, was there after ``first_s``. Waits of ours do not count."""

    chars: int
    audio_s: float
    work_s: float
    first_chunk_s: float
    first_s: float


_EXPECTED = (
    Spoken(8, 0.5, 0.15, 0.5, 0.15),
    Spoken(62, 4.0, 0.7, 4.0, 0.7),
)
"""Before anything is known: a voice that needs 0.07 s and 0.16 s per second of speech, a little
more than Piper on one busy core, and gives all of a piece at once."""


class Ramp:
    """What is known of one voice; for all answers that it gives."""

    def __init__(self) -> None:
        self._seen: deque[Spoken] = deque(maxlen=_KEPT)
        self._fixed_s = 0.0
        self._per_second = 0.0
        self._seconds_per_char = 0.0
        self._fit()

    def learn(self, spoken: Spoken) -> None:
        """Take one more piece into account."""
        if spoken.chars > 0 and spoken.audio_s > 0:
            self._seen.append(spoken)
            self._fit()

    def ready_s(self, chars: int) -> float:
        """How long it may take until the first audio of such a piece, in seconds."""
        expected = self._fixed_s + self._per_second * chars * self._seconds_per_char
        return CAUTION * expected + MARGIN_S

    def longest_chars(self, buffered_s: float) -> int:
        """The longest piece that is ready in time if it is begun now; 0 if none is.

        ``buffered_s``: audio that the listener has still to hear.
        """
        most = int(MOST_S / self._seconds_per_char)
        if self.ready_s(0) > buffered_s:
            return 0
        per_char = CAUTION * self._per_second * self._seconds_per_char
        if per_char <= 0:
            return most
        return min(most, int((buffered_s - self.ready_s(0)) / per_char))

    def patience_s(self, buffered_s: float, chars: int) -> float:
        """How long a piece can wait for more text before it has to be begun."""
        return max(0.0, buffered_s - self.ready_s(chars))

    def _fit(self) -> None:
        """A line through work against audio, the newest pieces counting most."""
        seen = [*_EXPECTED, *self._seen]
        weights = [_FORGETTING ** (len(seen) - 1 - n) for n in range(len(seen))]
        # What was only expected hardly counts once there is anything else.
        weights[: len(_EXPECTED)] = [0.05 * w if self._seen else 1.0 for w in weights[:2]]
        streams = any(2 * s.first_chunk_s < s.audio_s and s.first_chunk_s < 1.0 for s in self._seen)
        total = sum(weights)
        mean_audio = sum(w * s.audio_s for w, s in zip(weights, seen, strict=True)) / total
        self._seconds_per_char = (
            mean_audio * total / sum(w * s.chars for w, s in zip(weights, seen, strict=True))
        )
        works = [s.first_s if streams else s.work_s for s in seen]
        mean_work = sum(w * y for w, y in zip(weights, works, strict=True)) / total
        spread = sum(w * (s.audio_s - mean_audio) ** 2 for w, s in zip(weights, seen, strict=True))
        shared = sum(
            w * (s.audio_s - mean_audio) * (y - mean_work)
            for w, s, y in zip(weights, seen, works, strict=True)
        )
        slope = max(0.0, shared / spread) if spread > 1e-9 else mean_work / mean_audio
        self._per_second = min(slope, mean_work / mean_audio)
        self._fixed_s = mean_work - self._per_second * mean_audio
