"""Replies that are begun before their turn is known to be over, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline import events
from pipeline.commands import (
    ClearAudio,
    Configure,
    CreateResponse,
    SessionConfig,
    TurnDetection,
)
from pipeline.messages import Message
from pipeline.settings import Speculation
from pipeline.turn_taking.speculation import Budget
from reachy_voice.testing import (
    VOICE,
    Act,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    in_virtual_time,
    play,
    say,
    scene,
    silence,
    wait,
)

pytestmark = pytest.mark.quick

# --- the budget --------------------------------------------------------------------------------


def test_a_session_that_wastes_more_than_its_budget_becomes_careful_and_recovers() -> None:
    budget = Budget(Speculation(budget=0.3))
    budget.note_waste(5.0)
    assert budget.may_answer, "one pause says nothing yet"
    for _ in range(5):
        budget.note_use(0.5)
    assert budget.wasted_share == pytest.approx(5 / 7.5)
    assert not budget.may_answer
    assert not budget.may_guess
    for _ in range(24):
        budget.note_use(0.5)
    assert budget.may_answer


def test_slow_engines_stop_guesses_first_and_then_all_speculation() -> None:
    budget = Budget(Speculation())
    for _ in range(8):
        budget.note_pass(2.0, 0.1)
    assert (budget.may_guess, budget.may_answer) == (True, True)
    for _ in range(4):
        budget.note_pass(2.0, 0.2)
    assert (budget.may_guess, budget.may_answer) == (False, True)
    for _ in range(8):
        budget.note_pass(2.0, 0.5)
    assert (budget.may_guess, budget.may_answer) == (False, False)
    for _ in range(8):
        budget.note_pass(2.0, 0.1)
    assert (budget.may_guess, budget.may_answer) == (True, True)


def test_long_audio_is_not_taken_for_a_slow_machine() -> None:
    budget = Budget(Speculation())
    budget.note_pass(1.0, 0.1)
    budget.note_pass(10.0, 0.8)
    assert budget.may_guess


@pytest.mark.parametrize(
    ("on_partials", "cheap", "wanted"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("always", False, True),
        ("never", True, False),
    ],
)
def test_when_partials_are_wanted(on_partials: str, cheap: bool, wanted: bool) -> None:
    settings = Speculation.model_validate({"on_partials": on_partials})
    assert Budget(settings).wants_partials(cheap) is wanted


# --- a reply on a stable partial ---------------------------------------------------------------

ASKED = "tell me a joke"
QUESTION = (say(1.024), silence(3.0))


def partials(*texts: str) -> ScriptedStt:
    return ScriptedStt(texts=(texts[-1],), partials=texts, streams=True)


def first_token(played: Scene) -> float:
    """Seconds from the end of the turn."""
    (moments,) = played.events(events.Timeline)
    assert moments.first_token is not None
    return moments.first_token


def test_case_and_punctuation_do_not_kill_it() -> None:
    stt = ScriptedStt(texts=("Tell me a joke.",), partials=(ASKED, ASKED), streams=True)
    played = play(*QUESTION, stt=stt)
    assert [prompt[-1][1] for prompt in played.prompts] == [ASKED]
    assert first_token(played) < 0, "it was begun while they spoke"
    assert played.chat[0] == ("user", "Tell me a joke.")


def test_without_cheap_partials_nothing_is_begun_before_the_pause() -> None:
    stt = ScriptedStt(texts=(ASKED,), partials=(ASKED, ASKED, ASKED))
    assert first_token(play(*QUESTION, stt=stt)) > 0


def test_words_that_will_not_change_are_read_ahead() -> None:
    llm = ScriptedLlm()
    play(*QUESTION, stt=partials("tell", "tell me a", "tell me a joke"), llm=llm)
    assert "tell me" in llm.read_ahead or "tell me a" in llm.read_ahead


def test_what_was_said_before_a_pause_is_read_ahead_when_speech_goes_on() -> None:
    llm, stt = ScriptedLlm(), ScriptedStt(texts=("tell me", ASKED))
    play(say(1.0), silence(0.16), say(0.6), silence(2.0), stt=stt, llm=llm)
    assert "tell me" in llm.read_ahead
    assert llm.prompts[-1][-1] == Message("user", ASKED)


@pytest.mark.parametrize("end", [silence(3.0), ClearAudio()])
def test_words_that_came_to_nothing_are_not_read_again(end: Act) -> None:
    """``end``: the final transcript is empty, or the client clears the audio."""
    llm, stt = ScriptedLlm(), ScriptedStt(texts=("",), partials=("tell", "tell me"), streams=True)
    play(say(1.024), end, Configure(replace(VOICE, instructions="Be kind.")), stt=stt, llm=llm)
    assert "tell" in llm.read_ahead
    assert llm.read_ahead[-1] == ""


def test_a_network_that_stutters_does_not_kill_a_speculative_reply() -> None:
    late = wait(0.15)  # late audio: the lead of new replies grows
    played = play(say(1.0), silence(0.24), late, silence(3.0), stt=ScriptedStt(texts=(ASKED,)))
    assert len(played.prompts) == 1, "the reply begun in the pause is the one that is given"
    assert len(played.events(events.ReplyStarted)) == 1
    assert not played.events(events.SpeculationDiscarded)


# --- somebody goes on when the answer has just begun -------------------------------------------

DOG = ("I have a dog.", "What does he eat?")
DEAF = replace(VOICE, turn_detection=TurnDetection(interrupt_response=False))


@pytest.mark.parametrize("gap_s", [0.5, 0.7, 0.9, 1.0])
def test_speech_over_an_answer_just_begun_is_answered_once(gap_s: float) -> None:
    played = play(say(1.024), silence(gap_s), *QUESTION, stt=ScriptedStt(DOG))
    assert played.prompts[-1][1:] == [("user", " ".join(DOG))]
    assert played.statuses == ["cancelled", "completed"]
    assert len(played.events(events.InputCommitted)) == 2
    first = played.events(events.ReplyStarted)[0].reply_id
    heard_s = sum(
        len(e.pcm) / e.rate for e in played.events(events.ReplyAudio) if e.reply_id == first
    )
    assert heard_s < 1.3, "sent, of which less was played"


@pytest.mark.parametrize("config", [VOICE, DEAF], ids=["interrupting", "not interrupting"])
@in_virtual_time
async def test_a_turn_whose_words_come_late_is_answered_with_what_follows_it(
    config: SessionConfig,
) -> None:
    async with scene(stt=ScriptedStt(DOG, takes_s=3.0), config=config) as played:
        await played.act(say(1.024), silence(2.7))
        assert not played.events(events.InputCommitted), "it is over, but not transcribed"
        await played.act(say(1.024), silence(9.0))
    assert [prompt[-1][1] for prompt in played.prompts] == [" ".join(DOG)]
    assert played.statuses == ["completed"]
    assert len(played.events(events.InputCommitted)) == 2


def test_what_is_said_before_a_slow_answer_is_answered_after_it() -> None:
    llm = ScriptedLlm(answers=[("Noon. ",)], deltas=("Fine. ",), first_s=3.0)
    stt = ScriptedStt(texts=("What time is it?", "And how are you?"))
    acts = (say(1.0), silence(0.8), say(1.0), silence(8.0))
    played = play(*acts, config=DEAF, stt=stt, llm=llm)
    said = [text for _, text in played.chat]
    assert said == ["What time is it?", "Noon.", "And how are you?", "Fine."]
    assert [text for _, text in played.prompts[-1][1:]] == said[:3]
    before = [event.previous_item_id for event in played.events(events.ReplyItemStarted)]
    users = [event.item_id for event in played.events(events.InputCommitted)]
    assert before == users, "the client knows which item each answer follows"


def test_what_is_said_while_the_client_asks_for_an_answer_is_answered_too() -> None:
    llm = ScriptedLlm(answers=[("Hello. ",)], deltas=("Noon. ",), first_s=3.0)
    acts = (say(0.3), CreateResponse(), say(0.7), silence(8.0))
    played = play(*acts, stt=ScriptedStt(texts=("What time is it?",)), llm=llm)
    assert [text for _, text in played.chat] == ["Hello.", "What time is it?", "Noon."]
