"""The echo canceller on what the alignment delivers, with two clocks."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.sound.alignment import Alignment
from hardware.sound.ring import Piece
from pipeline.audio import LISTEN_RATE, Resampler, to_float
from pipeline.echo.canceller import EchoCanceller
from tests.support.echo_sound import at_pace, hum, pcm, power_db, room, speechlike, through

STEP = 160


@pytest.mark.parametrize(
    ("ppm", "microphone_hz", "speaker_hz"),
    [
        (-100.0, 16_000, 16_000),
        (100.0, 16_000, 16_000),
        (100.0, 44_100, 44_100),
        (-100.0, 44_100, 48_000),
        (100.0, 32_000, 44_100),
    ],
)
def test_clocks_that_differ_are_followed(ppm: float, microphone_hz: int, speaker_hz: int) -> None:
    """Answers of 8 s, pauses of 2; time stamps are wrong by up to 1 ms."""
    rng = np.random.default_rng(17)
    pause = np.zeros(2 * LISTEN_RATE, np.float32)
    sound = np.concatenate([part for seed in range(7) for part in (speechlike(8, seed), pause)])
    played = pcm(0.5 * sound)
    heard = pcm(at_pace(through(to_float(played), room(20, 3)), ppm) + hum(len(played), 4))
    alignment, canceller = Alignment(microphone_hz, speaker_hz), EchoCanceller()
    blocks, left = [], []
    out = Resampler(LISTEN_RATE, speaker_hz).feed(played)
    in_ = Resampler(LISTEN_RATE, microphone_hz).feed(heard)
    for step in range(len(played) // STEP - 1):
        begin, end = step * speaker_hz // 100, (step + 1) * speaker_hz // 100
        early, late = rng.uniform(-0.001, 0.001, 2)
        alignment.played(Piece(out[begin:end], begin, begin / speaker_hz + early))
        begin, end = step * microphone_hz // 100, (step + 1) * microphone_hz // 100
        mic_s = begin * (1 + ppm * 1e-6) / microphone_hz
        for block in alignment.heard(Piece(in_[begin:end], begin, mic_s + late)):
            if block.reference_moved is not None:
                canceller.realign(block.reference_moved)
            blocks.append(block)
            left.append(canceller.process(block.pcm, block.played).residual)
    assert sum(block.lost_samples for block in blocks) == 0
    assert canceller.ppm == pytest.approx(ppm, abs=4)
    last = slice(-900, -300)
    echo = to_float(np.concatenate([block.pcm for block in blocks[last]]))
    assert power_db(to_float(np.concatenate(left[last]))) < power_db(echo) - 18
