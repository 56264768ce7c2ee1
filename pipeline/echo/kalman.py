"""A Kalman filter that learns the echo path from loudspeaker to microphone and removes the echo.

Partitioned-block frequency-domain Kalman filter after Enzner and Vary 2006 and Kuech et al. 2014,
with two references: the loudspeaker's signal, and its cube for a small loudspeaker's distortion.
16 kHz mono, blocks of 160 samples, a room response of 320 ms. Constants were measured for this
project (``tuning``). Pure; numpy; about 0.1 ms of CPU per block of 10 ms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.echo import tuning

Samples = NDArray[np.float32]
"""Mono samples, float32, shape ``(n,)``, 1.0 is full scale."""
Spectra = NDArray[np.complex64]
Reals = NDArray[np.float32]

BLOCK = 160
"""Samples at 16 kHz, 10 ms."""
PARTITIONS = 32
"""The filter's length in blocks: 320 ms."""
BRANCHES = 2
FRAME = 2 * BLOCK
BINS = FRAME // 2 + 1
_TINY = 1e-8


def _to_spectrum() -> Reals:
    """Transform of a frame's first half: shape ``(160, 2 * 161)``, real parts, imaginary parts."""
    angles = 2 * np.pi * np.outer(np.arange(BLOCK), np.arange(BINS)) / FRAME
    return np.concatenate((np.cos(angles), -np.sin(angles)), axis=1).astype(np.float32)


_TO_SPECTRUM = _to_spectrum()
_SECOND: Reals = np.tile((-1.0) ** np.arange(BINS), 2).astype(np.float32)
_ROWS = BRANCHES * PARTITIONS
_ONES: Reals = np.ones((2, _ROWS), np.float32)
"""Two rows although one would do: for one, BLAS uses its threads, which spin."""
_REAL_AND_IMAGINARY: Reals = np.repeat(
    np.array([[1, -1, 0, 0], [0, 0, 1, 1]], np.float32), _ROWS, axis=1
)


