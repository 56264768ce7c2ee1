"""Measures how unevenly a client's audio arrives, and buffers it for push to talk. Pure."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm

_EPOCH_S = 5.0
"""Jitter is measured over the last one to two epochs, so that clock drift does not add up."""
_MUTED_S = 1.0
"""Audio this late or early comes from a client that was muted, or that sends a recording."""


class Arrivals:
    """Measures the jitter of arriving audio. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._expected_at = -math.inf
        """When the newest audio would have come without any delay."""
        self._epoch_at = -math.inf
        self._least_s, self._most_s, self._most_before_s = math.inf, 0.0, 0.0
        self._newest_at = -math.inf
        self._gap_s, self._gap_before_s = 0.0, 0.0

    @property
    def jitter_s(self) -> float:
        """How much later the slowest audio came than the quickest, rounded to 10 ms."""
        return round(max(self._most_s, self._most_before_s), 2)

    @property
    def gap_s(self) -> float:
        """The longest time between two messages lately, but for mutes."""
        return max(self._gap_s, self._gap_before_s)

    def note(self, seconds: float, now: float) -> None:
        """``seconds`` of audio have arrived."""
        gap_s, self._newest_at = now - self._newest_at, now
        self._expected_at += seconds
        if abs(now - self._expected_at) > _MUTED_S:
            self._expected_at = now
        if now - self._epoch_at > _EPOCH_S:
            self._expected_at += self._least_s if math.isfinite(self._least_s) else 0.0
            self._epoch_at, self._most_before_s = now, self._most_s
            self._least_s, self._most_s = math.inf, 0.0
            self._gap_before_s, self._gap_s = self._gap_s, 0.0
        if gap_s <= _MUTED_S:
            self._gap_s = max(self._gap_s, gap_s)
        if now < self._expected_at:
            self._most_s += self._expected_at - now
            self._expected_at = now
        late_s = now - self._expected_at
        self._least_s, self._most_s = min(self._least_s, late_s), max(self._most_s, late_s)


class PushToTalkBuffer:
    """Audio that a client without turn detection has appended and not yet committed."""

    def __init__(self, capacity_s: float) -> None:
        self.samples = 0
        self.live = False
        """Whether the newest of it came from a track, which never pauses."""
        self.overflowed = False
        """Whether a piece of the last append did not fit; the rest of that append is dropped."""
        self._capacity_samples = int(capacity_s * LISTEN_RATE)
        self._pieces: deque[Pcm] = deque()

    def append(self, pcm: Pcm, *, live: bool = False) -> bool:
        """False, and nothing is taken, if it does not fit. ``live``: the oldest gives way."""
        self.live = live
        while live and self._pieces and self.samples + len(pcm) > self._capacity_samples:
            self.samples -= len(self._pieces.popleft())
        self.overflowed = self.samples + len(pcm) > self._capacity_samples
        if not self.overflowed:
            self._pieces.append(pcm)
            self.samples += len(pcm)
        return not self.overflowed

    def take(self) -> Pcm:
        """Return everything and empty the buffer."""
        pcm = np.concatenate((EMPTY, *self._pieces))
        self._pieces.clear()
        self.samples = 0
        return pcm
