"""The filter learns a room, keeps near-end speech, and can be moved in time."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.echo.kalman import BLOCK, PARTITIONS, KalmanFilter, Samples
from tests.support.echo_sound import blocks, hum, power_db, room, seconds, speechlike, through


def filtered(filter_: KalmanFilter, reference: Samples, heard: Samples) -> tuple[Samples, Samples]:
    """Residual and echo."""
    found = [
        filter_.process(played, block)  # type: ignore[arg-type]
        for played, block in zip(blocks(reference), blocks(heard), strict=True)
    ]
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def test_a_loudspeaker_that_bends_is_followed_by_the_cube() -> None:
    reference = speechlike(10, 3)
    bent = through((np.tanh(2 * reference) / 2).astype(np.float32), room(30, 3))
    left, _ = filtered(KalmanFilter(), reference, bent + hum(len(bent), 3))
    assert power_db(seconds(left, 8, 10)) < power_db(seconds(bent, 8, 10)) - 20


@pytest.mark.parametrize(("level_db", "least_db"), [(6, 16), (0, 12), (-6, 8)])
def test_near_end_speech_is_kept(level_db: float, least_db: float) -> None:
    """Signal-to-noise ratio of the residual, where its noise is echo and what the filter took."""
    reference = speechlike(10, 4)
    echo = through(reference, room(40, 4))
    near = speechlike(10, 5)
    near[: 7 * 16_000] = 0
    near *= np.float32(10 ** ((power_db(echo) + level_db - power_db(seconds(near, 7, 10))) / 20))
    left, _ = filtered(KalmanFilter(), reference, echo + near + hum(len(echo), 4))
    wrong = seconds(left - near, 7.0, 10)
    assert power_db(seconds(near, 7, 10)) - power_db(wrong) > least_db


def test_noise_alone_does_not_make_it_unstable() -> None:
    rng = np.random.default_rng(7)
    reference = rng.uniform(-1, 1, 400 * BLOCK).astype(np.float32)
    heard = rng.uniform(-1, 1, 400 * BLOCK).astype(np.float32)
    left, _ = filtered(KalmanFilter(), reference, heard)
    assert power_db(left) < power_db(heard) + 2.5


def learnt() -> tuple[KalmanFilter, Samples, Samples]:
    """A filter after 4 s, and one second more of both sounds."""
    reference = speechlike(5, 8)
    echo = through(reference, room(50, 8)) + hum(len(reference), 8)
    filter_ = KalmanFilter()
    filtered(filter_, seconds(reference, 0, 4), seconds(echo, 0, 4))
    return filter_, reference, echo


@pytest.mark.parametrize("blocks_later", [1, -1, 2])
def test_moved_by_blocks_it_expects_the_same_echo(blocks_later: int) -> None:
    filter_, reference, echo = learnt()
    for _ in range(abs(blocks_later)):
        filter_.later() if blocks_later > 0 else filter_.earlier()
    end = 64_000 - blocks_later * BLOCK
    filter_.refill(reference[end - (PARTITIONS + 1) * BLOCK : end])
    left = []
    for start in range(64_000, 72_000, BLOCK):
        played = reference[start - blocks_later * BLOCK :][:BLOCK]
        left.append(filter_.process(played, echo[start : start + BLOCK])[0])
    assert power_db(np.concatenate(left)) < power_db(echo[64_000:72_000]) - 12


def test_blocks_without_learning_keep_the_weights() -> None:
    filter_, reference, echo = learnt()
    before = filter_.weights
    for start in range(64_000, 72_000, BLOCK):
        block = slice(start, start + BLOCK)
        filter_.process(reference[block], -echo[block], learns=False)
    change = np.abs(filter_.weights - before).max() / np.abs(before).max()
    assert change < 0.05  # only the constraint has its turn
