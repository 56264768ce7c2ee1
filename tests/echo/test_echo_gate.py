"""A filter's residual: echo and noise are explained, near-end speech is not."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.echo.gate import EchoGate
from pipeline.echo.kalman import BLOCK, Samples
from tests.support.echo_sound import blocks, hum, power_db, seconds, speechlike


def gated(gate: EchoGate, residual: Samples, echo: Samples) -> tuple[Samples, list[float]]:
    found = [
        gate.process(left, taken)  # type: ignore[arg-type]
        for left, taken in zip(blocks(residual), blocks(echo), strict=True)
    ]
    return np.concatenate([sound for sound, _ in found]), [llr for _, llr in found]


def left_over(echo: Samples, seed: int) -> Samples:
    """20 dB under the echo, of its loudness but not of its phases, and some noise."""
    count = len(echo)
    flipped = np.random.default_rng(seed).choice([-0.1, 0.1], count // 40 + 1)
    return echo * np.repeat(flipped, 40)[:count].astype(np.float32) + hum(count, seed)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_residual_echo_is_explained_and_removed(seed: int) -> None:
    echo = 0.1 * speechlike(8, seed)
    residual = left_over(echo, seed)
    sound, llr = gated(EchoGate(), residual, echo)
    late = llr[400:]
    assert np.mean(np.array(late) > 2) < 0.03
    assert power_db(seconds(sound, 4, 8)) < power_db(seconds(residual, 4, 8)) - 6


@pytest.mark.parametrize("under_db", [0, 6, 12])
def test_near_end_speech_stands_out(under_db: float) -> None:
    """Softer than the echo by so much."""
    echo = 0.1 * speechlike(8, 4)
    near = 0.1 * 10 ** (-under_db / 20) * speechlike(8, 5)
    near[: 5 * 16_000] = 0
    residual = left_over(echo, 4) + near.astype(np.float32)
    sound, llr = gated(EchoGate(), residual, echo)
    assert np.mean(np.array(llr[510:700]) > 2) > 0.5
    late = seconds(sound, 5, 8)[BLOCK:]
    kept = np.corrcoef(late, seconds(near, 5, 8)[:-BLOCK])[0, 1]
    assert kept > 0.8


def test_there_is_no_click_where_playing_begins() -> None:
    heard = np.concatenate((hum(16_000, 7, 1e-3), speechlike(1, 7)))
    gate = EchoGate()
    found = []
    for number, block in enumerate(blocks(heard)):
        if number < 150:
            found.append(gate.pass_through(block))  # type: ignore[arg-type]
        else:
            found.append(gate.process(block, np.zeros(BLOCK, np.float32))[0])  # type: ignore[arg-type]
    sound = np.concatenate(found)
    border = slice(150 * BLOCK - 40, 152 * BLOCK + 40)
    wanted = np.concatenate((np.zeros(BLOCK, np.float32), heard))[border]
    assert power_db(sound[border] - wanted) < power_db(wanted) - 6
