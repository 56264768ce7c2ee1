"""Finds where speech began that the VAD noticed late. Pure; time is the sample index.

A VAD becomes certain only some time into a word: after a soft consonant, or in noise after most of
the word. A short first word ("No, ...") may be over before it counts as speech at all. But its
scores rise above the room's, so the onset is found by going back from the first certain window.

The constants were fitted on 3,000 seeded scenes (``benchmarks/results/2026-11-23-onsets.json`` has
others); ``benchmarks.turns.score`` counts beginnings that are lost.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from pipeline.audio import AudioFrame, samples_of
from pipeline.hearing import tuning


@dataclass(frozen=True, slots=True)
class _ScoredFrame:
    index: int
    end: int
    score: float
    power: float
    """Mean square of the samples."""
    room_score: float
    """The room's score so far."""


class RecentScores:
    """The newest scores of one stream, without gaps."""

    def __init__(self) -> None:
        self._frames: deque[_ScoredFrame] = deque()
        self._room_score = tuning.FIRST_ROOM_SCORE

    def note(self, score: float, frame: AudioFrame, threshold: float) -> None:
        """Take the next frame; scores from ``threshold`` on are speech, not the room."""
        samples = frame.pcm.astype(np.float32)
        power = float(samples @ samples) / max(1, len(samples))
        self._frames.append(_ScoredFrame(frame.index, frame.end, score, power, self._room_score))
        oldest = frame.end - samples_of(tuning.MAX_BACK_MS + tuning.CERTAIN_MS)
        while self._frames[0].index < oldest:
            self._frames.popleft()
        if score < threshold:
            tau_s = tuning.ROOM_RISE_S if score > self._room_score else tuning.ROOM_FALL_S
            self._room_score += min(1.0, frame.seconds / tau_s) * (score - self._room_score)

    def mean_since(self, start: int) -> float:
        """Mean score of the frames that end after sample ``start``; 0 without any."""
        scores = [frame.score for frame in self._frames if frame.end > start]
        return sum(scores) / len(scores) if scores else 0.0

    def speech_score(self, start: int, end: int, least: float) -> float:
        """Mean of the scores of at least ``least`` between two samples; 1 if there are none."""
        frames = (frame for frame in self._frames if start < frame.end and frame.index < end)
        scores = [frame.score for frame in frames if frame.score >= least]
        return sum(scores) / len(scores) if scores else 1.0

    def may_be_speech(self, threshold: float) -> bool:
        """Whether the newest frame may be speech in this room."""
        newest = self._frames[-1] if self._frames else None
        return newest is not None and newest.score >= _least_score(newest, threshold)

    def rises(self, threshold: float) -> bool:
        """Whether the newest frame may be speech in this room, and more so than the one before."""
        if len(self._frames) < 2:
            return False
        return self._frames[-2].score < self._frames[-1].score and self.may_be_speech(threshold)

    def beginning(self, noticed: int, threshold: float) -> int:
        """First sample of the speech whose scores reach ``threshold`` at sample ``noticed``.

        At most ``tuning.MAX_BACK_MS`` before ``noticed``, and never after it.
        """
        first_index = noticed - samples_of(tuning.MAX_BACK_MS)
        before = [frame for frame in self._frames if first_index <= frame.index < noticed]
        if not before:
            return noticed
        least_score = _least_score(before[0], threshold)
        certain = (frame.power for frame in self._frames if frame.index >= noticed)
        least_power = max(certain, default=0.0) / tuning.SOFTER
        begin = noticed
        for frame in reversed(before):
            if begin - frame.end > samples_of(tuning.GAP_MS):
                break
            if frame.score >= least_score and frame.power >= least_power:
                begin = frame.index
        return begin


def _least_score(frame: _ScoredFrame, threshold: float) -> float:
    """The least score of speech in the room as it was at ``frame``."""
    room_score = tuning.ROOM_FACTOR * frame.room_score + tuning.ROOM_MARGIN
    return min(room_score, tuning.SURELY_SPEECH, threshold)
