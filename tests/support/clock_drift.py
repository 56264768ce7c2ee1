"""Two clocks that differ: an echo through a resampler, and what the echo canceller makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.sound.alignment import Alignment, SoundBlock
from hardware.sound.ring import Piece
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.echo.canceller import EchoCanceller
from tests.support.virtual_sound import RATE

Samples = NDArray[np.float64]
_CUSHION_S = 0.060
"""What the air holds besides its own delay: 100 ppm slow use up 60 ms in ten minutes."""
AIR_MS = 60


class Stretch:
    """Streaming interpolation of 48 kHz by a few ppm: a cubic through four samples is good to
    -80 dB below 4 kHz."""

    def __init__(self, ppm: float) -> None:
        self._step = 1 / (1 + ppm * 1e-6)
        self._held: Samples = np.zeros(4)
        self._at = 1.0

    def feed(self, samples: Samples) -> Samples:
        held = np.concatenate((self._held, samples))
        count = max(0, int((len(held) - 3 - self._at) / self._step) + 1)
        places = self._at + np.arange(count) * self._step
        places = places[places < len(held) - 2]
        whole = places.astype(int)
        t = places - whole
        a, b, c, d = (held[whole + offset] for offset in (-1, 0, 1, 2))
        out: Samples = b + 0.5 * t * (
            c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a))
        )
        self._at += len(places) * self._step
        spent = int(self._at) - 1
        self._held, self._at = held[spent:], self._at - spent
        return out


class DriftingEcho:
    """What ``Air`` puts between loudspeaker and microphone: 12 dB quieter, too fast by ``ppm``."""

    def __init__(self, ppm: float) -> None:
        self._stretch = Stretch(ppm)
        self._cushion = np.zeros(round(_CUSHION_S * RATE), np.int16)

    def __call__(self, pcm: Pcm) -> Pcm:
        out = np.rint(self._stretch.feed(np.multiply(pcm, 0.25, dtype=np.float64))).astype(np.int16)
        cushion, self._cushion = self._cushion, self._cushion[:0]
        return np.concatenate((cushion, out))


class Listening:
    """The echo canceller, as ``talk`` feeds it, and how much it leaves."""

    def __init__(self) -> None:
        self._canceller = EchoCanceller()
        self._powers: list[tuple[float, float]] = []
        self._ppms: list[float] = []
        self.lost_samples = 0
        self.moves: list[int] = []

    def take(self, block: SoundBlock) -> None:
        self.lost_samples += block.lost_samples
        if block.reference_moved is not None:
            self.moves.append(block.reference_moved)
            self._canceller.realign(block.reference_moved)
        free = self._canceller.process(block.pcm, block.played)
        if not free.idle:
            self._powers.append((_power(block.pcm), _power(free.residual)))
        if len(self._powers) % 1000 == 0:
            self._ppms.append(self._canceller.ppm)

    def report(self) -> dict[str, Any]:
        """``erle_db``: of tenths of the time in which something was played."""
        powers = np.array(self._powers)
        tenths = np.array_split(powers, 10) if len(powers) >= 10 else [powers]
        return {
            "erle_db": [
                round(float(10 * np.log10(part[:, 0].sum() / max(part[:, 1].sum(), 1e-9))), 1)
                for part in tenths
                if len(part)
            ],
            "ppm_found": round(self._canceller.ppm, 1),
            "slips": self._canceller.slips,
            "reference_moved_samples": self.moves,
        }


def _power(pcm: Pcm) -> float:
    samples = pcm.astype(np.float64)
    return float(samples @ samples)


def offline(hours: float, ppm: float) -> dict[str, Any]:
    """The pure pairing, and the canceller, on two clocks and stamps that are wrong by up to 1 ms;
    a room of 40 ms. Answers of 8 s, pauses of 2. No card, no real time."""
    rng = np.random.default_rng(17)
    pairing, listening = Alignment(LISTEN_RATE, LISTEN_RATE), Listening()
    room = rng.normal(size=640) * np.exp(-np.arange(640) / 100)
    room *= 0.25 / np.sqrt(np.sum(room**2))
    air = _Air(ppm, room)
    late: list[float] = []
    step = 160
    for first in range(0, round(hours * 3600 * LISTEN_RATE), step):
        played = air.play(first, step, rng)
        # The loudspeaker's clock is the true one; the microphone's is too fast by ppm.
        at_s = first / LISTEN_RATE
        pairing.played(Piece(played, first, at_s + 0.015 + float(rng.uniform(-1, 1)) / 1000))
        for number, heard in air.heard(round((first + step) * (1 + ppm * 1e-6))):
            mic_s = number / (LISTEN_RATE * (1 + ppm * 1e-6))
            stamp_s = mic_s + float(rng.uniform(-1, 1)) / 1000
            for block in pairing.heard(Piece(heard, number, stamp_s)):
                now_s = at_s + 2 * step / LISTEN_RATE
                late.append(1000 * (now_s - block.captured_at))
                listening.take(block)
    part = max(1, len(late) // 10)
    return {
        "ppm": ppm,
        "hours": hours,
        "lost_samples": listening.lost_samples,
        "late_ms": {
            "first tenth": round(float(np.mean(late[:part])), 2),
            "last tenth": round(float(np.mean(late[-part:])), 2),
        },
        "moves": len(listening.moves),
        **{k: v for k, v in listening.report().items() if k != "reference_moved_samples"},
    }


class _Air:
    """What is played, through a room, at the microphone's pace; 16 kHz, in memory of 2 s."""

    def __init__(self, ppm: float, room: Samples) -> None:
        self._stretch = Stretch(ppm)
        self._room = room
        self._tail: Samples = np.zeros(len(room) - 1)
        self._ready: Samples = np.zeros(0)
        self._number = 0
        self._low: Samples = np.zeros(63)
        self._taps = _low_pass(63)

    def play(self, first: int, count: int, rng: np.random.Generator) -> Pcm:
        """10 ms of what the loudspeaker is given; its sound is at the membrane 15 ms later."""
        speaks = (first // LISTEN_RATE) % 10 < 8
        white = rng.normal(size=count) * (4000 if speaks else 0)
        wave = np.convolve(np.concatenate((self._low, white)), self._taps, "valid")[:count]
        self._low = np.concatenate((self._low, white))[-63:]
        played: Pcm = np.rint(wave).astype(np.int16)
        with_tail: Samples = np.concatenate((self._tail, played.astype(np.float64)))
        self._tail = with_tail[-(len(self._room) - 1) :]
        echo = np.convolve(with_tail, self._room, "valid")
        if first == 0:
            echo = np.concatenate((np.zeros(240), echo))
        self._ready = np.concatenate((self._ready, self._stretch.feed(echo)))
        return played

    def heard(self, until: int) -> list[tuple[int, Pcm]]:
        """Pieces of 10 ms whose time has come."""
        pieces = []
        while len(self._ready) >= 160 and self._number + 160 <= until:
            pieces.append((self._number, np.rint(self._ready[:160]).astype(np.int16)))
            self._ready = self._ready[160:]
            self._number += 160
        return pieces


def _low_pass(taps: int) -> Samples:
    """Up to about 3 kHz at 16 kHz: the cubic is good there."""
    at = np.arange(taps + 1) - taps / 2
    shape: Samples = np.sinc(at * 0.35) * np.hanning(taps + 1) * 0.35
    return shape
