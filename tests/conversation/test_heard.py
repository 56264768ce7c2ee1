"""From seconds of audio that were heard to words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.conversation.chat import heard_text


def test_heard_text_is_cut_in_the_clause_that_was_playing() -> None:
    spoken = [("Hello there,", 1.0), (" my dear\n old friend.", 2.0)]
    assert heard_text(spoken, 0.0) == ""
    assert heard_text(spoken, 1.0) == "Hello there,"
    assert heard_text(spoken, 2.0) == "Hello there, my dear"
    assert heard_text(spoken, 9.0) == "Hello there, my dear\n old friend."


def test_long_words_take_longer_than_short_ones() -> None:
    spoken = (("I unquestionably do", 1.6),)
    assert heard_text(spoken, 0.2) == "I"
    assert heard_text(spoken, 0.9) == "I"
    assert heard_text(spoken, 1.4) == "I unquestionably"


def test_numbers_take_as_long_as_they_are_spoken() -> None:
    spoken = (("In 1984 we", 2.0),)
    assert heard_text(spoken, 1.0) == "In"
    assert heard_text(spoken, 1.8) == "In 1984"


CLAUSES = st.lists(st.tuples(st.text(" ab1,.\n", max_size=20), st.floats(0, 5)), max_size=5)


@given(CLAUSES, st.floats(0, 20), st.floats(0, 20))
def test_heard_text_is_a_growing_prefix(
    spoken: list[tuple[str, float]], one: float, other: float
) -> None:
    less, more = (heard_text(spoken, seconds) for seconds in sorted((one, other)))
    assert more.startswith(less)
    assert "".join(text for text, _ in spoken).startswith(more)
