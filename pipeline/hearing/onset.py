"""Where speech began that the VAD noticed late. Pure; time is the sample index.

A VAD is sure of itself some time after a word has begun: after its soft consonant, in noise after
most of it. A short first word ("No, ...") may be over before it counts as speech at all. But its
scores rise above those of the room, and the way back from the moment of certainty leads over them.

The constants are fitted on the scenes of ``benchmarks.onsets``, seeds 2 to 4; figures on others
are in ``benchmarks/results``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from pipeline.audio import LISTEN_RATE, AudioFrame

MAX_BACK_MS = 1280
"""Never further back: a long first word, a pause, and a VAD that hesitates."""
GAP_MS = 512
"""Longer silence before speech parts it from what was heard before."""
_CERTAIN_MS = 1000
"""Longest ``onset_ms``: so much is noted between the moment of notice and that of certainty."""
_ROOM_FACTOR = 2.0
_ROOM_MARGIN = 0.03
_SURELY_SPEECH = 0.3
"""Speech scores twice as much as the room and a bit more; at this score it does in any room."""
_SOFTER = 16.0
"""Speech is at most so many times (12 dB) weaker in power than what the VAD is certain of. An echo
of the assistant or people further away are."""
_ROOM_RISE_S = 3.2
_ROOM_FALL_S = 0.32
_FIRST_ROOM_SCORE = 0.02
"""What Silero gives a quiet room."""


@dataclass(frozen=True, slots=True)
class _Noted:
    index: int
    end: int
    score: float
    power: float
    """Mean square of the samples."""
    room_score: float
    """What the room had scored so far."""


class RecentScores:
    """The newest scores of one stream, of all frames without a gap."""

    def __init__(self, rate: int = LISTEN_RATE) -> None:
        self._rate = rate
        self._frames: deque[_Noted] = deque()
        self._room_score = _FIRST_ROOM_SCORE

    def note(self, score: float, frame: AudioFrame, threshold: float) -> None:
        """Take the next frame; from ``threshold`` on its score is speech's, not the room's."""
        power = float(np.mean(np.square(frame.pcm, dtype=np.float32))) if len(frame.pcm) else 0.0
        self._frames.append(_Noted(frame.index, frame.end, score, power, self._room_score))
        oldest = frame.end - self._samples(MAX_BACK_MS + _CERTAIN_MS)
        while self._frames[0].index < oldest:
            self._frames.popleft()
        if score < threshold:
            tau_s = _ROOM_RISE_S if score > self._room_score else _ROOM_FALL_S
            self._room_score += min(1.0, frame.seconds / tau_s) * (score - self._room_score)

    def beginning(self, noticed: int, threshold: float) -> int:
        """First sample of the speech whose scores reach ``threshold`` from sample ``noticed`` on.

        At most ``MAX_BACK_MS`` before it, and never behind it.
        """
        first_index = noticed - self._samples(MAX_BACK_MS)
        before = [frame for frame in self._frames if first_index <= frame.index < noticed]
        if not before:
            return noticed
        room_score = _ROOM_FACTOR * before[0].room_score + _ROOM_MARGIN
        least_score = min(room_score, _SURELY_SPEECH, threshold)
        certain = (frame.power for frame in self._frames if frame.index >= noticed)
        least_power = max(certain, default=0.0) / _SOFTER
        begin = noticed
        for frame in reversed(before):
            if begin - frame.end > self._samples(GAP_MS):
                break
            if frame.score >= least_score and frame.power >= least_power:
                begin = frame.index
        return begin

    def _samples(self, ms: int) -> int:
        return ms * self._rate // 1000
