"""Answers that are owed, noise in the wrong moment, and what was heard of a cut answer."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline import events
from pipeline.conversation.prompt import CUT_OFF
from reachy_voice.testing import AT_ONCE, Cast
from tests.support.talk_script import Story, brain, cast, ears, perform, sure_of_more, voice

pytestmark = pytest.mark.quick

TIME = "What time is it?"


def gaps_ms(story: Story) -> list[int]:
    return [int(row.split()[-2]) for row in story.table() if "after a gap" in row]


def test_history_keeps_no_words_that_were_not_heard() -> None:
    """Each word takes 200 ms; the second piece has ten, and is interrupted near its end."""
    engines = cast()
    engines.llm.deltas = ("It is noon, ", "and I am very hungry. ", "Do you want some lunch? ")
    first = perform(f"0 1024 {TIME}", engines)
    audio = max(first.end_ms(), 1299)
    begins = (audio + 2_250) // 32 * 32 - 64
    story = perform(f"0 1024 {TIME}\n{begins} 512 No, thank you.", engines, settings=AT_ONCE)
    assert f"{begins + 64} answer cancelled" in story.table()
    words = (begins + 64 - audio) // 200
    whole = [
        "It",
        "is",
        "noon,",
        "and",
        "I",
        "am",
        "very",
        "hungry.",
        "Do",
        "you",
        "want",
        "some",
        "lunch?",
    ]
    assert story.prompt()[1] == ("assistant", " ".join(whole[:words]) + CUT_OFF)


def test_a_gate_that_opens_late_makes_no_longer_gaps() -> None:
    """Words come every 200 ms, as fast as they are spoken."""

    def gaps(engines: Cast) -> list[int]:
        engines.llm.per_token_s = 0.2
        text = "It is noon, and I am very hungry today after all this hard work because I had none."
        engines.llm.deltas = [f"{word} " for word in text.split()]
        return gaps_ms(perform(f"0 640 {TIME}", engines))

    assert max(gaps(sure_of_more(TIME)), default=0) <= max(gaps(cast()), default=0)


def test_turns_are_committed_in_the_order_spoken() -> None:
    story = perform(
        """
        0    640 I have a dog.
        1696 640 What does he eat?
        2340 >   input_audio_buffer.commit
        2340 >   response.create
        """,
        cast(ears(takes_s=2.5)),
    )
    assert story.prompt() == [("user", "I have a dog. What does he eat?")]


def test_a_turn_is_answered_although_a_response_was_asked_for_while_it_was_spoken() -> None:
    story = perform(f"0 640 {TIME}\n320 > response.create", cast(tts=voice(seconds_per_word=1)))
    assert ("user", TIME) in story.prompt()


def test_a_noise_leaves_a_turn_that_has_ended_its_answer() -> None:
    story = perform(f"0 640 {TIME}\n1760 320 ~", cast(ears(takes_s=1.5)))
    assert story.engines.llm.prompts


def test_a_noise_does_not_take_an_answer_that_has_just_begun_away() -> None:
    story = perform(f"0 640 {TIME}\n960 320 ~", cast(tts=voice(seconds_per_word=1)))
    statuses = [event.status for event in story.events(events.ReplyFinished)]
    assert statuses[-1] == "completed"


def test_nothing_is_judged_when_the_pause_is_over() -> None:
    engines = sure_of_more("I want the")
    engines.llm.read_s = 0.01
    story = perform("0 768 I want the\n864 512 blue ball.", engines)
    table = story.table("judged")
    resumed = table.index("896 user goes on")
    assert not [row for row in table[resumed:] if row.startswith("896 judged")]


def test_without_interruption_the_second_turn_is_answered_after_the_first_answer() -> None:
    detection: dict[str, Any] = {"type": "server_vad", "interrupt_response": False}
    engines = cast(llm=brain(per_token_s=0.9))
    engines.llm.deltas = ("I am here. ", "And I stay. ")
    session = {"audio": {"input": {"turn_detection": detection}}}
    story = perform(f"0 640 {TIME}\n1280 640 And what day?", engines, session=session)
    assert story.prompt()[-1] == ("user", "And what day?")
