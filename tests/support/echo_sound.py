"""Sound for the tests of the echo path: speech-like signals, a small room, and both of its ends."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.echo.canceller import EchoCanceller, EchoFree
from pipeline.echo.kalman import BLOCK, Samples


def speechlike(seconds: float, seed: int) -> Samples:
    """Syllables of a gliding buzz with hiss between them; peak 0.7, a whole number of blocks."""
    rng = np.random.default_rng(seed)
    count = int(seconds * LISTEN_RATE) // BLOCK * BLOCK
    time_s = np.arange(count) / LISTEN_RATE
    knots = np.arange(0, seconds + 0.3, 0.12)
    pitch = np.interp(time_s, knots, rng.uniform(90, 200, len(knots)))
    loud = np.interp(time_s, knots, rng.uniform(0, 1, len(knots)) ** 2)
    hiss = np.interp(time_s, knots, rng.uniform(0, 0.3, len(knots)) ** 2)
    turns = np.cumsum(pitch) / LISTEN_RATE
    buzz = np.zeros(count)
    for number in range(1, 36):
        tilt = rng.uniform(0.3, 1) / number**0.7
        buzz += tilt * np.cos(2 * np.pi * number * turns) * (number * pitch < 7500)
    sound = loud * buzz / 4 + hiss * rng.standard_normal(count)
    return np.asarray(0.7 * sound / np.abs(sound).max(), np.float32)


def room(delay_ms: float, seed: int, level: float = 0.3) -> Samples:
    """An impulse response: direct sound and a decaying tail."""
    rng = np.random.default_rng(seed)
    count, rt60_s = LISTEN_RATE // 4, 0.3
    tail = rng.standard_normal(count) * 10 ** (-3 * np.arange(count) / (rt60_s * LISTEN_RATE))
    tail *= 0.5 / np.sqrt(np.square(tail).sum())
    tail[0] = 1
    silence = np.zeros(round(delay_ms * LISTEN_RATE / 1000))
    return (level * np.concatenate((silence, tail))).astype(np.float32)


def through(sound: Samples, response: Samples) -> Samples:
    size = 1 << (len(sound) + len(response)).bit_length()
    spectrum = np.fft.rfft(sound, size) * np.fft.rfft(response, size)
    return np.fft.irfft(spectrum, size)[: len(sound)].astype(np.float32)


def hum(samples: int, seed: int, level: float = 1e-4) -> Samples:
    """White noise, -80 dBFS by default."""
    return (level * np.random.default_rng(seed).standard_normal(samples)).astype(np.float32)


def at_pace(sound: Samples, ppm: float) -> Samples:
    """``sound`` resampled for a clock this much faster: cubic interpolation, the last sample
    repeated."""
    count = len(sound)
    place = np.arange(count) * (1 + ppm * 1e-6)
    whole = np.minimum(place.astype(int), count - 3)
    part = (place - whole).astype(np.float32)
    padded = np.concatenate((sound[:1], sound, sound[-2:]))
    before, here, after, next_after = (padded[whole + offset] for offset in range(4))
    bend = 3 * (here - after) + next_after - before
    slope = 2 * before - 5 * here + 4 * after - next_after
    moved: Samples = here + 0.5 * part * (after - before + part * (slope + part * bend))
    return moved.astype(np.float32)


def pcm(sound: Samples) -> Pcm:
    return np.clip(np.rint(sound * 32768), -32768, 32767).astype(np.int16)


def blocks(sound: NDArray[np.generic]) -> Iterator[NDArray[np.generic]]:
    for start in range(0, len(sound) - BLOCK + 1, BLOCK):
        yield sound[start : start + BLOCK]


def cleaned(canceller: EchoCanceller, microphone: Pcm, reference: Pcm) -> list[EchoFree]:
    pairs = zip(blocks(microphone), blocks(reference), strict=True)
    return [canceller.process(heard, played) for heard, played in pairs]  # type: ignore[arg-type]


def residual(found: list[EchoFree]) -> Samples:
    return to_float(np.concatenate([each.residual for each in found]))


def post_filtered(found: list[EchoFree]) -> Samples:
    return to_float(np.concatenate([each.post_filtered for each in found]))


def power_db(sound: Samples) -> float:
    return float(10 * np.log10(np.mean(np.square(sound, dtype=np.float64)) + 1e-15))


def seconds(sound: Samples, begin_s: float, end_s: float) -> Samples:
    return sound[int(begin_s * LISTEN_RATE) : int(end_s * LISTEN_RATE)]
