"""Rooms, noise, levels and small changes of speed, all seeded.

Signals are float32 arrays of shape ``(n,)`` at 16 kHz, where 1.0 is full scale. The caller passes
the random generator, so the same seed produces the same samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import soxr
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, Pcm

Signal = NDArray[np.float32]
"""Samples at 16 kHz, shape ``(n,)``, 1.0 is full scale."""

Mask = NDArray[np.bool_]
"""One flag a sample, shape ``(n,)``."""

NoiseKind = Literal["pink", "babble", "fan"]

ROOM_TONE_DBFS = -62.0
"""Level of a quiet room in recordings of people."""

Response = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Magnitudes at frequencies in Hz."""

_FULL_SCALE = 32768.0
_DIGITAL_SILENCE_DBFS = -85.0


def to_signal(pcm: Pcm) -> Signal:
    """int16 samples, shape ``(n,)``, as a signal."""
    return (pcm.astype(np.float32) / np.float32(_FULL_SCALE)).astype(np.float32)


def to_pcm(signal: Signal) -> Pcm:
    """The signal as int16, clipped at full scale like in a converter."""
    scaled = np.round(signal.astype(np.float64) * _FULL_SCALE)
    return np.clip(scaled, -_FULL_SCALE, _FULL_SCALE - 1).astype(np.int16)


def rms_dbfs(signal: Signal) -> float:
    """Level of the whole signal; -120 for silence."""
    if not len(signal):
        return -120.0
    return float(10 * np.log10(np.mean(signal.astype(np.float64) ** 2) + 1e-12))


def gained(signal: Signal, gain_db: float) -> Signal:
    """``signal`` louder by ``gain_db``."""
    return (signal * np.float32(10 ** (gain_db / 20))).astype(np.float32)


def at_speed(signal: Signal, factor: float) -> Signal:
    """``signal`` sped up by ``factor``; the pitch changes with it, as on a tape."""
    if factor == 1.0 or not len(signal):
        return signal
    result: Signal = soxr.resample(signal, LISTEN_RATE * factor, LISTEN_RATE, quality="HQ")
    return result


# --- noise -------------------------------------------------------------------------------------


def room_tone(samples: int, rng: np.random.Generator, level_dbfs: float = ROOM_TONE_DBFS) -> Signal:
    """The sound of a quiet room: noise that falls by 3 to 9 dB an octave. Never digital silence."""
    slope_db = float(rng.uniform(-9.0, -3.0))
    tone = _colour(samples, rng, lambda hz: (np.maximum(hz, 60.0) / 60.0) ** (slope_db / 6.02))
    return _with_floor(gained(tone, level_dbfs), rng)


def noise(kind: NoiseKind, samples: int, rng: np.random.Generator) -> Signal:
    """``samples`` of noise at 0 dBFS RMS (scale it with ``at_snr``).

    ``pink``: -3 dB an octave. ``fan``: rumble, a hum at the blades' rate and its harmonics, air.
    ``babble``: like many talkers in level and spectrum: eight streams of noise with the long-term
    spectrum of speech, each rising and falling three to six times a second.
    """
    if kind == "pink":
        return _colour(samples, rng, lambda hz: np.maximum(hz, 30.0) ** -0.5)
    return _fan(samples, rng) if kind == "fan" else _babble(samples, rng)


def at_snr(speech: Signal, active: Mask, sound: Signal, snr_db: float) -> Signal:
    """``sound``, scaled so that the active part of ``speech`` is ``snr_db`` above it."""
    if not active.any():
        raise ValueError("no speech to measure the signal-to-noise ratio over")
    return gained(sound, rms_dbfs(speech[active]) - rms_dbfs(sound) - snr_db)


def _colour(samples: int, rng: np.random.Generator, magnitude_at_hz: Response) -> Signal:
    """White noise through a magnitude response; 0 dBFS RMS."""
    length = 1 << max(samples, 16).bit_length()  # fast to transform
    spectrum = np.fft.rfft(rng.standard_normal(length))
    hz = np.asarray(np.fft.rfftfreq(length, 1 / LISTEN_RATE), dtype=np.float64)
    response = np.asarray(magnitude_at_hz(hz), dtype=np.float64)
    response[hz < 20.0] = 0.0
    coloured = np.fft.irfft(spectrum * response, length)[:samples]
    return _at_full_scale(coloured)


def _fan(samples: int, rng: np.random.Generator) -> Signal:
    time_s = np.arange(samples) / LISTEN_RATE
    blades_hz = float(rng.uniform(90.0, 160.0))
    hum = np.zeros(samples)
    for harmonic in range(1, 6):
        phase = float(rng.uniform(0, 2 * np.pi))
        hum += np.sin(2 * np.pi * blades_hz * harmonic * time_s + phase) / harmonic**1.2
    rumble = _colour(samples, rng, lambda hz: np.maximum(hz, 40.0) ** -1.0)
    air = _colour(samples, rng, lambda hz: 1 / (1 + (hz / 2000.0) ** 2))
    return _at_full_scale(0.6 * hum / hum.std() + 0.7 * rumble + 0.4 * air)


