"""Fillers: a few words while an answer is late."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from pipeline import events
from pipeline.commands import CancelResponse, CreateResponse, ResponseOptions, TurnDetection
from pipeline.engines.contract import ToolCall
from pipeline.errors import EngineError
from pipeline.items import AudioPart, MessageItem
from pipeline.settings import Filler, SessionSettings
from reachy_voice.testing import (
    VOICE,
    Act,
    Scene,
    ScriptedLlm,
    ScriptedTts,
    play,
    say,
    silence,
    wait,
)

pytestmark = pytest.mark.quick

SENTENCES = ("Hmm, let me see.", "One moment.")
FILLED = SessionSettings(filler=Filler(after_ms=1000, sentences=SENTENCES))
SLOW = ("It ", "is ", "noon.")


def ask(
    llm: ScriptedLlm,
    settings: SessionSettings = FILLED,
    options: ResponseOptions | None = None,
    seconds: float = 8.0,
) -> Scene:
    create = CreateResponse(options=options or ResponseOptions())
    return play(create, wait(seconds), llm=llm, settings=settings)


def said(played: Scene) -> list[str]:
    return cast(ScriptedTts, played.stages.tts).said


def test_a_slow_answer_begins_with_a_few_words() -> None:
    played = ask(ScriptedLlm(deltas=SLOW, first_s=3.0))
    assert said(played) == ["Hmm, let me see.", "It is noon."]
    # The voice needs 80 ms.
    assert played.time_of(events.ReplyAudio) == pytest.approx(1.08, abs=0.02)
    (done,) = played.events(events.ReplyFinished)
    assert done.status == "completed"
    (item,) = done.items
    assert isinstance(item, MessageItem)
    assert isinstance(item.parts[0], AudioPart)
    assert item.parts[0].transcript == "Hmm, let me see. It is noon."


WITHOUT_TIME = SessionSettings(filler=Filler(sentences=SENTENCES))


@pytest.mark.parametrize(
    ("deltas", "first_s", "spoken"),
    [
        (SLOW, 3.0, ["It is noon."]),
        (SLOW, 45.0, ["It is noon."]),
        ((ToolCall("look", "{}"),), 0.1, []),
    ],
)
def test_without_a_time_there_is_no_filler(
    deltas: tuple[str | ToolCall, ...], first_s: float, spoken: list[str]
) -> None:
    played = ask(ScriptedLlm(deltas=deltas, first_s=first_s), WITHOUT_TIME, seconds=60.0)
    assert said(played) == spoken


@pytest.mark.parametrize(
    ("after_ms", "first_s"),
    [
        *((after_ms, 45.0) for after_ms in (None, 1000, 4950, 5000, 9000)),
        *((after_ms, 5.1) for after_ms in (None, 1000, 5000, 9000)),
    ],
)
def test_a_separate_response_fills_the_time_while_a_model_loads(
    after_ms: int | None, first_s: float
) -> None:
    settings = SessionSettings(filler=Filler(after_ms=after_ms, sentences=SENTENCES))
    llm = ScriptedLlm(deltas=SLOW, first_s=first_s, may_load=True)
    played = ask(llm, settings, seconds=80.0)
    assert said(played) == ["Hmm, let me see.", "It is noon."]
    bridge, answer = played.events(events.ReplyFinished)
    assert (bridge.status, answer.status) == ("completed", "completed")
    items = [item for end in (bridge, answer) for item in end.items]
    texts = [item.text for item in items if isinstance(item, MessageItem)]
    assert texts == ["Hmm, let me see.", "It is noon."]
    assert played.time_of(events.ReplyFinished) < 8
    assert [start.reply_id for start in played.events(events.ReplyStarted)] == [
        bridge.reply_id,
        answer.reply_id,
    ]
    assert len(llm.prompts) == 1, "the question is asked once"


@pytest.mark.parametrize("first_s", [5.3, 5.6, 7.5])
def test_an_answer_that_begins_during_the_wait_is_whole(first_s: float) -> None:
    text = "One two three four. Five six seven eight nine. And some more words. Then the end."
    deltas = tuple(text.replace(" ", " \0").split("\0"))
    llm = ScriptedLlm(deltas=deltas, first_s=first_s, per_token_s=0.02, may_load=True)
    settings = SessionSettings(filler=Filler(after_ms=None, sentences=SENTENCES))
    _, answer = ask(llm, settings, seconds=20.0).events(events.ReplyFinished)
    (item,) = answer.items
    assert isinstance(item, MessageItem)
    assert item.text == text


def test_an_answer_that_begins_during_the_filler_follows_it_in_the_same_response() -> None:
    settings = SessionSettings(filler=Filler(after_ms=4950, sentences=SENTENCES))
    played = ask(ScriptedLlm(deltas=SLOW, first_s=5.1, may_load=True), settings, seconds=20.0)
    assert said(played) == ["Hmm, let me see.", "It is noon."]
    (end,) = played.events(events.ReplyFinished)
    assert len(end.items) == 1


@pytest.mark.parametrize("first_s", [5.1, 45.0])
def test_an_apology_follows_a_failure_after_a_long_wait(first_s: float) -> None:
    llm = ScriptedLlm(first_s=first_s, may_load=True, errors=[EngineError("The model is gone")])
    played = ask(llm, replace(WITHOUT_TIME, apology="Sorry."), seconds=80.0)
    assert said(played) == ["Hmm, let me see.", "Sorry."]
    ends = played.events(events.ReplyFinished)
    assert ends[-1].status == "failed"
    assert len([item for end in ends for item in end.items]) == 2
    assert len(played.events(events.ReplyItemFinished)) == 2


@pytest.mark.parametrize(
    ("seconds", "statuses"), [(5.3, ["cancelled"]), (20.0, ["completed", "cancelled"])]
)
def test_a_cancel_ends_the_wait_for_a_model(seconds: float, statuses: list[str]) -> None:
    def idle(played: Scene) -> None:
        assert not llm.running

    llm = ScriptedLlm(deltas=SLOW, first_s=45.0, may_load=True)
    acts = (CreateResponse(), wait(seconds), CancelResponse(), idle, wait(60.0))
    assert play(*acts, llm=llm, settings=WITHOUT_TIME).statuses == statuses


def test_the_wait_for_a_model_begins_with_its_request() -> None:
    """The user speaks while the model loads for another answer."""
    config = replace(VOICE, turn_detection=TurnDetection(interrupt_response=False))
    llm = ScriptedLlm(deltas=SLOW, first_s=45.0, may_load=True)
    loaded: Act = lambda played: setattr(llm, "first_s", 0.5)  # noqa: E731
    acts = (CreateResponse(), wait(10.0), loaded, say(1.0), silence(3.0), wait(47.0))
    played = play(*acts, config=config, llm=llm, settings=WITHOUT_TIME)
    assert said(played) == ["Hmm, let me see.", "It is noon.", "It is noon."]


@pytest.mark.parametrize("settings", [WITHOUT_TIME, FILLED])
def test_a_call_after_a_long_wait_needs_no_second_filler(settings: SessionSettings) -> None:
    llm = ScriptedLlm(deltas=(ToolCall("look", "{}"),), first_s=45.0, may_load=True)
    played = ask(llm, settings, seconds=80.0)
    assert said(played) == ["Hmm, let me see."]
    kinds = [type(e.item).__name__ for e in played.events(events.ReplyItemStarted)]
    assert kinds == ["MessageItem", "FunctionCallItem"]
    bridge, answer = played.events(events.ReplyFinished)
    assert answer.items
    assert answer.reply_id != bridge.reply_id


@pytest.mark.parametrize("deltas", [SLOW, (ToolCall("look", "{}"),)], ids=["words", "a call"])
def test_fillers_take_turns(deltas: tuple[str | ToolCall, ...]) -> None:
    llm = ScriptedLlm(deltas=deltas, first_s=3.0)
    played = play(*(CreateResponse(), wait(8.0)) * 3, llm=llm, settings=FILLED)
    begun = [text for text in said(played) if text in SENTENCES]
    assert begun == [SENTENCES[0], SENTENCES[1], SENTENCES[0]]


def test_a_call_without_words_has_a_filler_before_it() -> None:
    played = ask(ScriptedLlm(deltas=(ToolCall("look", "{}"),)))
    assert said(played) == ["Hmm, let me see."]
    kinds = [type(e.item).__name__ for e in played.events(events.ReplyItemStarted)]
    assert kinds == ["MessageItem", "FunctionCallItem"]


CALL_AFTER_WORDS = ("Let me look. ", ToolCall("look", "{}"))
ASIDE = ResponseOptions(in_conversation=False)


@pytest.mark.parametrize(
    ("deltas", "first_s", "options", "spoken"),
    [
        pytest.param(SLOW, 0.9, None, ["It is noon."], id="a fast answer"),
        pytest.param(CALL_AFTER_WORDS, 0.1, None, ["Let me look."], id="a call after words"),
        pytest.param(SLOW, 3.0, ResponseOptions(modality="text"), [], id="a written answer"),
        pytest.param(SLOW, 3.0, ASIDE, ["It is noon."], id="an answer out of band"),
    ],
)
def test_there_is_no_filler_in(  # type: ignore[no-untyped-def]
    deltas, first_s: float, options: ResponseOptions | None, spoken: list[str]
) -> None:
    played = ask(ScriptedLlm(deltas=deltas, first_s=first_s), options=options)
    assert said(played) == spoken
    assert "".join(played.words).strip() in ("It is noon.", "Let me look.")


def test_a_filler_is_not_a_whole_answer() -> None:
    """Two empty answers end before the filler is due; the second may end after it."""
    for first_s, spoken in ((0.4, []), (0.8, ["Hmm, let me see."])):
        played = ask(ScriptedLlm(deltas=(), first_s=first_s))
        assert said(played) == spoken
        assert played.events(events.ReplyFinished)[0].status == "failed"


def test_speech_before_the_filler_cancels_it() -> None:
    llm = ScriptedLlm(deltas=SLOW, first_s=5.0)
    played = play(CreateResponse(), silence(0.5), say(2.0), llm=llm, settings=FILLED)
    assert "Hmm, let me see." not in said(played)
    assert played.reply.status == "cancelled"
