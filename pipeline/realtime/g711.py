"""G.711: 16-bit samples <-> one byte per sample, by µ-law or A-law, at 8 kHz.

A law divides the magnitudes into 128 intervals, eight segments of 16 even steps; a decoded sample
is the middle of its interval (ITU-T G.711, Tables 1a to 2b; here on the scale of 16-bit samples). A
sample exactly on a border belongs to the interval above it, as in ITU-T's own software (G.191).
Both directions are table look-ups.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import Pcm

Law = Literal["pcmu", "pcma"]

RATE = 8_000
"""Hz, the only rate of G.711."""

_SIGN = 0x80
_MU_BIAS = 0x84
"""Offset of µ-law's first segment from a power of two; 33 on the standard's 14-bit scale."""
_MU_INVERTED = 0xFF
_A_EVEN_BITS_INVERTED = 0x55
"""Bits that are sent inverted: all in µ-law, every other bit in A-law."""


def encode(pcm: Pcm, law: Law) -> bytes:
    """One byte for each sample of ``pcm``: int16, shape ``(n,)``, at 8 kHz."""
    return _codes(law)[pcm.view(np.uint16)].tobytes()


def decode(data: bytes, law: Law) -> Pcm:
    """int16 samples at 8 kHz, shape ``(len(data),)``. Any byte is valid."""
    return _samples(law)[np.frombuffer(data, dtype=np.uint8)]


@cache
def _samples(law: Law) -> Pcm:
    """The sample for each of the 256 codes."""
    code = np.arange(256) ^ (_MU_INVERTED if law == "pcmu" else _A_EVEN_BITS_INVERTED)
    lowest, step = _intervals(law)
    middle = (lowest + step // 2)[code & ~_SIGN]
    positive = (code & _SIGN == 0) if law == "pcmu" else (code & _SIGN != 0)
    samples: Pcm = np.where(positive, middle, -middle).astype(np.int16)
    return samples


@cache
def _codes(law: Law) -> NDArray[np.uint8]:
    """The code of each sample, indexed by the sample's 16 bits as an unsigned number."""
    sample = np.arange(2**16).astype(np.uint16).view(np.int16).astype(np.int64)
    negative = sample < 0
    # ~x mirrors the intervals so that a border still belongs to the interval above it.
    magnitude = np.where(negative, ~sample, sample)
    lowest, _ = _intervals(law)
    interval = np.searchsorted(lowest, magnitude, side="right") - 1
    if law == "pcmu":
        code = np.where(negative, interval | _SIGN, interval) ^ _MU_INVERTED
    else:
        code = np.where(negative, interval, interval | _SIGN) ^ _A_EVEN_BITS_INVERTED
    return code.astype(np.uint8)


def _intervals(law: Law) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each interval's lowest magnitude, ascending, and its size."""
    number = np.arange(128, dtype=np.int64)
    segment, step = number // 16, number % 16
    if law == "pcmu":
        # The first interval is symmetric about zero, so its output is zero.
        size = np.int64(8) * 2**segment
        return (16 + step) * size - _MU_BIAS, size
    # The first two segments have the same step size; after that it doubles.
    size = np.int64(16) * 2 ** np.maximum(segment - 1, 0)
    return np.where(segment == 0, step, step + 16) * size, size
