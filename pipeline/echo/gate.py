"""Estimates the echo that the filter left, and whether there is speech as well: gate, post-filter.

A filter never removes all of an echo. The remainder is estimated from the echo itself: a correction
per frequency that adapts within 70 ms (people move), and a leakage in each of 20 mel bands that
adapts slowly. Anything louder is near-end speech. Constants: ``tuning``.
Pure; numpy; about 0.05 ms of CPU per block of 10 ms.
"""

from __future__ import annotations

from collections import deque
from math import log

import numpy as np

from pipeline.echo import tuning
from pipeline.echo.kalman import BINS, BLOCK, FRAME, Reals, Samples, Spectra

BANDS = 20
_RATE = 16_000


def _powers(*steps_db: float) -> Reals:
    return np.array([10 ** (step_db / 10) for step_db in steps_db], np.float32)


_LEARNING_STEPS = _powers(0, -tuning.GATE_LEARNING_DOWN_DB, tuning.GATE_LEARNING_UP_DB)
_STEPS = _powers(0, -tuning.GATE_STEP_DB, tuning.GATE_STEP_DB)
"""Factors for a band without echo, with less residual than expected, with more."""
_NOISE_STEPS = _powers(-tuning.GATE_NOISE_DOWN_DB, tuning.GATE_NOISE_UP_DB)
_MOST_LLR = 15.0
_SILENCE = 1e-9
"""Power that counts as silence in a band: about one step of a sample."""


def _mel_bands() -> Reals:
    """Triangles, shape ``(20, 161)``."""

    def mel(hz: float) -> float:
        return 2595 * float(np.log10(1 + hz / 700))

    edges = 700 * (
        10 ** (np.linspace(mel(tuning.GATE_LOW_HZ), mel(tuning.GATE_HIGH_HZ), BANDS + 2) / 2595) - 1
    )
    hz = np.arange(BINS) * _RATE / FRAME
    rise = (hz - edges[:-2, np.newaxis]) / np.diff(edges)[:-1, np.newaxis]
    fall = (edges[2:, np.newaxis] - hz) / np.diff(edges)[1:, np.newaxis]
    bands: Reals = np.maximum(0, np.minimum(rise, fall)).astype(np.float32)
    empty = np.flatnonzero(bands.sum(axis=1) == 0)
    centres = np.rint(edges[1:-1] * FRAME / _RATE).astype(int)
    bands[empty, centres[empty]] = 1
    return bands


def _to_bins() -> Reals:
    """Band gains to bin gains, shape ``(161, 20)``; bins beyond the edges take the nearest band."""
    weights = _BANDS.T.copy()
    filled = np.flatnonzero(weights.sum(axis=1) > 0)
    weights[: filled[0]] = weights[filled[0]]
    weights[filled[-1] + 1 :] = weights[filled[-1]]
    for at in np.flatnonzero(weights.sum(axis=1) == 0):
        weights[at] = weights[at - 1]
    even: Reals = weights / weights.sum(axis=1, keepdims=True)
    return even


_BANDS = _mel_bands()
_TO_BINS = _to_bins()
_WINDOW: Samples = np.sqrt(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / FRAME)).astype(
    np.float32
)
"""Square root of a periodic Hann window: applied twice, its overlapping halves add up to 1."""

_ANGLES = 2 * np.pi * np.outer(np.arange(FRAME), np.arange(BINS)) / FRAME
_TO_SPECTRUM: Reals = np.concatenate((np.cos(_ANGLES), -np.sin(_ANGLES)), axis=1).astype(np.float32)
_TO_SPECTRUM *= _WINDOW[:, np.newaxis]
"""Window and transform, shape ``(320, 2 * 161)``: real parts, imaginary parts."""
_SECOND_HALF: Samples = _WINDOW[BLOCK:] ** 2


