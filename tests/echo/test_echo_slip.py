"""How far to shift an expected echo to explain the captured audio."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.echo.kalman import BLOCK
from pipeline.echo.slip import FARTHEST, SlipFinder, moved
from tests.support.echo_sound import hum, power_db, speechlike

HELD = 1280
ECHO = speechlike(6, 1)


@given(st.integers(-FARTHEST, FARTHEST), st.integers(8000, 70_000), st.floats(6, 40))
@settings(max_examples=40)
def test_a_gap_is_found_to_the_sample_or_not_at_all(by: int, at: int, snr_db: float) -> None:
    expected = ECHO[at : at + HELD]
    heard = ECHO[at - by : at - by + HELD]
    level = 10 ** ((power_db(heard) - snr_db) / 20)
    found = moved(heard + hum(HELD, at, level), expected)
    assert found is None or abs(found - by) <= 1


@pytest.mark.parametrize("by", [160, -160, 37, -400])
def test_a_gap_in_noise_is_found(by: int) -> None:
    expected = hum(4 * HELD, 1, 0.1)[HELD : 2 * HELD]
    heard = hum(4 * HELD, 1, 0.1)[HELD - by : 2 * HELD - by] + hum(HELD, 2, 0.05)
    assert moved(heard, expected) == by


@pytest.mark.parametrize("seed", range(5))
def test_other_sound_is_no_gap(seed: int) -> None:
    other = speechlike(6, 100 + seed)
    spans = [slice(at, at + HELD) for at in range(8000, 80_000, 4000)]
    assert [moved(other[span], ECHO[span]) for span in spans] == [None] * len(spans)


def test_a_filter_that_never_worked_has_no_gaps_and_is_never_lost() -> None:
    finder = SlipFinder()
    for start in range(0, len(ECHO) - BLOCK, BLOCK):
        block = ECHO[start : start + BLOCK]
        assert finder.look(block, np.float32(0.2) * block[::-1], block) is None
        assert not finder.doubts
        assert not finder.lost
