"""Detects that a voice has faded into the room, before the VAD knows that speech has ended. Pure.

A VAD's scores fall about 100 ms after the voice does. If the room is much quieter than the speaker,
the level shows it at once, but not reliably: a mouth closed within a word ("sto-p") sounds the
same. So it is a reason to prepare an answer, but not to give it.

The constants are fitted on the tuning part of the corpus of ``benchmarks.turns``: pauses are known
43 ms earlier on average, for a false alarm every 8 s of speech.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, AudioFrame, samples_of
from pipeline.hearing import tuning


class Fading:
    """Follows the levels of one stream of scored frames."""

    def __init__(self) -> None:
        self._block = round(tuning.BLOCK_S * LISTEN_RATE)
        self._room_db: float | None = None
        self._speech_db: float | None = None
        self._quiet_from: int | None = None
        self._score = 0.0

    def note(self, score: float, frame: AudioFrame) -> None:
        """Take the next frame and its probability of speech."""
        if not len(frame.pcm):
            return
        levels_db = self._levels(frame)
        level_db = float(10 * np.log10(np.mean(10 ** (levels_db / 10))))
        self._score = score
        self._follow(score, level_db)
        limit_db = self._limit_db()
        for number, quiet in enumerate(levels_db < limit_db):
            if not quiet:
                self._quiet_from = None
            elif self._quiet_from is None:
                self._quiet_from = frame.index + number * self._block

    def forget_speaker(self) -> None:
        """Forget the speaker's level: the next speaker may be another person, or speak softly."""
        self._speech_db = self._quiet_from = None

    @property
    def quiet(self) -> bool:
        """Whether the newest sound is only the room."""
        return self._quiet_from is not None

    def faded_from(self, end: int, least_samples: int) -> int | None:
        """The sample since which only the room is heard, if at least ``least_samples`` before
        ``end``, or more where the VAD is certain of speech."""
        if self._score >= tuning.FADING_SCORE:
            least_samples = max(least_samples, samples_of(tuning.CLOSURE_MS))
        start = self._quiet_from
        return None if start is None or end - start < least_samples else start

    def _follow(self, score: float, level_db: float) -> None:
        if score < tuning.ROOM_SCORE:
            if self._room_db is None:
                self._room_db = level_db
            self._room_db += tuning.FOLLOW_ROOM * (level_db - self._room_db)
        if score < tuning.SPEECH_SCORE:
            return
        if self._speech_db is None or level_db > self._speech_db:
            self._speech_db = level_db
        elif level_db > self._speech_db - tuning.HARDLY_SPEECH_DB:
            self._speech_db += tuning.FOLLOW_SPEECH * (level_db - self._speech_db)

    def _limit_db(self) -> float:
        """Lower levels are the room's; minus infinity if room and speaker are too similar."""
        if self._speech_db is None or self._room_db is None:
            return float("-inf")
        limit_db = max(
            self._room_db + tuning.ABOVE_ROOM_DB, self._speech_db - tuning.BELOW_SPEECH_DB
        )
        return limit_db if limit_db <= self._speech_db - tuning.CONTRAST_DB else float("-inf")

    def _levels(self, frame: AudioFrame) -> NDArray[np.float64]:
        """Level of each block in dB relative to one sample step; a short remainder is a block."""
        starts = np.arange(0, len(frame.pcm), self._block)
        energy = np.add.reduceat(np.square(frame.pcm, dtype=np.float64), starts)
        counts = np.minimum(len(frame.pcm) - starts, self._block)
        levels: NDArray[np.float64] = 10 * np.log10(energy / counts + 1)
        return levels
