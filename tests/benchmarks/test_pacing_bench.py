"""Whose a gap in the played audio is."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.pacing import Found, StutteringTts, listen, ours
from tests.support.virtual_time import run_virtual


@pytest.mark.parametrize("any_time", [False, True])
def test_a_minute_without_a_gap_of_ours(any_time: bool) -> None:
    found: Found = run_virtual(listen(60, 7, any_time))
    assert found.answers > 0
    assert found.gaps_ms == []


def voice(made: list[tuple[float, float]], busy: list[tuple[float, float]]) -> StutteringTts:
    tts = StutteringTts(np.random.default_rng(1), made=made, busy=busy)
    tts.player.send(1.0, now=0.0)
    return tts


def test_a_voice_that_works_and_has_given_all_is_late_itself() -> None:
    assert not ours(voice([(0.0, 1.0)], [(-0.5, 0.0), (0.0, 1.4)]), dry_at=1.0, gap_s=0.4)


def test_audio_that_is_kept_back_is_ours() -> None:
    made = [(0.0, 1.0), (0.5, 1.4)]
    assert ours(voice(made, [(-0.5, 0.0), (0.0, 0.5), (0.5, 1.4)]), dry_at=1.0, gap_s=0.4)


def test_a_voice_that_was_idle_was_asked_too_late() -> None:
    assert ours(voice([(0.0, 1.0)], [(-0.5, 0.0), (0.6, 1.4)]), dry_at=1.0, gap_s=0.4)
    assert not ours(voice([(0.0, 1.0)], [(-0.5, 0.0), (0.1, 1.4)]), dry_at=1.0, gap_s=0.4)
