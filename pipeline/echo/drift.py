"""Clock drift: the loudspeaker's and the microphone's clocks differ by up to about 100 ppm.

``PlayedSound`` reads the reference at the microphone's pace. ``Drift`` estimates the error of that
pace from how the phase of the learned room turns. Constants: ``tuning``. Pure; numpy.
"""

from __future__ import annotations

import numpy as np

from pipeline.echo import tuning
from pipeline.echo.kalman import BLOCK, FRAME, Reals, Samples, Spectra

_TAPS = 32
_PHASES = 256
_KAISER_BETA = 8.0
_HALF = _TAPS // 2
LEAST_LAG = _HALF + 1.0
"""Samples that the taps reach ahead."""
MOST_LAG = LEAST_LAG + 1.25 * BLOCK
FIRST_LAG = LEAST_LAG + 0.4 * BLOCK
"""5 ms: buffers keep every loudspeaker further away than this, and drift may go either way."""
_KEPT = 8192


def _taps() -> Reals:
    """Shape ``(256, 32)``: interpolation weights for each of 256 positions between two samples."""
    place = np.arange(_PHASES)[:, np.newaxis] / _PHASES
    offsets = np.arange(1 - _HALF, _HALF + 1)[np.newaxis] - place
    window = np.i0(_KAISER_BETA * np.sqrt(np.maximum(0.0, 1 - (offsets / _HALF) ** 2)))
    weights = np.sinc(offsets) * window
    even: Reals = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return even


_FILTERS = _taps()
_RAMP: Samples = (np.arange(BLOCK) / BLOCK).astype(np.float32)


class PlayedSound:
    """The reference, read ``lag`` samples behind its newest, at an adjustable pace."""

    def __init__(self) -> None:
        self.ppm = 0.0
        """How much faster the reference runs than the microphone. ``lag`` shrinks accordingly;
        ``EchoCanceller`` keeps it within range."""
        self.lag = FIRST_LAG
        self._drift = 0.0
        self._past: Samples = np.zeros(2 * _KEPT, np.float32)
        self._end = _KEPT

    def push(self, block: Samples) -> None:
        """The next 160 samples that were played."""
        if self._end + BLOCK > len(self._past):
            self._past[:_KEPT] = self._past[self._end - _KEPT : self._end]
            self._end = _KEPT
        self._past[self._end : self._end + BLOCK] = block
        self._end += BLOCK

    def read(self) -> Samples:
        """The 160 samples that end ``lag`` behind the newest; then adjust the lag for the pace."""
        begin = self._end - BLOCK - self.lag
        self.skip()
        end = self._end - BLOCK - self.lag
        first = self._from(begin)
        if round(begin * _PHASES) == round(end * _PHASES):
            return first
        last = self._from(end)
        last -= first
        last *= _RAMP
        last += first
        return last

    def skip(self) -> None:
        """Let 10 ms pass: the clocks drift."""
        step = BLOCK * self.ppm * 1e-6
        self.lag -= step
        self._drift += step

    def begin_again(self) -> None:
        """Undo the drift since the last call: the next sound is aligned anew."""
        self.lag += self._drift
        self._drift = 0.0

    def before(self, blocks: int) -> Samples:
        """What ``read`` would have returned for the newest blocks at the current lag and pace."""
        begin = self._end - self.lag
        parts = [
            self._from(begin - (back + 1) * BLOCK * (1 + self.ppm * 1e-6))
            for back in reversed(range(blocks))
        ]
        return np.concatenate(parts)

    def clear(self) -> None:
        self._past[:] = 0

    def _from(self, begin: float) -> Samples:
        """160 samples from a fractional position on, at the reference's own pace."""
        whole, phase = divmod(round(begin * _PHASES), _PHASES)
        taps = _FILTERS[phase]
        first = whole - _HALF + 1
        part: Samples = np.correlate(self._past[first : first + BLOCK + _TAPS - 1], taps, "valid")
        return part


# --- by how much the pace is wrong -------------------------------------------------------------

_FIRST_BIN, _END_BIN = 8, 100
"""400 Hz to 5 kHz."""
_OMEGA = 2 * np.pi * np.arange(_FIRST_BIN, _END_BIN) / FRAME


class Drift:
    """Watches one filter."""

    def __init__(self) -> None:
        self._before: Spectra | None = None
        self._looks = 0

    def look(self, weights: Spectra, sure: bool) -> float:
        """ppm to add to the pace. Call it every 250 ms with ``KalmanFilter.weights``.

        ``sure``: whether the filter has learned since, and removes most of the echo.
        """
        now = weights[0, :, _FIRST_BIN:_END_BIN]
        before, self._before = self._before, now
        if before is None or not sure:
            return 0.0
        cross = np.einsum("pf,pf->f", now, before.conj())
        step = slope(cross)
        if abs(step) > tuning.DRIFT_MOST_STEP:
            return 0.0
        self._looks += 1
        gain = next(
            (gain for until, gain in tuning.DRIFT_GAINS if self._looks <= until),
            tuning.DRIFT_LATER_GAIN,
        )
        return gain * step / (tuning.DRIFT_MEASURED_BLOCKS * BLOCK) * 1e6

    def forget(self) -> None:
        """Start over: the filter was replaced."""
        self._before = None


def slope(cross: Spectra) -> float:
    """Samples by which the room response moved earlier, from the cross spectrum of bins 8 to 99."""
    weight = np.abs(cross) * _OMEGA
    total = float(np.dot(weight, _OMEGA))
    return float(np.dot(weight, np.angle(cross))) / total if total > 0 else 0.0
