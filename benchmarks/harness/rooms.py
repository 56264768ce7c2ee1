"""Rooms for echo scenes: shoeboxes by the image-source method, loudspeakers, clocks. Seeded.

Signals are float32, 16 kHz, shape ``(n,)``, 1.0 is full scale. Image sources as in Allen and
Berkley 1979, with a high-pass as there; the walls' absorption by Eyring's formula, so that sound
decays by 60 dB in RT60.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.acoustics import Signal
from pipeline.audio import LISTEN_RATE

SPEED_OF_SOUND = 343.0
LONGEST_RESPONSE_S = 0.45
RUMBLE_HZ = 80.0
"""Below this, image sources add up to far more than a room does: they all have the same sign."""
Loudspeaker = Literal["tanh 2", "tanh 4", "clip 0.4"]
LOUDSPEAKERS: tuple[Loudspeaker, ...] = ("tanh 2", "tanh 4", "clip 0.4")
LOW_HZ, HIGH_HZ = 180.0, 7200.0
"""The pass band of a small loudspeaker."""

Place = NDArray[np.float64]
"""Metres from a corner, shape ``(3,)``."""


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """``size`` in metres, shape ``(3,)``."""

    size: Place
    rt60_s: float
    microphone: Place
    loudspeaker: Place
    talker: Place

    def response(self, source: Place, microphone: Place | None = None) -> Signal:
        """Impulse response from ``source``; its first sample is the time of emission."""
        at = self.microphone if microphone is None else microphone
        return _images(self.size, self.rt60_s, source, at)


def draw_room(rng: np.random.Generator) -> Room:
    """Loudspeaker 8 to 25 cm from the microphone, talker 0.5 to 1.8 m, RT60 0.2, 0.4 or 0.6 s."""
    size = rng.uniform([3.0, 2.8, 2.4], [6.5, 5.0, 3.0])
    rt60_s = float(rng.choice([0.2, 0.4, 0.6]))
    microphone = rng.uniform([1.0, 1.0, 0.7], size - np.array([1.0, 1.0, 1.0]))
    loudspeaker = _near(microphone, float(rng.uniform(0.08, 0.25)), size, rng)
    talker = _near(microphone, float(rng.uniform(0.5, 1.8)), size, rng)
    return Room(size, rt60_s, microphone, loudspeaker, talker)


def _near(place: Place, distance: float, size: Place, rng: np.random.Generator) -> Place:
    """A random place at ``distance`` inside the room, beside ``place`` rather than above it."""
    while True:
        direction = rng.standard_normal(3) * [1.0, 1.0, 0.4]
        position: Place = place + distance * direction / np.linalg.norm(direction)
        if (position > 0.2).all() and (position < size - 0.2).all():
            return position


def _images(size: Place, rt60_s: float, source: Place, at: Place) -> Signal:
    seconds = min(rt60_s, LONGEST_RESPONSE_S)
    farthest = seconds * SPEED_OF_SOUND
    surface = 2 * (size[0] * size[1] + size[0] * size[2] + size[1] * size[2])
    reflection = np.exp(-0.161 * float(np.prod(size)) / (surface * rt60_s))  # 1 - absorption
    axes = [_along(size[axis], source[axis], at[axis], farthest) for axis in range(3)]
    (dx, nx), (dy, ny), (dz, nz) = axes
    flat = dx[:, np.newaxis] ** 2 + dy[np.newaxis] ** 2
    near = np.nonzero(flat < farthest**2)
    squared = flat[near][:, np.newaxis] + dz[np.newaxis] ** 2
    bounces = (nx[:, np.newaxis] + ny[np.newaxis])[near][:, np.newaxis] + nz[np.newaxis]
    inside = squared < farthest**2
    distance = np.sqrt(squared[inside])
    strength = reflection ** (bounces[inside] / 2) / distance
    place = distance / SPEED_OF_SOUND * LISTEN_RATE
    whole = place.astype(np.int64)
    part = place - whole
    count = int(seconds * LISTEN_RATE) + 2
    response = np.bincount(whole, strength * (1 - part), count)
    response[1:] += np.bincount(whole, strength * part, count)[: count - 1]
    filtered = _without_rumble(np.asarray(response[:count], np.float64))
    result = _with_decay(filtered, rt60_s).astype(np.float32)
    result[-LISTEN_RATE // 50 :] *= np.linspace(1, 0, LISTEN_RATE // 50, dtype=np.float32)
    return result


def _without_rumble(response: NDArray[np.float64]) -> NDArray[np.float64]:
    """A Butterworth high-pass of second order."""
    size = 2 * len(response)
    s = 1j * np.fft.rfftfreq(size, 1 / LISTEN_RATE) / RUMBLE_HZ
    spectrum = np.fft.rfft(response, size) * s**2 / (s**2 + np.sqrt(2) * s + 1)
    return np.fft.irfft(spectrum, size)[: len(response)]


def _with_decay(response: NDArray[np.float64], rt60_s: float) -> NDArray[np.float64]:
    """Scale the tail's decay, from 30 ms on, to RT60: in a box that is not a cube, sound along the
    longest side lasts longer than the formula says."""
    frame = LISTEN_RATE // 50
    frames = response[: len(response) // frame * frame].reshape(-1, frame)
    level_db = 10 * np.log10(np.square(frames).mean(axis=1) + 1e-30)
    times_s = np.arange(len(level_db)) * 0.02
    late = (times_s >= 0.03) & (level_db > level_db.max() - 60)
    if np.count_nonzero(late) < 3:
        return response
    slope_db = float(np.polyfit(times_s[late], level_db[late], 1)[0])
    more_db = min(0.0, -60 / rt60_s - slope_db)
    result: NDArray[np.float64] = response * 10 ** (
        more_db / 20 * np.arange(len(response)) / LISTEN_RATE
    )
    return result


def _along(
    length: float, source: float, at: float, farthest: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Along one axis: each image's distance from the microphone, and how many walls it crosses."""
    most = int(np.ceil(farthest / (2 * length))) + 1
    turns = np.arange(-most, most + 1)
    ways = [
        (source + 2 * turns * length - at, 2 * np.abs(turns)),
        (-source + 2 * turns * length - at, np.abs(turns - 1) + np.abs(turns)),
    ]
    distance = np.concatenate([way[0] for way in ways])
    walls = np.concatenate([way[1] for way in ways])
    near = np.abs(distance) < farthest
    return distance[near], walls[near]


