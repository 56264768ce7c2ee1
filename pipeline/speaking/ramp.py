"""Decides how much text to give the voice at once, so that its audio is ready in time. Pure.

The listener has some seconds of audio left. A piece of text that is spoken before they run out
leaves no gap; the longest such piece makes the fewest joints. How long the voice takes is learned
from earlier pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.audio import Pcm
from pipeline.speaking import tuning


@dataclass(frozen=True, slots=True)
class VoiceTiming:
    """One piece made by a voice: ``letters`` (``pipeline.spoken.length``) became ``audio_s`` in
    ``work_s``; the first chunk, ``first_chunk_s`` long, came after ``first_s``. Waiting for the
    listener does not count."""

    letters: int
    audio_s: float
    work_s: float
    first_chunk_s: float
    first_s: float


_AT_FIRST = (VoiceTiming(0, 0.0, 0.1, 0.0, 0.1), VoiceTiming(66, 4.0, 0.7, 4.0, 0.7))
"""Assumed at first: 0.1 s plus 0.15 s per second of speech, a little more than Piper needs on a
busy core, and each piece in a single chunk."""


class Ramp:
    """The measured speed of one voice, over all its answers."""

    def __init__(self) -> None:
        self._voice: object = None
        self._rtf = 0.0
        self._timings: deque[VoiceTiming] = deque(maxlen=tuning.RAMP_KEPT)
        self._fixed_s = 0.0
        self._per_second = 0.0
        self.s_per_letter = 0.0
        self._fit()

    def of(self, voice: object, rtf: float = 0.0) -> None:
        """Set the voice; a new one is measured from scratch, because judged by the old one's pace
        it would seem faulty (``pipeline.speaking.clause_watch``). ``rtf``: its work in seconds for
        a second of speech, as measured before it spoke here; 0: unknown."""
        self._rtf = rtf
        if self._voice is not None and self._voice is not voice:
            self._timings.clear()
            self._fit()
        self._voice = voice

    def learn(self, timing: VoiceTiming) -> None:
        """Learn from one more piece."""
        if timing.letters > 0 and timing.audio_s > 0:
            self._timings.append(timing)
            self._fit()

    def ready_s(self, letters: int) -> float:
        """How long the first audio of a piece of this length may take, in seconds."""
        usual_s = self._fixed_s + self._per_second * letters * self.s_per_letter
        return tuning.RAMP_CAUTION * usual_s + tuning.RAMP_MARGIN_S

    def reserve(self, letters: int) -> Reserve:
        """What to hold back of a piece of this length."""
        rtf = self._rtf
        if self._timings:
            weights = [
                (tuning.RAMP_FORGETTING**n, s) for n, s in enumerate(reversed(self._timings))
            ]
            rtf = sum(w * s.work_s for w, s in weights) / sum(w * s.audio_s for w, s in weights)
        share = 1 - tuning.RAMP_KEEPS_UP / rtf if rtf > tuning.RAMP_KEEPS_UP else 0.0
        return Reserve(share * self.speech_s(letters) + (tuning.RAMP_CHUNK_S if rtf > 1 else 0.0))

    @property
    def measured(self) -> bool:
        """Whether the voice has spoken yet."""
        return bool(self._timings)

    def work_s(self, letters: int) -> float:
        """How long a whole piece of this length usually takes, in seconds."""
        timings = self._timings or _AT_FIRST
        audio_s = sum(s.audio_s for s in timings)
        return self._fixed_s + sum(s.work_s for s in timings) / audio_s * self.speech_s(letters)

    def speech_s(self, letters: int) -> float:
        """The expected length of the speech of a piece, in seconds."""
        return letters * self.s_per_letter

    def longest_letters(self, buffered_s: float) -> int:
        """The longest piece that is ready in time if started now; 0 if there is no such piece.

        ``buffered_s``: audio that the listener has not heard yet.
        """
        most = int(tuning.RAMP_MOST_S / self.s_per_letter)
        if self.streams and buffered_s > 0:
            return most
        if self.ready_s(0) > buffered_s:
            return 0
        per_letter = tuning.RAMP_CAUTION * self._per_second * self.s_per_letter
        if per_letter <= 0:
            return most
        return min(most, int((buffered_s - self.ready_s(0)) / per_letter))

    def patience_s(self, buffered_s: float, letters: int) -> float:
        """How long a piece can wait for more text before it must start; 0 if waiting is useless."""
        patience_s = buffered_s - self.ready_s(letters)
        return patience_s if patience_s >= tuning.RAMP_SHORTEST_WAIT_S else 0.0

    @property
    def streams(self) -> bool:
        """Whether the voice returns the beginning of a piece while it makes the rest, so that
        pieces may be long even when time is short."""
        return any(2 * s.first_chunk_s < s.audio_s and s.first_chunk_s < 1.0 for s in self._timings)

    def _fit(self) -> None:
        """Fit a line through work against audio, with the newest pieces weighted most."""
        past = list(self._timings) or list(_AT_FIRST)
        streams = self.streams
        points = [
            (
                tuning.RAMP_FORGETTING ** (len(past) - 1 - n),
                s.audio_s,
                s.first_s if streams else s.work_s,
            )
            for n, s in enumerate(past)
        ]
        per_letter = sum(s.audio_s for s in past) / sum(s.letters for s in past)
        self.s_per_letter = min(max(per_letter, tuning.RAMP_PACES[0]), tuning.RAMP_PACES[1])
        self._fixed_s, self._per_second = _line(
            [*points, (tuning.RAMP_TRUST_S[1], 0.0, tuning.RAMP_TRUST_S[0])]
        )


class Reserve:
    """For a voice slower than speech: holds back the beginning of a piece until the rest can be
    made while it is heard. The listener gets one wait before the piece instead of gaps in it."""

    def __init__(self, wanted_s: float) -> None:
        """``wanted_s``: how much to hold back."""
        self._wanted_s = wanted_s
        self._pieces: list[Pcm] = []

    def take(self, pcm: Pcm, rate: int) -> list[Pcm]:
        """Take more of the piece; return what may go to the listener now."""
        self._pieces.append(pcm)
        self._wanted_s -= len(pcm) / rate
        return [] if self._wanted_s > 0 else self.rest()

    def rest(self) -> list[Pcm]:
        pieces, self._pieces = self._pieces, []
        return pieces


def _line(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Fit weighted points (weight, x, y); return y at 0 and the slope, neither negative."""
    total = sum(w for w, _, _ in points)
    mean_x = sum(w * x for w, x, _ in points) / total
    mean_y = sum(w * y for w, _, y in points) / total
    spread = sum(w * (x - mean_x) ** 2 for w, x, _ in points)
    cross = sum(w * (x - mean_x) * (y - mean_y) for w, x, y in points)
    slope = min(max(0.0, cross / spread), mean_y / mean_x) if spread else 0.0
    return max(0.0, mean_y - slope * mean_x), slope
