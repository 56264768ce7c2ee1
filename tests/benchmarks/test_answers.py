"""The judge of answers: what it accepts, and that it refuses what only looks like an answer."""

from __future__ import annotations

import pytest

from benchmarks.answers.__main__ import Answered, figures
from benchmarks.answers.judge import MOST_WORDS, Question, on_topic, read, speakable

FROZEN, TUNING = read("frozen"), read("tuning")
BOTH = [*FROZEN, *TUNING]


def test_there_are_fifty_and_none_is_tuned_on() -> None:
    assert len(FROZEN) == 50
    assert not {q.ask for q in FROZEN} & {q.ask for q in TUNING}


@pytest.mark.parametrize("question", BOTH, ids=lambda question: question.ask)
def test_a_good_answer_is_accepted_and_an_echo_is_not(question: Question) -> None:
    assert on_topic(question, question.good)
    assert speakable(question.good)
    for answer in ("", question.ask, f"{question.ask} {question.ask}"):
        assert not on_topic(question, answer)
    assert on_topic(question, "I don't know.") == (question.kind == "unknown")


@pytest.mark.parametrize("questions", [FROZEN, TUNING])
def test_good_answers_of_other_questions_are_refused(questions: list[Question]) -> None:
    found = figures([Answered(question, question.good) for question in questions])
    assert found["worth"]["value"] == 1
    assert found["crossed"] < 0.03


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        ("It has eight legs.", True),
        ("It has 8.", True),
        ("It has eight or six.", False),
        ("It has eighty.", False),
        ("I don't know, maybe eight.", False),
    ],
)
def test_a_fact(answer: str, accepted: bool) -> None:
    (spider,) = (question for question in FROZEN if "spider" in question.ask)
    assert on_topic(spider, answer) == accepted


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        ("I don't know what time it is.", True),
        ("I am not sure.", True),
        ("I’m not able to tell.", True),
        ("I don't know, but it is ten o'clock.", False),
        ("It is late.", False),
    ],
)
def test_the_unknowable(answer: str, accepted: bool) -> None:
    (time,) = (question for question in FROZEN if question.ask == "What time is it?")
    assert on_topic(time, answer) == accepted


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "It begins well, and then",
        "word " * MOST_WORDS + "end.",
        "**Breakfast** is good.",
        "1. Wake up. 2. Eat.",
        "- one.\n- two.",
        "As an AI language model, I am fine.",
        "I see. I see.",
    ],
)
def test_what_cannot_be_spoken(answer: str) -> None:
    assert not speakable(answer)
