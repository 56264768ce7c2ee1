"""How a client's audio arrives: how unevenly, and what of it waits to be committed. Pure."""

from __future__ import annotations

import math

import numpy as np

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm

_EPOCH_S = 5.0
"""Jitter is that of the newest one to two epochs; clocks that drift apart do not add up."""
_MUTED_S = 1.0
"""Audio that is so late or early comes from a client that was muted, or that sends a recording."""


class Arrivals:
    """What the network, or the client, holds back. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._due = -math.inf
        """When the newest audio would have come, had it been as quick as the quickest."""
        self._epoch_at = -math.inf
        self._least_s, self._most_s, self._most_before_s = math.inf, 0.0, 0.0

    @property
    def jitter_s(self) -> float:
        """How much later than the quickest audio the slowest came, to 10 ms."""
        return round(max(self._most_s, self._most_before_s), 2)

    def note(self, seconds: float, now: float) -> None:
        """So much audio has arrived."""
        self._due += seconds
        if abs(now - self._due) > _MUTED_S:
            self._due = now
        if now - self._epoch_at > _EPOCH_S:
            self._due += self._least_s if math.isfinite(self._least_s) else 0.0
            self._epoch_at, self._most_before_s = now, self._most_s
            self._least_s, self._most_s = math.inf, 0.0
        if now < self._due:
            self._most_s += self._due - now
            self._due = now
        late_s = now - self._due
        self._least_s, self._most_s = min(self._least_s, late_s), max(self._most_s, late_s)


class PushToTalkBuffer:
    """What a client without turn detection has appended and not yet committed."""

    def __init__(self, capacity_s: float) -> None:
        self.samples = 0
        self.overflowed = False
        """Whether a piece of what was appended last did not fit; then the rest is left out."""
        self._capacity_samples = int(capacity_s * LISTEN_RATE)
        self._pieces: list[Pcm] = []

    def append(self, pcm: Pcm) -> bool:
        """False when it is full; nothing is taken then."""
        self.overflowed = self.samples + len(pcm) > self._capacity_samples
        if not self.overflowed:
            self._pieces.append(pcm)
            self.samples += len(pcm)
        return not self.overflowed

    def take(self) -> Pcm:
        """All of it; the buffer is empty then."""
        pcm = np.concatenate((EMPTY, *self._pieces))
        self._pieces.clear()
        self.samples = 0
        return pcm
