"""Replies that are begun before their turn is known to be over, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline.commands import CreateResponse, TurnDetection
from pipeline.events import (
    InputCommitted,
    ReplyAudio,
    ReplyFinished,
    ReplyItemStarted,
    ReplyStarted,
    SpeculationDiscarded,
    Timeline,
)
from pipeline.items import MessageItem
from pipeline.messages import Message
from pipeline.settings import Speculation
from pipeline.turn_taking.speculation import Budget
from reachy_voice.testing import (
    VOICE,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    in_virtual_time,
    run_virtual,
    scene,
)

pytestmark = pytest.mark.quick

# --- the budget --------------------------------------------------------------------------------


def test_a_session_that_wastes_more_than_its_budget_becomes_careful_and_recovers() -> None:
    budget = Budget(Speculation(budget=0.3))
    budget.wasted(5.0)
    assert budget.may_answer, "one pause says nothing yet"
    for _ in range(5):
        budget.used(0.5)
    assert budget.wasted_share == pytest.approx(5 / 7.5)
    assert not budget.may_answer
    assert not budget.may_guess
    for _ in range(24):
        budget.used(0.5)
    assert budget.may_answer


def test_slow_engines_stop_guesses_first_and_then_all_speculation() -> None:
    budget = Budget(Speculation())
    for _ in range(8):
        budget.recognised(2.0, 0.1)
    assert (budget.may_guess, budget.may_answer) == (True, True)
    for _ in range(4):
        budget.recognised(2.0, 0.2)
    assert (budget.may_guess, budget.may_answer) == (False, True)
    for _ in range(8):
        budget.recognised(2.0, 0.5)
    assert (budget.may_guess, budget.may_answer) == (False, False)
    for _ in range(8):
        budget.recognised(2.0, 0.1)
    assert (budget.may_guess, budget.may_answer) == (True, True)


def test_long_audio_is_not_taken_for_a_slow_machine() -> None:
    budget = Budget(Speculation())
    budget.recognised(1.0, 0.1)
    budget.recognised(10.0, 0.8)
    assert budget.slowness == 1.0


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


def partials(*texts: str) -> ScriptedStt:
    return ScriptedStt(texts=(texts[-1],), partials=texts, streams=True)


def play(stt: ScriptedStt, act: Callable[[Scene], object], llm: ScriptedLlm | None = None) -> Scene:
    async def main() -> Scene:
        async with scene(stt=stt, llm=llm) as played:
            await act(played)  # type: ignore[misc]
        return played

    return run_virtual(main())  # type: ignore[no-any-return]


async def ask(played: Scene) -> None:
    await played.say(1.024)
    await played.hear(3.0)


def test_case_and_punctuation_do_not_kill_it() -> None:
    stt = ScriptedStt(texts=("Tell me a joke.",), partials=(ASKED, ASKED), streams=True)
    llm = ScriptedLlm()
    played = play(stt, ask, llm)
    assert [prompt[-1].content for prompt in llm.prompts] == [ASKED]
    (moments,) = played.events(Timeline)
    assert moments.first_token is not None
    assert moments.first_token < 0, "it was begun while they spoke"
    assert next(item.text for item in played.session.chat.items) == "Tell me a joke."


def test_words_that_will_not_change_are_read_ahead() -> None:
    llm = ScriptedLlm()
    play(partials("tell", "tell me a", "tell me a joke"), ask, llm)
    assert "tell me" in llm.read_ahead or "tell me a" in llm.read_ahead


def test_without_cheap_partials_nothing_is_begun_before_the_pause() -> None:
    llm = ScriptedLlm()
    stt = ScriptedStt(texts=(ASKED,), partials=(ASKED, ASKED, ASKED))
    played = play(stt, ask, llm)
    (moments,) = played.events(Timeline)
    assert moments.first_token is not None
    assert moments.first_token > 0


def test_what_was_said_before_a_pause_is_read_ahead_when_speech_goes_on() -> None:
    llm = ScriptedLlm()

    async def hesitate(played: Scene) -> None:
        await played.say(1.0)
        await played.hear(0.16)
        await played.say(0.6)
        await played.hear(2.0)

    play(ScriptedStt(texts=("tell me", "tell me a joke")), hesitate, llm)
    assert "tell me" in llm.read_ahead
    assert llm.prompts[-1][-1] == Message("user", "tell me a joke")


# --- somebody goes on when the answer has just begun -------------------------------------------


@pytest.mark.parametrize("gap_s", [0.5, 0.7, 0.9, 1.0])
@in_virtual_time
async def test_speech_over_an_answer_just_begun_is_answered_once(
    gap_s: float,
) -> None:
    llm = ScriptedLlm()
    stt = ScriptedStt(texts=("I have a dog.", "What does he eat?"))
    async with scene(llm=llm, stt=stt) as played:
        await played.say(1.024)
        await played.hear(gap_s)
        await played.say(1.024)
        await played.hear(3.0)
    assert llm.prompts[-1][1:] == [Message("user", "I have a dog. What does he eat?")]
    assert [e.status for e in played.events(ReplyFinished)] == ["cancelled", "completed"]
    assert len(played.events(InputCommitted)) == 2
    first = played.events(ReplyStarted)[0].reply_id
    heard_s = sum(len(e.pcm) / e.rate for e in played.events(ReplyAudio) if e.reply_id == first)
    assert heard_s < 1.3, "sent, of which less was played"


@pytest.mark.parametrize("interrupts", [True, False])
@in_virtual_time
async def test_a_turn_whose_words_come_late_is_answered_with_what_follows_it(
    interrupts: bool,
) -> None:
    llm = ScriptedLlm()
    stt = ScriptedStt(texts=("I have a dog.", "What does he eat?"), takes_s=3.0)
    config = replace(VOICE, turn_detection=TurnDetection(interrupt_response=interrupts))
    async with scene(llm=llm, stt=stt, config=config) as played:
        await played.say(1.024)
        await played.hear(2.7)
        assert not played.events(InputCommitted), "it is over, but not transcribed"
        await played.say(1.024)
        await played.hear(9.0)
    assert [prompt[-1].content for prompt in llm.prompts] == ["I have a dog. What does he eat?"]
    assert [e.status for e in played.events(ReplyFinished)] == ["completed"]
    assert len(played.events(InputCommitted)) == 2


def test_a_network_that_stutters_does_not_kill_a_speculative_reply() -> None:
    async def act(played: Scene) -> None:
        await played.say(1.0)
        await played.hear(0.24)
        await asyncio.sleep(0.15)  # late audio: the lead of new replies grows
        await played.hear(3.0)

    llm = ScriptedLlm()
    played = play(ScriptedStt(texts=(ASKED,)), act, llm)
    assert len(llm.prompts) == 1, "the reply begun in the pause is the one that is given"
    assert len(played.events(ReplyStarted)) == 1
    assert not played.events(SpeculationDiscarded)


@in_virtual_time
async def test_what_is_said_before_a_slow_answer_is_answered_after_it() -> None:
    llm = ScriptedLlm(answers=[("Noon. ",)], deltas=("Fine. ",), first_s=3.0)
    stt = ScriptedStt(texts=("What time is it?", "And how are you?"))
    config = replace(VOICE, turn_detection=TurnDetection(interrupt_response=False))
    async with scene(config=config, stt=stt, llm=llm) as played:
        await played.say(1.0)
        await played.hear(0.8)
        await played.say(1.0)
        await played.hear(8.0)
    said = [item.text for item in played.session.chat.items if isinstance(item, MessageItem)]
    assert said == ["What time is it?", "Noon.", "And how are you?", "Fine."]
    assert [message.content for message in llm.prompts[-1][1:]] == said[:3]
    before = [event.previous_item_id for event in played.events(ReplyItemStarted)]
    users = [event.item_id for event in played.events(InputCommitted)]
    assert before == users, "the client knows which item each answer follows"


@in_virtual_time
async def test_what_is_said_while_the_client_asks_for_an_answer_is_answered_too() -> None:
    llm = ScriptedLlm(answers=[("Hello. ",)], deltas=("Noon. ",), first_s=3.0)
    async with scene(stt=ScriptedStt(texts=("What time is it?",)), llm=llm) as played:
        await played.say(0.3)
        await played.do(CreateResponse())
        await played.say(0.7)
        await played.hear(8.0)
    said = [item.text for item in played.session.chat.items if isinstance(item, MessageItem)]
    assert said == ["Hello.", "What time is it?", "Noon."]
