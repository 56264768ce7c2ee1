"""Where a recording is cut for the recogniser."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.segments import LONGEST_S, PADDING_S, SpeechSegment, segments

pytestmark = pytest.mark.quick

WINDOW_S = 0.032


def scores(*parts: tuple[float, float]) -> list[float]:
    """Scores of runs, each given as seconds and score."""
    return [score for seconds, score in parts for _ in range(round(seconds / WINDOW_S))]


def test_a_short_pause_does_not_split() -> None:
    (found,) = segments(scores((1, 0.9), (0.3, 0.1), (1, 0.9), (1, 0.1)), WINDOW_S)
    assert (found.start, found.end) == (0.0, pytest.approx(2.3 + PADDING_S, abs=0.05))


def test_a_score_between_the_thresholds_changes_nothing() -> None:
    (found,) = segments(scores((1, 0.4), (1, 0.9), (1, 0.4), (1, 0.1)), WINDOW_S)
    assert found.start == pytest.approx(1 - PADDING_S, abs=0.05)
    assert found.end == pytest.approx(3 + PADDING_S, abs=0.05)


def test_long_speech_is_cut_at_its_lowest_score() -> None:
    parts = segments(scores((6, 0.9), (0.1, 0.6), (6, 0.9)), WINDOW_S)
    assert [part.start for part in parts] == [0.0, pytest.approx(6.0, abs=0.1)]


@given(st.lists(st.tuples(st.floats(0.01, 12), st.floats(0, 1)), max_size=12))
def test_all_speech_is_in_one_segment_or_another(parts: list[tuple[float, float]]) -> None:
    heard = scores(*parts)
    found = segments(heard, WINDOW_S)
    for one, other in itertools.pairwise([*found, SpeechSegment(len(heard) * WINDOW_S, 0)]):
        assert one.start < one.end <= other.start + 1e-6
        assert one.end - one.start <= LONGEST_S + 2 * PADDING_S + 1e-6
    for at, score in enumerate(heard):
        middle = (at + 0.5) * WINDOW_S
        assert score < 0.5 or any(part.start <= middle <= part.end for part in found)
