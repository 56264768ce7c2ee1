"""Whisper's log-mel features in numpy, the input of Smart Turn.

The definition (25 ms Hann windows every 10 ms, 80 triangular filters of equal area on Slaney's
mel scale, 80 dB of range) is that of Radford et al. 2022, "Robust Speech Recognition via
Large-Scale Weak Supervision", section 2.2, and of the code released with it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE

WINDOW_SAMPLES = 400
HOP_SAMPLES = 160
BANDS = 80

_FLOOR = 1e-10
"""Smaller powers are raised to this before the logarithm."""
_RANGE_DECADES = 8.0
"""Values further than this below the loudest one are raised to that level (80 dB)."""

# Slaney's mel scale (Auditory Toolbox, 1998): linear up to 1 kHz, then 27 steps per factor 6.4.
_HERTZ_PER_MEL = 200 / 3
_KNEE_HERTZ = 1000.0
_LOG_STEP = np.log(6.4) / 27


def log_mel(samples: NDArray[np.float32], bands: int = BANDS) -> NDArray[np.float32]:
    """Features of 16 kHz audio, float32 of shape ``(bands, len(samples) // 160)``, about -1 to 1.

    ``samples``: float32, shape ``(n,)``, n > 200. Frame ``i`` is centred on sample ``160 * i``;
    the edges are mirrored.
    """
    decades = np.log10(np.maximum(mel_power(samples, bands), _FLOOR)).T
    clipped = np.maximum(decades, decades.max() - _RANGE_DECADES)
    return np.ascontiguousarray((clipped + 4) / 4, dtype=np.float32)


def mel_power(samples: NDArray[np.float32], bands: int) -> NDArray[np.float32]:
    """The power behind these features, float32 of shape ``(len(samples) // 160, bands)``."""
    return np.asarray(_power_spectrum(samples) @ mel_filters(bands), np.float32)


def _power_spectrum(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Shape ``(frames, 201)``. Like Whisper, leaves out the frame beyond the last whole hop."""
    padded = np.pad(samples, WINDOW_SAMPLES // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW_SAMPLES)[::HOP_SAMPLES]
    spectrum = np.fft.rfft(frames[: len(samples) // HOP_SAMPLES] * _hann(), axis=1)
    return np.asarray(spectrum.real**2 + spectrum.imag**2, dtype=np.float32)


@cache
def _hann() -> NDArray[np.float32]:
    """The periodic Hann window, which would reach zero one sample after its end."""
    phase = 2 * np.pi * np.arange(WINDOW_SAMPLES) / WINDOW_SAMPLES
    return (0.5 - 0.5 * np.cos(phase)).astype(np.float32)


@cache
def mel_filters(count: int, window_samples: int = WINDOW_SAMPLES) -> NDArray[np.float32]:
    """Weight of each frequency bin in each band, shape ``(window_samples // 2 + 1, count)``."""
    bins = np.fft.rfftfreq(window_samples, 1 / LISTEN_RATE)
    edges = _to_hertz(np.linspace(0, _to_mel(LISTEN_RATE / 2), count + 2))
    bands = [
        np.interp(bins, (low, centre, high), (0.0, 2 / (high - low), 0.0))
        for low, centre, high in zip(edges, edges[1:], edges[2:], strict=False)
    ]
    return np.stack(bands, axis=1).astype(np.float32)


def _to_mel(hertz: float) -> float:
    """Convert a frequency above the knee."""
    return float(_KNEE_HERTZ / _HERTZ_PER_MEL + np.log(hertz / _KNEE_HERTZ) / _LOG_STEP)


def _to_hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    above_knee = np.maximum(mel - _KNEE_HERTZ / _HERTZ_PER_MEL, 0)
    return np.where(
        above_knee > 0, _KNEE_HERTZ * np.exp(above_knee * _LOG_STEP), mel * _HERTZ_PER_MEL
    )