class EchoGate:
    """Judges the residual of one filter, block by block."""

    def __init__(self) -> None:
        self._frames: Reals = np.zeros((2, FRAME), np.float32)
        self._cross: Spectra = np.zeros(BINS, np.complex64)
        self._echo_power: Reals = np.zeros(BINS, np.float32)
        self._residual: Reals = np.zeros(BANDS, np.float32)
        self._echo: Reals = np.zeros(BANDS, np.float32)
        self._noise: Reals | None = None
        self._leakage: Reals = np.ones(BANDS, np.float32)
        self._heard_blocks = 0
        self._tail: Samples = np.zeros(BLOCK, np.float32)
        self._newest: deque[float] = deque(
            [0.0] * tuning.GATE_MEAN_BLOCKS, maxlen=tuning.GATE_MEAN_BLOCKS
        )
        self._closed_blocks = 0
        self._idle_blocks = 0

    def process(self, residual: Samples, echo: Samples) -> tuple[Samples, float]:
        """Take the next block of the residual and of the echo removed. Returns the post-filtered
        sound, shape ``(160,)``, delayed by 10 ms; and the log likelihood ratio, mean over 40 ms,
        0 (echo and noise explain everything) to 15."""
        self._frames[:, :BLOCK] = self._frames[:, BLOCK:]
        self._frames[0, BLOCK:] = residual
        self._frames[1, BLOCK:] = echo
        residual_spectra, echo_spectra = self._spectra()
        sound = self._correct(residual_spectra, echo_spectra)
        power = sound.real**2 + sound.imag**2
        floor = self._follow(_BANDS @ power, _BANDS @ (echo_spectra.real**2 + echo_spectra.imag**2))
        expected = self._leakage * self._echo + np.float32(tuning.GATE_NOISE_FACTOR) * floor
        ratio = np.maximum(self._residual / expected, 1)
        each = np.minimum(ratio - 1 - np.log(ratio), _MOST_LLR)
        gain = np.sqrt(np.maximum(1 - tuning.GATE_OVER / ratio, tuning.GATE_LEAST_GAIN**2))
        return self._filter(sound, gain), self._mean_llr(float(each.sum()) / BANDS)

    def pass_through(self, residual: Samples, learns: bool = True) -> Samples:
        """Take a block while nothing is played, and only delay it by 10 ms, as ``process`` does.
        ``learns``: whether it is the room's noise."""
        before = self._frames[0, BLOCK:].copy()
        self._frames[0, :BLOCK] = before
        self._frames[0, BLOCK:] = residual
        self._tail = residual * _SECOND_HALF
        if not learns:
            return before
        self._idle_blocks += 1
        if self._idle_blocks % tuning.GATE_IDLE_EVERY == 0:
            self._frames[1] = 0
            self._echo[:] = self._echo_power[:] = 0
            self._cross[:] = 0
            spectra = self._spectra()[0]
            self._residual[:] = _BANDS @ (spectra.real**2 + spectra.imag**2)
            self._follow_noise(tuning.GATE_IDLE_EVERY)
        return before

    def close(self, blocks: int) -> None:
        """Count everything as echo for this many blocks."""
        self._closed_blocks = max(self._closed_blocks, blocks)

    @property
    def leakage_db(self) -> Reals:
        """Residual over echo in each band, float32, shape ``(20,)``."""
        return np.asarray(10 * np.log10(self._leakage), np.float32)

    def warm(self, leakage_db: Reals) -> None:
        """Start from an earlier session's leakage."""
        self._leakage = np.asarray(10 ** (leakage_db / 10), np.float32)
        self._heard_blocks = tuning.GATE_LEARNING_BLOCKS

    def learn_again(self) -> None:
        """The filter was replaced: learn its leakage from scratch."""
        self._heard_blocks = 0

    def _spectra(self) -> Spectra:
        """Spectra of both frames. A matrix product is faster than two transforms this short."""
        parts = self._frames @ _TO_SPECTRUM
        spectra = np.empty((2, BINS), np.complex64)
        spectra.real, spectra.imag = parts[:, :BINS], parts[:, BINS:]
        return spectra

    def _correct(self, residual: Spectra, echo: Spectra) -> Spectra:
        """Subtract what still correlates with the echo in each frequency."""
        smoothing = np.float32(tuning.GATE_CORRECTION_SMOOTHING)
        conjugate = echo.conj()
        self._cross *= smoothing
        self._cross += (1 - smoothing) * (residual * conjugate)
        self._echo_power *= smoothing
        self._echo_power += (1 - smoothing) * (echo * conjugate).real
        rest: Spectra = residual - echo * (self._cross / (self._echo_power + _SILENCE))
        return rest

    def _follow(self, residual: Reals, echo: Reals) -> Reals:
        """Update levels and leakage; return the noise floor."""
        self._residual += np.float32(1 - tuning.GATE_RESIDUAL_SMOOTHING) * (
            residual - self._residual
        )
        np.maximum(self._echo * np.float32(tuning.GATE_ECHO_DECAY), echo, out=self._echo)
        floor = self._follow_noise(1)
        audible = self._echo > np.float32(tuning.GATE_AUDIBLE) * floor
        if not audible.any():
            return floor
        steps = _LEARNING_STEPS if self._heard_blocks < tuning.GATE_LEARNING_BLOCKS else _STEPS
        self._heard_blocks += 1
        more = self._residual > self._leakage * self._echo
        self._leakage *= steps[(more.view(np.int8) + 1) * audible]
        return floor

    def _follow_noise(self, blocks: int) -> Reals:
        """The noise floor after this many more blocks."""
        if self._noise is None:
            self._noise = np.maximum(self._residual, np.float32(_SILENCE))
        up = self._residual > self._noise
        self._noise *= (_NOISE_STEPS if blocks == 1 else _NOISE_STEPS**blocks)[up.view(np.int8)]
        return np.maximum(self._noise, np.float32(_SILENCE), out=self._noise)

    def _filter(self, spectrum: Spectra, gain: Reals) -> Samples:
        sound = np.fft.irfft(spectrum * (_TO_BINS @ gain), FRAME).astype(np.float32, copy=False)
        sound *= _WINDOW
        ready: Samples = self._tail + sound[:BLOCK]
        self._tail = sound[BLOCK:]
        return ready

    def _mean_llr(self, llr: float) -> float:
        if self._closed_blocks:
            self._closed_blocks -= 1
            self._newest.append(0.0)
            return 0.0
        self._newest.append(llr)
        return sum(self._newest) / tuning.GATE_MEAN_BLOCKS


def near_end(residual_score: float, post_filtered_score: float, llr: float) -> bool:
    """Whether one window of 32 ms has near-end speech. Speech scores (0 to 1) of the residual and
    of the post-filtered residual, and the likelihood ratio (0 to 15) of the block that ended with
    them.

    A VAD mistakes residual echo for speech; a likelihood ratio mistakes a burst of echo for a
    speaker. They are seldom wrong together. Adding up their evidence lets a confident one make up
    for a hesitant one. In 5.1 h of simulated robot speech this was wrong a third as often as a
    vote, and noticed 15 to 20 percentage points more interruptions within 250 ms.
    """
    if llr <= tuning.DETECTOR_LEAST_LLR:
        return False
    louder = min(llr, tuning.DETECTOR_SURE_LLR) - tuning.DETECTOR_LEAST_LLR
    odds = _log_odds(post_filtered_score) + 0.5 * _log_odds(residual_score)
    return odds + 0.5 * louder > tuning.DETECTOR_THRESHOLD


def _log_odds(score: float) -> float:
    return log((score + tuning.DETECTOR_NEVER_SURE) / (1 + tuning.DETECTOR_NEVER_SURE - score))
