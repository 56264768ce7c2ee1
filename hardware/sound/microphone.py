"""Takes a microphone's samples from its driver, and detects a dead microphone."""

from __future__ import annotations

import numpy as np

from hardware.sound.notices import AllZero, Lifeless
from hardware.sound.ring import Ring, SampleBlock
from pipeline.audio import LISTEN_RATE, Pcm

KEPT_S = 2.0
"""The ring's capacity, for times when the event loop is busy."""
ZEROS_S = 2.0
"""Exact zeros for this long mean a muted, broken or unrouted channel: no room is that quiet."""
MOST_ZEROS_S = 60.0
"""Each time that sound comes back, zeros may last twice as long as before, up to this: it may be a
microphone's noise gate."""
_PIECE_S, _BLOCK_S = 0.25, 0.01
_DEAD_PIECES, _LIVE_PIECES = 20, 2
"""Pieces in a row, 5 s and 0.5 s, after which a microphone counts as lifeless or alive again."""
_SAME_SHARE, _FLAT_SHARE, _FLAT_STEPS = 0.9, 0.85, 2
"""A piece is dead if this share of its samples has one value, or if in this share of its blocks the
samples differ by at most 2. White noise of 0.5 RMS or more passes; through a 16-bit converter no
room is quieter."""


class Microphone:
    """One open microphone; the driver's thread calls ``take``."""

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self.ring = Ring(round(KEPT_S * rate_hz))
        self.xruns = 0
        self.last_s: float | None = None
        """When the driver last called; seconds of the loop's clock."""
        self._next = 0

    def take(self, pcm: Pcm, at_s: float, now_s: float, xrun: bool) -> None:
        """``at_s``: when the first of ``pcm`` was at the membrane."""
        self.ring.put(SampleBlock(pcm, self._next, at_s, xrun))
        self._next += len(pcm)
        self.xruns += xrun
        self.last_s = now_s


class Zeros:
    """Detects a microphone that delivers only zeros; 16 kHz."""

    def __init__(self) -> None:
        self._zeros = 0
        self._most_zeros = ZEROS_S * LISTEN_RATE
        self.active = False
        """Whether it delivers only zeros."""

    def feed(self, pcm: Pcm) -> AllZero | None:
        """Returns a notice after 2 s of zeros or more, and another when they end."""
        sounds = np.flatnonzero(pcm)
        if len(sounds):
            self._zeros = len(pcm) - 1 - int(sounds[-1])
            if self.active:
                self.active = False
                self._most_zeros = min(2 * self._most_zeros, MOST_ZEROS_S * LISTEN_RATE)
                return AllZero(over=True)
            return None
        self._zeros += len(pcm)
        if not self.active and self._zeros >= self._most_zeros:
            self.active = True
            return AllZero()
        return None


class LifeSigns:
    """Detects a microphone that delivers next to nothing (zeros with rare bursts, a constant, one
    bit of dither), or the same sound again and again. Takes samples as the device delivers them:
    resampled, dither looks like noise."""

    def __init__(self, rate_hz: int) -> None:
        self._piece_samples = round(_PIECE_S * rate_hz)
        self._block_samples = round(_BLOCK_S * rate_hz)
        self._unread: Pcm = np.zeros(0, np.int16)
        self._dead_pieces = self._live_pieces = 0
        self._most_dead = _DEAD_PIECES
        self._lifeless = False

    def feed(self, pcm: Pcm) -> Lifeless | None:
        """Returns a notice after 5 s without life or more, and another when that ends."""
        self._unread = np.concatenate((self._unread, pcm))
        notice = None
        while len(self._unread) >= self._piece_samples:
            piece = self._unread[: self._piece_samples]
            self._unread = self._unread[self._piece_samples :]
            notice = self._note(self._is_dead(piece)) or notice
        return notice

    def _is_dead(self, piece: Pcm) -> bool:
        counts = np.unique(piece, return_counts=True)[1]
        if counts.max() >= _SAME_SHARE * len(piece):
            return True
        data, step = piece.tobytes(), piece.itemsize
        again = data.find(data[: self._block_samples * step], step)
        if again > 0 and data.startswith(data[again:]):
            return True
        whole = len(piece) // self._block_samples * self._block_samples
        blocks = piece[:whole].reshape(-1, self._block_samples).astype(np.int32)
        return bool(np.mean(np.ptp(blocks, axis=1) <= _FLAT_STEPS) >= _FLAT_SHARE)

    def _note(self, dead: bool) -> Lifeless | None:
        self._dead_pieces = self._dead_pieces + 1 if dead else 0
        self._live_pieces = 0 if dead else self._live_pieces + 1
        if not self._lifeless and self._dead_pieces == self._most_dead:
            self._lifeless = True
            return Lifeless()
        if self._lifeless and self._live_pieces == _LIVE_PIECES:
            self._lifeless = False
            self._most_dead = min(2 * self._most_dead, round(MOST_ZEROS_S / _PIECE_S))
            return Lifeless(over=True)
        return None
