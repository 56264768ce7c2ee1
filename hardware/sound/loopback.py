"""Measures the delay and level of a chirp's echo. Pure; 16 kHz."""

from __future__ import annotations

from dataclasses import dataclass
from math import log10

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, Pcm

CHIRP_S = 0.5
_FROM_HZ, _TO_HZ = 300.0, 6_000.0
_AMPLITUDE = 8_000
"""-12 dBFS peak: clearly audible, but not startling."""
_EDGE_S = 0.01
_MOST_DELAY_S = 0.5
_FRAME_S, _ASLEEP = 0.02, 8.0
"""A frame is missing if its power is less than an eighth (9 dB) of the other's."""
_STANDS_OUT = 8.0
"""Times the matched filter's RMS. The greatest of 8,000 noise values is about 4 times."""


@dataclass(frozen=True, slots=True)
class LoopbackEcho:
    delay_samples: int
    """Behind the played chirp."""
    return_loss_db: float
    """How much quieter the echo is."""


def chirp() -> Pcm:
    """Half a second from 300 Hz to 6 kHz; int16, 16 kHz."""
    at_s = np.arange(round(CHIRP_S * LISTEN_RATE)) / LISTEN_RATE
    growth = np.log(_TO_HZ / _FROM_HZ)
    phase = 2 * np.pi * _FROM_HZ * CHIRP_S / growth * (np.exp(at_s / CHIRP_S * growth) - 1)
    edge = np.clip(np.minimum(at_s, CHIRP_S - at_s) / _EDGE_S, 0, 1)
    sweep: Pcm = (np.sin(phase) * edge * _AMPLITUDE).astype(np.int16)
    return sweep


def find_echo(played: Pcm, heard: Pcm, noise_power: float) -> LoopbackEcho | None:
    """``played``: the chirp as given to the loudspeaker. ``heard``: starts at the same sample, and
    is at least half a second longer. ``noise_power``: the microphone's variance without the
    chirp. None if no echo stands out."""
    delays = round(_MOST_DELAY_S * LISTEN_RATE)
    match = _match(played.astype(np.float64), heard.astype(np.float64))[:delays]
    at = int(np.argmax(np.abs(match)))
    rest = np.delete(match, slice(max(0, at - 40), at + 400))
    if np.abs(match[at]) < _STANDS_OUT * max(float(np.sqrt(np.mean(rest**2))), 1e-9):
        return None
    back = heard[at : at + len(played)].astype(np.float64)
    power = max(float(np.var(back)) - noise_power, 1e-3)
    return LoopbackEcho(at, 10 * log10(float(np.mean(played.astype(np.float64) ** 2)) / power))


def lost_start_s(first: Pcm, later: Pcm) -> float:
    """How much of a chirp's beginning ``first``, its echo after silence, lacks and ``later`` has:
    the loudspeaker had fallen asleep. Both are as long as the chirp."""
    size = round(_FRAME_S * LISTEN_RATE)
    powers = [
        np.var(echo[: len(echo) // size * size].reshape(-1, size), axis=1, dtype=np.float64)
        for echo in (first, later)
    ]
    there = np.flatnonzero(powers[0] * _ASLEEP > powers[1])
    return _FRAME_S * (int(there[0]) if len(there) else len(powers[0]))


def _match(needle: NDArray[np.float64], hay: NDArray[np.float64]) -> NDArray[np.float64]:
    size = 1 << (len(needle) + len(hay)).bit_length()
    cross = np.fft.irfft(np.fft.rfft(hay, size) * np.conj(np.fft.rfft(needle, size)), size)
    return cross[: max(1, len(hay) - len(needle) + 1)]