class KalmanFilter:
    """One loudspeaker and one microphone.

    Spectra are stored with real and imaginary parts on the first axis, ``(2, branches, partitions,
    bins)``: numpy multiplies those much faster than complex by real numbers.
    """

    def __init__(self) -> None:
        shape = (BRANCHES, PARTITIONS, BINS)
        self._weights: Reals = np.zeros((2, *shape), np.float32)
        self._variance: Reals = np.full(shape, tuning.FILTER_COLD_VARIANCE, np.float32)
        # Each spectrum is written twice, so that the newest 32 always lie side by side.
        self._spectra: Reals = np.zeros((2, BRANCHES, 2 * PARTITIONS, BINS), np.float32)
        self._power: Reals = np.zeros((BRANCHES, 2 * PARTITIONS, BINS), np.float32)
        self._newest = 0
        self._branches: Reals = np.zeros((BRANCHES, BLOCK), np.float32)
        self._before: Reals = np.zeros((BRANCHES, 2 * BINS), np.float32)
        self._both: Reals = np.zeros((2, BLOCK), np.float32)
        self._noise: Reals = np.zeros(BINS, np.float32)
        self._blocks = 0
        self._full: Reals = np.empty((2, 2, *shape), np.float32)
        self._part: Reals = np.empty((2, *shape), np.float32)

    # --- the filter itself ---------------------------------------------------------------------

    def process(
        self, reference: Samples, microphone: Samples, learns: bool = True
    ) -> tuple[Samples, Samples]:
        """Take the next block of each, shape ``(160,)``. Returns the residual and the echo removed;
        learns from the residual if ``learns``."""
        self._take(reference)
        window = slice(self._newest, self._newest + PARTITIONS)
        spectra, power = self._spectra[:, :, window], self._power[:, window]
        echo = self._echo(spectra)
        error = microphone - echo
        if learns:
            self._learn(spectra, power, error)
        turn, rest = divmod(self._blocks, tuning.FILTER_CONSTRAINED_EVERY)
        if not rest:
            self._constrain(turn * tuning.FILTER_CONSTRAINED % PARTITIONS)
        self._blocks += 1
        return error, echo

    def _take(self, reference: Samples) -> None:
        """The spectrum of two consecutive blocks is the first block's plus the second's shifted by
        half a frame, which flips the sign of every other bin."""
        branches = self._branches
        branches[0] = reference
        np.multiply(reference, reference, out=branches[1])
        branches[1] *= reference
        branches[1] *= np.float32(tuning.FILTER_CUBE_GAIN)
        spectra = branches @ _TO_SPECTRUM
        self._before += spectra * _SECOND
        self._newest = (self._newest - 1) % PARTITIONS
        self._write(self._newest, self._before.reshape(BRANCHES, 2, BINS))
        self._before = spectra

    def _write(self, slot: int, spectrum: Reals) -> None:
        """``spectrum``: shape ``(branches, 2, bins)``."""
        squares = spectrum * spectrum
        power = squares[:, 0] + squares[:, 1]
        parts = spectrum.transpose(1, 0, 2)
        for place in (slot, slot + PARTITIONS):
            self._spectra[:, :, place] = parts
            self._power[:, place] = power

    def _echo(self, spectra: Reals) -> Samples:
        np.multiply(self._weights, spectra, out=self._full[0])
        np.multiply(self._weights, spectra[::-1], out=self._full[1])
        # A product with ones: numpy's own sums over rows take three times as long.
        halves = _REAL_AND_IMAGINARY @ self._full.reshape(-1, BINS)
        total = np.empty(BINS, np.complex64)
        total.real, total.imag = halves
        # They are of this type already, but not to the type checker.
        return np.fft.irfft(total, FRAME)[BLOCK:].astype(np.float32, copy=False)

    def _learn(self, spectra: Reals, power: Reals, error: Samples) -> None:
        self._both[0] = error
        real, imaginary = ((self._both @ _TO_SPECTRUM)[0] * _SECOND).reshape(2, BINS)
        self._noise *= np.float32(tuning.FILTER_NOISE_SMOOTHING)
        self._noise += np.float32(1 - tuning.FILTER_NOISE_SMOOTHING) * (
            real * real + imaginary * imaginary
        )
        variance = np.multiply(self._variance, power, out=self._part[0])
        unsure: Reals = (_ONES @ variance.reshape(-1, BINS))[0]
        share = 1 / (unsure + 2 * self._noise + np.float32(_TINY))
        real *= share
        imaginary *= share
        # weights = stays * (weights + variance * conj(spectra) * share * error)
        change, other = self._full
        np.multiply(spectra[0], real, out=change[0])
        np.multiply(spectra[1], -real, out=change[1])
        np.multiply(spectra[::-1], imaginary, out=other)
        change += other
        change *= self._variance
        self._weights += change
        self._weights *= np.float32(tuning.FILTER_STAYS)
        # variance = stays^2 * (1 - mu * power / 2) * variance + (1 - stays^2) * |weights|^2
        stays = np.float32(tuning.FILTER_STAYS**2)
        share *= -0.5 * stays
        variance *= share
        variance += stays
        self._variance *= variance
        np.multiply(self._weights, self._weights, out=change)
        growth = np.add(change[0], change[1], out=self._part[1])
        growth *= np.float32(1 - tuning.FILTER_STAYS**2)
        self._variance += growth

    def _constrain(self, first: int) -> None:
        """Clear the second half of some partitions; all have had their turn after 16 blocks."""
        some = slice(first, first + tuning.FILTER_CONSTRAINED)
        spectra = np.empty((BRANCHES, tuning.FILTER_CONSTRAINED, BINS), np.complex64)
        spectra.real, spectra.imag = self._weights[:, :, some]
        response = np.fft.irfft(spectra, FRAME)
        response[..., BLOCK:] = 0
        bins = np.fft.rfft(response)
        self._weights[0, :, some] = bins.real
        self._weights[1, :, some] = bins.imag

    # --- for the canceller: the state, and shifts of it -----------------------------------------

    @property
    def weights(self) -> Spectra:
        """Copy, complex64, shape ``(2, 32, 161)``: branch, partition (newest first), bin."""
        together = np.empty(self._weights.shape[1:], np.complex64)
        together.real, together.imag = self._weights
        return together

    def warm(self, weights: Spectra) -> None:
        """Start from an earlier session's weights."""
        self.replace(weights)
        self._variance[:] = tuning.FILTER_WARM_VARIANCE

    def replace(self, weights: Spectra) -> None:
        """Take other weights; the variance stays."""
        self._weights[0], self._weights[1] = weights.real, weights.imag

    def doubt(self) -> None:
        """Reset the variance, so that the filter learns quickly again."""
        self._variance[:] = tuning.FILTER_COLD_VARIANCE

    def later(self) -> None:
        """The reference comes one block later from now on: drop the response's first block."""
        for array in (self._weights, self._variance):
            array[..., :-1, :] = array[..., 1:, :].copy()
        self._weights[..., -1, :] = 0

    def earlier(self) -> None:
        """The reference comes one block earlier from now on: prepend a block of zeros."""
        for array in (self._weights, self._variance):
            array[..., 1:, :] = array[..., :-1, :].copy()
        self._weights[..., 0, :] = 0

    def refill(self, reference: Samples) -> None:
        """Replace the reference's history with its newest ``33 * 160`` samples."""
        blocks = reference.reshape(PARTITIONS + 1, BLOCK)
        both = np.stack((blocks, np.float32(tuning.FILTER_CUBE_GAIN) * blocks**3), axis=1)
        self._newest = 0
        self._before = both[0] @ _TO_SPECTRUM
        for slot, branches in zip(reversed(range(PARTITIONS)), both[1:], strict=True):
            spectra = branches @ _TO_SPECTRUM
            self._before += spectra * _SECOND
            self._write(slot, self._before.reshape(BRANCHES, 2, BINS))
            self._before = spectra

    def forget_sound(self) -> None:
        """Clear the reference's history, as after a long silence; the weights stay."""
        self._spectra[:] = self._power[:] = self._before[:] = 0
