"""Words out of tokens: their times, and that what was told as settled stays."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.contract import Partial, Word
from pipeline.engines.stt.token_words import Tokens, settled, timed_words

PIECES = ("▁hel", "lo", "▁wor", "ld", ",", ".", "▁", "▁?", "▁a", "'s", "▁¿", "é")
IDS = st.lists(st.integers(0, len(PIECES) - 1), max_size=12)


def text_of(ids: Sequence[int]) -> str:
    """As NeMo does it: join, then no space before punctuation."""
    text = "".join(PIECES[each] for each in ids).replace("▁", " ").lstrip()
    return re.sub(r"(\s)([.,?¿])", r"\2", text)


def tokens(*spelled: tuple[str, int, int]) -> tuple[Tokens, list[str]]:
    pieces = [piece for piece, _, _ in spelled]
    frames = tuple(frame for _, frame, _ in spelled)
    durations = tuple(duration for _, _, duration in spelled)
    return Tokens(tuple(range(len(spelled))), frames, durations), pieces


def test_a_word_lasts_from_its_first_token_to_the_end_of_its_last() -> None:
    found, pieces = tokens(("▁hel", 2, 1), ("lo", 4, 2), ("▁wor", 9, 0), ("ld", 9, 3))
    assert timed_words(found, pieces, 0.08) == (
        Word("hello", pytest.approx(0.16), pytest.approx(0.48)),
        Word("world", pytest.approx(0.72), pytest.approx(0.96)),
    )


@pytest.mark.parametrize("stop", [".", "▁?"])
def test_punctuation_belongs_to_the_word_before_and_takes_no_time(stop: str) -> None:
    found, pieces = tokens(("▁hel", 0, 1), ("lo", 1, 2), (stop, 20, 4), ("▁a", 30, 1))
    words = timed_words(found, pieces, 1.0)
    assert words == (Word("hello" + stop.strip("▁"), 0, 3), Word("a", 30, 31))


def test_a_word_may_begin_with_an_empty_piece() -> None:
    found, pieces = tokens(("▁", 0, 1), ("hel", 1, 1), ("lo", 2, 1), ("▁", 5, 1), ("a", 6, 1))
    assert [word.text for word in timed_words(found, pieces, 1.0)] == ["hello", "a"]


def test_nothing_has_no_words() -> None:
    assert timed_words(Tokens(), [], 1.0) == ()


def test_the_last_word_is_tentative_until_another_begins() -> None:
    assert settled(text_of, Tokens((0, 1)), Tokens()) == Partial("", "hello")
    assert settled(text_of, Tokens((0, 1)), Tokens((4, 2))) == Partial("", "hello, wor")
    assert settled(text_of, Tokens((0, 1, 4, 2)), Tokens((3,))) == Partial("hello,", "world")
    assert settled(text_of, Tokens((0, 1, 6)), Tokens()) == Partial("", "hello")


@given(st.lists(st.tuples(IDS, IDS), max_size=8))
def test_what_is_committed_is_a_beginning_of_all_that_comes(
    passes: list[tuple[list[int], list[int]]],
) -> None:
    sure, before = Tokens(), ""
    for more, unsure in passes:
        sure += Tokens(tuple(more))
        partial = settled(text_of, sure, Tokens(tuple(unsure)))
        assert partial.committed.split()[: len(before.split())] == before.split()
        assert partial.text.startswith(before)
        assert partial.text == text_of((*sure.ids, *unsure)).strip()
        before = partial.committed