# --- the loudspeaker ---------------------------------------------------------------------------


def through_loudspeaker(signal: Signal, loudspeaker: Loudspeaker) -> Signal:
    """``signal``, peaking at about 0.7, as the loudspeaker plays it: distorted and band-limited."""
    return in_band(distort(signal, loudspeaker))


def distort(signal: Signal, loudspeaker: Loudspeaker) -> Signal:
    """The loudspeaker's distortion, applied sample by sample."""
    if loudspeaker == "tanh 2":
        return np.asarray(np.tanh(2 * signal) / 2, np.float32)
    if loudspeaker == "tanh 4":
        return np.asarray(np.tanh(4 * signal) / 4, np.float32)
    return np.asarray(np.clip(signal, -0.4, 0.4), np.float32)


def in_band(signal: Signal) -> Signal:
    """Apply the frequency response of small drivers and converters."""
    size = _fast(len(signal))
    spectrum = np.fft.rfft(signal, size)
    hz = np.fft.rfftfreq(size, 1 / LISTEN_RATE).astype(np.float32)
    # Second order at the low end like drivers, and steep at the high end like converters.
    low = 1 / (1 + (LOW_HZ / np.maximum(hz, 1.0)) ** 4)
    high = 1 / (1 + (hz / HIGH_HZ) ** 32)
    band = np.fft.irfft(spectrum * np.sqrt(low * high).astype(np.float32), size)
    return np.asarray(band[: len(signal)], np.float32)


def through(signal: Signal, response: Signal) -> Signal:
    """``signal`` heard through ``response``, at the same length."""
    size = _fast(len(signal) + len(response))
    spectrum = np.fft.rfft(signal, size) * np.fft.rfft(response, size)
    result: Signal = np.fft.irfft(spectrum, size)[: len(signal)].astype(np.float32)
    return result


def _fast(length: int) -> int:
    """The next length with a fast transform."""
    size = 1 << (length - 1).bit_length()
    return next((n for n in (size * 5 // 8, size * 3 // 4) if n >= length), size)
