"""A client at the end of a network, in a room: it plays what it is sent, and its microphone hears
that again. For tests of the echo path in simulated time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.echo.kalman import Samples
from tests.support.echo_sound import hum, pcm, through

PIECE = LISTEN_RATE // 50
"""Of the microphone: 20 ms."""


@dataclass
class EchoingClient:
    """``response``: from loudspeaker to microphone. ``down_s``, ``up_s``: how long audio takes to
    the client's player, and from its microphone, at least."""

    response: Samples
    down_s: float = 0.12
    up_s: float = 0.02
    jitter_s: float = 0.01
    seed: int = 1
    said: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    """What a person says to it, by the microphone's samples."""
    played: Samples = field(default_factory=lambda: np.zeros(0, np.float32))

    def play(self, sound: Pcm, sent_s: float, more_s: float = 0.0) -> None:
        """``sound`` was sent at that time of the server's clock, and comes ``more_s`` later than
        others."""
        at = round((sent_s + self.down_s + more_s) * LISTEN_RATE)
        start = max(at, len(self.played))
        silence = np.zeros(start - len(self.played), np.float32)
        self.played = np.concatenate((self.played, silence, to_float(sound)))

    def heard(self, seconds: float) -> Iterator[tuple[Pcm, float]]:
        """Pieces of the microphone's stream from 0 on, and when the server has each."""
        count = round(seconds * LISTEN_RATE)
        whole = hum(count, self.seed)
        for sound in (through(self.played, self.response)[:count], self.said[:count]):
            whole[: len(sound)] += sound
        rng = np.random.default_rng(self.seed)
        for start in range(0, count - PIECE + 1, PIECE):
            late_s = self.up_s + float(rng.uniform(0, self.jitter_s))
            yield pcm(whole[start : start + PIECE]), (start + PIECE) / LISTEN_RATE + late_s
