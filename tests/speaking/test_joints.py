"""Silence between pieces of speech: as much as the text asks for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import EMPTY, Pcm
from pipeline.speaking.clause_speech import Joint
from pipeline.speaking.tuning import JOINT_KEPT_BEFORE_MS, JOINT_MOST_BEFORE_MS
from pipeline.spoken.borders import Border

pytestmark = pytest.mark.quick

RATE = 1000
"""A sample is a millisecond."""


def silence(ms: int) -> Pcm:
    return np.zeros(ms, dtype=np.int16)


def sound(ms: int) -> Pcm:
    return np.full(ms, 3000, dtype=np.int16)


def trimmed(border: Border, *chunks: Pcm) -> list[tuple[bool, int]]:
    """(sound?, ms) of the played audio."""
    joint = Joint(RATE, border)
    played = np.concatenate([EMPTY, *(joint.feed(chunk) for chunk in chunks)])
    return [(loud, len(list(run))) for loud, run in itertools.groupby(played > 0)]


def test_the_first_sound_comes_at_once() -> None:
    for chunks in ([silence(50), sound(100)], [np.concatenate((silence(50), sound(100)))]):
        assert trimmed(Border.SENTENCE, *chunks) == [(False, JOINT_KEPT_BEFORE_MS), (True, 100)]


def test_a_sentence_keeps_the_pause_that_the_voice_gives_it() -> None:
    assert trimmed(Border.SENTENCE, sound(100), silence(400)) == [(True, 100), (False, 400)]


def test_where_the_sentence_goes_on_there_is_no_pause() -> None:
    assert trimmed(Border.WORD, sound(100), silence(90), silence(90)) == [(True, 100), (False, 20)]
    assert trimmed(Border.CLAUSE, sound(100), silence(290)) == [(True, 100), (False, 200)]


def test_pauses_within_a_piece_stay() -> None:
    chunks = (sound(10), silence(300), silence(100), sound(10), silence(300))
    assert trimmed(Border.WORD, *chunks) == [
        (True, 10),
        (False, 400),
        (True, 10),
        (False, 20),
    ]


def test_a_long_silence_in_front_is_meant() -> None:
    ((loud, played_ms),) = trimmed(Border.SENTENCE, silence(2 * JOINT_MOST_BEFORE_MS))
    assert not loud
    assert played_ms == JOINT_KEPT_BEFORE_MS
    (_, front_ms), _ = trimmed(Border.SENTENCE, *[silence(100)] * 10, sound(10))
    assert front_ms >= 1000 - JOINT_MOST_BEFORE_MS - 100


def test_nothing_is_played_of_nothing() -> None:
    assert trimmed(Border.WORD, silence(100)) == []
    assert trimmed(Border.WORD) == []


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 300)), max_size=8),
    st.lists(st.integers(0, 2000), max_size=8),
    st.sampled_from(list(Border)),
)
def test_chunks_make_no_difference_and_no_sound_is_lost(
    runs: list[tuple[bool, int]], cuts: list[int], border: Border
) -> None:
    # Louder or as quiet as can be: silence in front is short enough to be taken away whole.
    runs = [(loud, ms if loud else min(ms, 40)) for loud, ms in runs]
    whole = np.concatenate([EMPTY, *(sound(ms) if loud else silence(ms) for loud, ms in runs)])
    at = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    chunks = [whole[a:b] for a, b in itertools.pairwise(at)]
    played = trimmed(border, *chunks)
    assert played == trimmed(border, whole)
    assert sum(ms for loud, ms in played if loud) == int((whole > 0).sum())
