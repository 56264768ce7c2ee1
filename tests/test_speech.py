"""What is spoken, and in which pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.speech import SpeechChunker, speakable


def pieces(*deltas: str) -> list[str]:
    chunker = SpeechChunker()
    spoken = [piece for delta in deltas for piece in chunker.feed(delta)]
    return spoken + list(chunker.flush())


def test_the_first_clause_leaves_early_and_sentences_follow() -> None:
    text = "Well done, that is a good question. It is, I think, about ten metres. Bye!"
    assert pieces(text) == [
        "Well done,",
        "that is a good question.",
        "It is, I think, about ten metres.",
        "Bye!",
    ]


def test_one_word_and_a_comma_is_too_little_for_a_first_clause() -> None:
    assert pieces("Yes, I can do that. Look!") == ["Yes, I can do that.", "Look!"]


def test_a_first_clause_without_punctuation_ends_after_a_few_words() -> None:
    assert pieces("one two three four five six seven eight nine ten.") == [
        "one two three four five six seven eight",
        "nine ten.",
    ]


@pytest.mark.parametrize("text", ["Dr. Smith is here.", "See e.g. this one.", "J. Bach wrote it."])
def test_abbreviations_do_not_end_a_sentence(text: str) -> None:
    assert pieces(text) == [text]


def test_decimal_numbers_are_not_torn() -> None:
    assert pieces("It is 3.5 metres, or so.") == ["It is 3.5 metres,", "or so."]


@given(st.text(alphabet="ab,. !?\n", max_size=80), st.lists(st.integers(0, 80), max_size=8))
def test_any_split_of_the_text_gives_the_same_pieces(text: str, cuts: list[int]) -> None:
    at = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    split = [text[a:b] for a, b in itertools.pairwise(at)]
    assert pieces(*split) == pieces(text)
    assert "".join("".join(pieces(text)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("**Hello** _there_!", "Hello there!"),
        ("# Title\n- one\n- two", "Title one two"),
        ("See [the docs](http://x.y/z).", "See the docs."),
        ("Run `ls` now", "Run ls now"),
        ("```python\nprint(1)\n```", ""),
        ("Nice 😀👍🏽 day", "Nice day"),
        ("😀", ""),
        ("...", ""),
        ("a_b and 2 * 3", "a_b and 2 3"),
    ],
)
def test_what_is_for_eyes_is_not_spoken(written: str, spoken: str) -> None:
    assert speakable(written) == spoken
