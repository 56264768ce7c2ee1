"""The small head movements of a speaker, driven by what the loudspeaker is playing."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from hardware.robot.poses import Pose
from pipeline.audio import Pcm

HOP_S = 0.02
HELD_HOPS = 3000
"""A minute; audio queued further ahead displaces the oldest."""
QUIET_DB, LOUD_DB = -50.0, -18.0
"""dBFS: below the first nothing moves; from the second on the movement is full."""
RISE_PER_S, FALL_PER_S = 10.0, 4.0
"""Attack and decay of the movement as it follows the voice."""

SWINGS = {
    "pitch": (math.radians(2.5), 1.9),
    "neck_yaw": (math.radians(3.0), 0.55),
    "roll": (math.radians(2.0), 1.1),
    "z": (0.002, 0.35),
}
"""Amplitude (rad, m) and frequency (Hz); the frequencies are chosen not to repeat together."""


STILL = Pose(right_antenna=0.0, left_antenna=0.0)
"""The offset that adds nothing."""


class Wobble:
    """Holds the loudness of upcoming audio; call ``offset`` with increasing times.

    Times are seconds on one clock, the same for ``played`` and ``offset``.
    """

    def __init__(self) -> None:
        self.over_at = -math.inf
        """When the last known audio will have been heard."""
        self._hops: deque[tuple[float, float, float]] = deque(maxlen=HELD_HOPS)
        """Begin, end and loudness (0 to 1)."""
        self._loudness = 0.0
        self._until = -math.inf
        self._envelope = 0.0
        self._asked_at: float | None = None

    def played(self, pcm: Pcm, rate: int, at: float) -> None:
        """The loudspeaker plays ``pcm`` (int16, mono, shape ``(n,)``, ``rate`` Hz) from ``at``."""
        hop = max(1, round(HOP_S * rate))
        starts = np.arange(0, len(pcm), hop)
        if not len(starts):
            return
        squares = np.square(pcm.astype(np.float32) / 32768)
        lengths = np.minimum(hop, len(pcm) - starts)
        powers = np.add.reduceat(squares, starts) / lengths
        decibels = 10 * np.log10(powers + 1e-12)
        loudness = np.clip((decibels - QUIET_DB) / (LOUD_DB - QUIET_DB), 0.0, 1.0)
        begins, ends = at + starts / rate, at + (starts + lengths) / rate
        hops = zip(begins.tolist(), ends.tolist(), loudness.tolist(), strict=True)
        self._hops.extend(hops)
        self.over_at = max(self.over_at, float(ends[-1]))

    def hush(self, now: float) -> None:
        """Drop the audio that has not been played yet."""
        self._hops = deque((hop for hop in self._hops if hop[0] <= now), maxlen=HELD_HOPS)
        self.over_at = min(self.over_at, now)
        self._until = min(self._until, now)

    def offset(self, now: float) -> tuple[Pose, float]:
        """The offset to add to the robot's pose, and the strength of the movement (0 to 1)."""
        while self._hops and self._hops[0][0] <= now:
            _, self._until, self._loudness = self._hops.popleft()
        goal = self._loudness if now < self._until else 0.0
        seconds = 0.0 if self._asked_at is None else max(0.0, now - self._asked_at)
        self._asked_at = now
        rise, fall = RISE_PER_S * seconds, FALL_PER_S * seconds
        self._envelope += max(-fall, min(rise, goal - self._envelope))
        swing = {
            axis: self._envelope * size * math.sin(2 * math.pi * hertz * now)
            for axis, (size, hertz) in SWINGS.items()
        }
        return STILL._replace(**swing), self._envelope
