"""Conversion between sample rates that holds almost nothing back.

A turn's end waits for every sample that a filter holds. soxr works in blocks and holds 10 to 30 ms
of a stream even in its variable-rate mode; this short polyphase filter holds 2 ms at 16 kHz.
"""

from __future__ import annotations

from functools import cache
from math import ceil, gcd

import numpy as np
from numpy.typing import NDArray

_ZERO_CROSSINGS = 32
"""Of the windowed sinc on each side, at the lower of the two rates."""
_ROLL_OFF = 0.94
"""Cut-off as a fraction of the lower rate's half: what lies above is damped by more than 80 dB at
1.06 of it, so little aliases into what is heard."""
_KAISER_BETA = 9.0


class PolyphaseResampler:
    """Streaming, int16 mono. The same samples in any pieces give the same output.

    Output sample ``n`` is the input at time ``n / to_rate``: no delay, whatever is held back.
    """

    def __init__(self, from_rate: int, to_rate: int) -> None:
        divisor = gcd(from_rate, to_rate)
        self._up, self._down = to_rate // divisor, from_rate // divisor
        self._filters = _filters(self._up, self._down)
        self._half = self._filters.shape[1] // 2
        self._held = np.zeros(self._half, np.int16)
        """Input from ``_first`` on."""
        self._first = -self._half
        self._given = 0
        self._taken = 0

    def feed(self, pcm: NDArray[np.int16]) -> NDArray[np.int16]:
        """All output that the input so far determines."""
        self._taken += len(pcm)
        return self._convert(pcm, self._taken - self._half)

    def flush(self) -> NDArray[np.int16]:
        """What is still held, as if silence followed; the stream ends with it."""
        return self._convert(np.zeros(self._half, np.int16), self._taken)

    def _convert(self, pcm: NDArray[np.int16], until: int) -> NDArray[np.int16]:
        """Output up to input position ``until``."""
        self._held = np.concatenate((self._held, pcm))
        last = max(self._given, ceil(until * self._up / self._down))
        at = np.arange(self._given, last, dtype=np.int64) * self._down
        self._given = last
        if not len(at):
            return np.zeros(0, np.int16)
        whole, phase = at // self._up, at % self._up
        starts = whole - self._half + 1 - self._first
        windows = np.lib.stride_tricks.sliding_window_view(self._held, self._filters.shape[1])
        mixed = np.einsum("nt,nt->n", windows[starts].astype(np.float32), self._filters[phase])
        spent = int(starts[-1])
        self._held = self._held[spent:]
        self._first += spent
        rounded: NDArray[np.int16] = np.clip(np.rint(mixed), -32768, 32767).astype(np.int16)
        return rounded


@cache
def _filters(up: int, down: int) -> NDArray[np.float32]:
    """Shape ``(up, taps)``: weights of the input around each place between two samples."""
    half = ceil(_ZERO_CROSSINGS * max(1.0, down / up))
    cut_off = _ROLL_OFF * min(1.0, up / down)
    offsets = np.arange(1 - half, half + 1)[np.newaxis] - np.arange(up)[:, np.newaxis] / up
    window = np.i0(_KAISER_BETA * np.sqrt(np.maximum(0.0, 1 - (offsets / half) ** 2)))
    weights = np.sinc(cut_off * offsets) * window
    even: NDArray[np.float32] = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return even