def _babble(samples: int, rng: np.random.Generator) -> Signal:
    whole = np.zeros(samples)
    for _ in range(8):
        voice = _colour(samples, rng, _speech_spectrum)
        whole += voice * _syllables(samples, rng)
    return _at_full_scale(whole)


def _speech_spectrum(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Long-term average of speech: flat from 100 to 500 Hz, then 9 dB an octave down
    (Byrne et al. 1994, J. Acoust. Soc. Am. 96, simplified)."""
    return np.asarray((hz > 100.0) * np.maximum(hz / 500.0, 1.0) ** -1.5, dtype=np.float64)


def _syllables(samples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """An envelope between 0 and 1 that rises three to six times a second."""
    count = max(2, int(samples / LISTEN_RATE * rng.uniform(6.0, 12.0)) + 2)
    knots = rng.uniform(0.0, 1.0, count)
    knots[1::2] *= 0.2
    places = np.linspace(0, count - 1, samples)
    return np.asarray(np.interp(places, np.arange(count), knots), dtype=np.float64)


def _at_full_scale(samples: NDArray[np.float64] | Signal) -> Signal:
    power = float(np.mean(np.asarray(samples, dtype=np.float64) ** 2)) if len(samples) else 1.0
    scaled: Signal = (samples / np.sqrt(power + 1e-20)).astype(np.float32)
    return scaled


def _with_floor(tone: Signal, rng: np.random.Generator) -> Signal:
    """Add dither of one step, so that a very soft tone leaves no run of int16 zeros."""
    dither = rng.uniform(-1.0, 1.0, len(tone)) + rng.uniform(-1.0, 1.0, len(tone))
    return (tone + dither / _FULL_SCALE).astype(np.float32)


def like_floor(signal: Signal, samples: int, rng: np.random.Generator) -> Signal:
    """Noise with the level and spectrum of the softest parts of ``signal``.

    Taken from the softest tenth of its 32 ms frames, digital silence excluded. A clip without any
    silence yields too loud a floor: the caller limits it.
    """
    size = 512
    if len(signal) < 4 * size:
        return np.zeros(samples, dtype=np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(signal, size)[:: size // 2]
    level_db = 10 * np.log10((frames.astype(np.float64) ** 2).mean(axis=1) + 1e-12)
    audible = np.flatnonzero(level_db > _DIGITAL_SILENCE_DBFS)
    softest = audible[np.argsort(level_db[audible])][: max(1, len(audible) // 10)]
    if not len(softest):
        return np.zeros(samples, dtype=np.float32)
    window = np.hanning(size)
    power = (np.abs(np.fft.rfft(frames[softest] * window, axis=1)) ** 2).mean(axis=0)
    bins_hz = np.fft.rfftfreq(size, 1 / LISTEN_RATE)
    coloured = _colour(samples, rng, lambda hz: np.sqrt(np.interp(hz, bins_hz, power)))
    return gained(coloured, float(10 * np.log10(np.mean(10 ** (level_db[softest] / 10)))))


# --- rooms -------------------------------------------------------------------------------------


def room_response(rt60_s: float, rng: np.random.Generator) -> Signal:
    """Impulse response of a room whose sound falls by 60 dB within ``rt60_s``.

    The first sample, 1.0, is the direct sound. From 3 ms on follows a tail of noise that fades
    exponentially and is softer at high frequencies; its energy is 0 to 6 dB below the direct sound,
    as about 1 m from the speaker in a living room.
    """
    length = int(rt60_s * LISTEN_RATE)
    tail = rng.standard_normal(length)
    soft = np.convolve(tail, np.array([0.25, 0.5, 0.25]), "same")
    blend = np.linspace(0.0, 1.0, length)
    decay = 10 ** (-3 * np.arange(length) / length)
    tail = ((1 - blend) * tail + blend * soft) * decay
    tail[: int(0.003 * LISTEN_RATE)] = 0.0
    under_direct_db = float(rng.uniform(0.0, 6.0))
    tail *= 10 ** (-under_direct_db / 20) / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    return tail.astype(np.float32)


def in_room(signal: Signal, response: Signal) -> Signal:
    """``signal`` heard through ``response``: same length and alignment, the tail cut off."""
    length = len(signal) + len(response) - 1
    size = 1 << (length - 1).bit_length()
    spectrum = np.fft.rfft(signal.astype(np.float64), size)
    spectrum *= np.fft.rfft(response.astype(np.float64), size)
    result: Signal = np.fft.irfft(spectrum, size)[: len(signal)].astype(np.float32)
    return result
