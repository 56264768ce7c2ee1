"""The echo canceller on what the alignment delivers, with two clocks."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.sound.alignment import Alignment
from hardware.sound.ring import Piece
from pipeline.audio import LISTEN_RATE, to_float
from pipeline.echo.canceller import EchoCanceller
from tests.support.echo_sound import at_pace, hum, pcm, power_db, room, speechlike, through

STEP = 160


@pytest.mark.parametrize("ppm", [-100.0, 100.0])
def test_clocks_that_differ_are_followed(ppm: float) -> None:
    """Answers of 8 s, pauses of 2; time stamps are wrong by up to 1 ms."""
    rng = np.random.default_rng(17)
    pause = np.zeros(2 * LISTEN_RATE, np.float32)
    sound = np.concatenate([part for seed in range(7) for part in (speechlike(8, seed), pause)])
    played = pcm(0.5 * sound)
    heard = pcm(at_pace(through(to_float(played), room(20, 3)), ppm) + hum(len(played), 4))
    alignment, canceller = Alignment(LISTEN_RATE, LISTEN_RATE), EchoCanceller()
    blocks, left = [], []
    for first in range(0, len(played), STEP):
        at_s, mic_s = first / LISTEN_RATE, first * (1 + ppm * 1e-6) / LISTEN_RATE
        early, late = rng.uniform(-0.001, 0.001, 2)
        alignment.played(Piece(played[first : first + STEP], first, at_s + early))
        for block in alignment.heard(Piece(heard[first : first + STEP], first, mic_s + late)):
            if block.reference_moved is not None:
                canceller.realign(block.reference_moved)
            blocks.append(block)
            left.append(canceller.process(block.pcm, block.played).residual)
    assert sum(block.lost_samples for block in blocks) == 0
    assert canceller.ppm == pytest.approx(ppm, abs=4)
    last = slice(-900, -300)
    echo = to_float(np.concatenate([block.pcm for block in blocks[last]]))
    assert power_db(to_float(np.concatenate(left[last]))) < power_db(echo) - 18
