"""Picks one channel from a driver's samples, and checks that it is alive."""

from __future__ import annotations

import numpy as np

from hardware.sound.notices import AllZero
from hardware.sound.ring import Piece, Ring
from pipeline.audio import LISTEN_RATE, Pcm

KEPT_S = 2.0
"""The ring's capacity, for times when the event loop is busy."""
ZEROS_S = 2.0
"""Exact zeros for this long mean a muted, broken or unrouted channel: no room is that quiet."""


class Microphone:
    """One opened microphone; called by the driver's thread."""

    def __init__(self, channels: int, rate_hz: int) -> None:
        """``channels``: how many interleaved channels to open; the last one is used."""
        self.rate_hz = rate_hz
        self.ring = Ring(round(KEPT_S * rate_hz))
        self.xruns = 0
        self.last_s: float | None = None
        """When the driver last called; seconds of the loop's clock."""
        self._channels = channels
        self._taken = 0

    def take(self, data: bytes | memoryview, at_s: float, now_s: float, xrun: bool) -> None:
        """``data``: interleaved int16; ``at_s``: when its first frame was at the membrane."""
        frames = np.frombuffer(data, np.int16).reshape(-1, self._channels)
        pcm: Pcm = frames[:, -1].copy()
        self.ring.put(Piece(pcm, self._taken, at_s, xrun))
        self._taken += len(pcm)
        self.xruns += xrun
        self.last_s = now_s


class Zeros:
    """Detects a microphone that delivers only zeros; 16 kHz."""

    def __init__(self) -> None:
        self._zeros = 0
        self._told = False

    def feed(self, pcm: Pcm) -> AllZero | None:
        """One notice when it has been silent for 2 s, one when that ends."""
        sounds = np.flatnonzero(pcm)
        if len(sounds):
            self._zeros = len(pcm) - 1 - int(sounds[-1])
            if self._told:
                self._told = False
                return AllZero(over=True)
            return None
        self._zeros += len(pcm)
        if not self._told and self._zeros >= ZEROS_S * LISTEN_RATE:
            self._told = True
            return AllZero()
        return None
