"""Inaudible answers: the model is asked once more, then the user gets a notice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from pipeline.commands import (
    AddItem,
    CancelResponse,
    CommitAudio,
    CreateResponse,
    ResponseOptions,
    SessionConfig,
)
from pipeline.engines.contract import Delta, ToolCall
from pipeline.errors import EngineError, PromptTooLong
from pipeline.events import (
    ReplyArguments,
    ReplyAudio,
    ReplyFinished,
    ReplyStarted,
    ReplyText,
    SilentAnswer,
    SpeculationDiscarded,
)
from pipeline.items import MessageItem
from pipeline.messages import LlmRequest, Message, Sampling, SpeechRequest, Tool, ToolChoice, Usage
from pipeline.settings import Filler, SessionSettings
from pipeline.speaking.words import ALOUD, NOTHING_HEARD, left
from pipeline.work import Work
from reachy_voice.testing import (
    VOICE,
    Scene,
    ScriptedConversation,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
    in_virtual_time,
    run_virtual,
    scene,
    text_item,
)
from tests.support.gated import gated
from tests.support.wired import Cast, wired

pytestmark = pytest.mark.quick

SORRY = "Sorry, please say that again."
DANCE = Tool("dance", "Dance.", {"type": "object", "properties": {}})
SETTINGS = SessionSettings(apology=SORRY)
ALOUD_NOW: tuple[str, ...] = ("It ", "is ", "noon.")
Answer = Sequence[str | ToolCall]

SILENT: dict[str, Answer] = {
    "no words": (),
    "white space": ("\n", "  \n"),
    "an object": ('{"name": ', '"fly", "arguments": {}}'),
    "a list": ("[\n", ' {"a": 1},\n', ' {"b": 2}\n', "]"),
    "an object that is cut off": ('{"name": "fl',),
    "code": ("```python\n", "print(1)\n", "```"),
    "emoji": ("😀", " 👍"),
    "marks": ("**", "\n---\n", "***"),
    "a stage direction": ("*smiles ", "warmly*"),
    "thoughts": ("<think>", "I wonder.", "</think>"),
    "a table's rule": ("|---|---|\n",),
}
SILENT_TEXTS = pytest.mark.parametrize("cause", SILENT)


def play(
    *answers: Answer,
    options: ResponseOptions | None = None,
    config: SessionConfig = VOICE,
    settings: SessionSettings = SETTINGS,
    llm: ScriptedLlm | None = None,
    **engines: Any,
) -> Scene:
    """``response.create`` behind one typed message."""

    async def main() -> Scene:
        asked = llm or ScriptedLlm(ALOUD_NOW, answers=[*answers])
        async with scene(config=config, settings=settings, llm=asked, **engines) as it:
            hi = text_item("u", "Hi")
            await it.do(AddItem(hi), CreateResponse(options or ResponseOptions()))
            await asyncio.sleep(12)
        return it

    played: Scene = run_virtual(main())
    return played


def prompts(it: Scene) -> list[list[Message]]:
    llm = it.stages.llm
    assert isinstance(llm, ScriptedLlm)
    return llm.prompts


def words(it: Scene) -> str:
    return "".join(event.text for event in it.events(ReplyText))


def audio_s(it: Scene) -> float:
    return sum(len(event.pcm) / event.rate for event in it.events(ReplyAudio))


def outcomes(it: Scene) -> list[str]:
    return [event.outcome for event in it.events(SilentAnswer)]


def finished(it: Scene) -> ReplyFinished:
    (event,) = it.events(ReplyFinished)
    return event


def texts(it: Scene) -> list[str]:
    return [item.text for item in it.session.chat.items if isinstance(item, MessageItem)]


# --- asked once more ---------------------------------------------------------------------------


@SILENT_TEXTS
def test_the_model_is_asked_once_more_and_that_is_heard(cause: str) -> None:
    it = play(SILENT[cause])
    assert finished(it).status == "completed"
    assert words(it) == "It is noon."
    assert audio_s(it) == pytest.approx(3 * 0.3)
    assert texts(it) == ["Hi", "It is noon."], "nothing of the first attempt"
    assert outcomes(it) == ["asked_again"]
    first, second = prompts(it)
    assert first[-1] == Message("user", "Hi")
    assert second == [*first, ALOUD]


@SILENT_TEXTS
def test_both_attempts_are_paid_for(cause: str) -> None:
    it = play(SILENT[cause])
    generated = len(SILENT[cause]) + len(ALOUD_NOW)
    assert finished(it).usage == Usage(20, 8, 12, generated)


@in_virtual_time
async def test_the_sound_of_the_second_attempt_reaches_the_client() -> None:
    llm = ScriptedLlm(ALOUD_NOW, answers=[SILENT["an object"]])
    async with wired(Cast(llm=llm), settings=SETTINGS) as client:
        await client.say(1000)
        await client.hear(4000)
        client.recorder.finish()
    deltas = client.events("response.output_audio.delta")
    assert deltas
    assert client.events("response.output_audio_transcript.done")[0]["transcript"] == "It is noon."
    (done,) = client.events("response.done")
    assert done["response"]["status"] == "completed"
    assert done["response"]["usage"]["output_tokens"] == 5
    assert "fly" not in json.dumps(client.sent_and_received())


def test_the_call_of_the_second_attempt_is_made() -> None:
    config = replace(VOICE, tools=(DANCE,))
    it = play(SILENT["emoji"], ("👍", ToolCall("dance", "{}")), config=config)
    assert finished(it).status == "completed"
    assert len(it.events(ReplyArguments)) == 1
    assert words(it) == "👍"
    assert outcomes(it) == ["asked_again"]


def test_a_silent_answer_out_of_band_is_asked_again() -> None:
    it = play(SILENT["code"], options=ResponseOptions(in_conversation=False))
    assert words(it) == "It is noon."
    assert outcomes(it) == ["asked_again"]


@in_virtual_time
async def test_a_silent_answer_to_push_to_talk_is_asked_again() -> None:
    llm = ScriptedLlm(ALOUD_NOW, answers=[()])
    config = replace(VOICE, turn_detection=None)
    async with scene(config=config, settings=SETTINGS, llm=llm) as it:
        await it.say(1.0)
        await it.do(CommitAudio(), CreateResponse())
        await it.hear(4.0)
    assert words(it) == "It is noon."
    assert outcomes(it) == ["asked_again"]


def test_a_limit_holds_for_both_attempts() -> None:
    sampling = Sampling(max_tokens=40)
    assert left(sampling, Usage(generated=15)).max_tokens == 25
    assert left(sampling, Usage(generated=40)).max_tokens == 1
    assert left(Sampling(), Usage(generated=15)).max_tokens is None


def test_a_filler_is_no_answer() -> None:
    settings = replace(SETTINGS, filler=Filler(after_ms=1000, sentences=("One moment.",)))
    it = play(llm=ScriptedLlm(ALOUD_NOW, first_s=2.0, answers=[("😀",)]), settings=settings)
    assert words(it) == "One moment. It is noon."
    assert outcomes(it) == ["asked_again"]
    it = play(llm=ScriptedLlm(("😀",), first_s=2.0), settings=settings)
    assert words(it) == f"One moment.{SORRY}"
    assert finished(it).status == "failed"


# --- given up ----------------------------------------------------------------------------------


@SILENT_TEXTS
def test_after_two_silent_answers_the_apology_is_said(cause: str) -> None:
    it = play(SILENT[cause], SILENT["emoji"])
    end = finished(it)
    assert (end.status, end.error) == ("failed", NOTHING_HEARD)
    assert words(it) == SORRY
    assert audio_s(it) == pytest.approx(5 * 0.3)
    assert outcomes(it) == ["given_up"]
    assert len(prompts(it)) == 2
    (item,) = end.items
    assert isinstance(item, MessageItem)
    assert item.notice
    assert texts(it) == ["Hi", SORRY]


@in_virtual_time
async def test_the_next_prompt_has_nothing_of_it() -> None:
    llm = ScriptedLlm(ALOUD_NOW, answers=[SILENT["an object"], SILENT["code"]])
    async with scene(config=VOICE, settings=SETTINGS, llm=llm) as it:
        await it.do(AddItem(text_item("u", "Hi")), CreateResponse())
        await asyncio.sleep(5)
        await it.do(CreateResponse())
        await asyncio.sleep(5)
    assert (llm.prompts[-1]) == [Message("system", "Be brief."), Message("user", "Hi")]


@dataclass
class BreaksAloud(ScriptedLlm):
    """Fails when it is asked to speak up."""

    problem: Exception = field(default_factory=lambda: EngineError("It broke"))

    def open(self) -> ScriptedConversation:
        return BreakingConversation(self)


class BreakingConversation(ScriptedConversation):
    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        assert isinstance(self.llm, BreaksAloud)
        if ALOUD.content in request.messages[-1].content:
            raise self.llm.problem
        async for delta in super().reply(request, work):
            yield delta


@pytest.mark.parametrize("problem", [EngineError("It broke"), PromptTooLong(10, 5)])
def test_a_model_that_breaks_when_it_is_asked_again(problem: Exception) -> None:
    it = play(llm=BreaksAloud(("😀",), problem=problem))
    assert (finished(it).status, finished(it).error) == ("failed", str(problem))
    assert words(it) == SORRY


def test_after_a_voice_without_sound_the_apology_is_said() -> None:
    class Mute(ScriptedTts):
        async def synthesize(self, request: SpeechRequest, work: Work) -> Any:
            if request.text == SORRY:
                async for pcm in super().synthesize(request, work):
                    yield pcm
            else:
                yield np.zeros(0, np.int16)

    it = play(tts=Mute())
    assert finished(it).status == "failed"
    assert outcomes(it) == ["given_up"]
    assert words(it) == f"It is noon.{SORRY}"
    assert len(prompts(it)) == 1, "its words could be heard"


@in_virtual_time
async def test_it_is_whole_on_the_wire() -> None:
    """The conformance recorder checks order, ids and closing events."""
    cast = Cast(llm=ScriptedLlm(("😀",)))
    async with wired(cast, settings=SETTINGS) as client:
        await client.say(1000)
        await client.hear(6000)
        client.recorder.finish()
    (done,) = client.events("response.done")
    assert done["response"]["status"] == "failed"
    [item] = done["response"]["output"]
    assert item["content"][0]["transcript"] == SORRY


# --- what stays as it is -----------------------------------------------------------------------


@SILENT_TEXTS
@pytest.mark.parametrize("in_conversation", [True, False])
def test_text_need_not_be_heard(cause: str, in_conversation: bool) -> None:
    options = ResponseOptions(modality="text", in_conversation=in_conversation)
    it = play(SILENT[cause], options=options)
    assert finished(it).status == "completed"
    assert words(it) == "".join(map(str, SILENT[cause]))
    assert len(prompts(it)) == 1
    assert outcomes(it) == []


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("named", "dance")])
def test_an_answer_that_had_to_be_a_call_has_a_failure_of_its_own(choice: ToolChoice) -> None:
    config = replace(VOICE, tools=(DANCE,), tool_choice=choice)
    it = play((), config=config)
    assert (finished(it).status, len(prompts(it)), outcomes(it)) == ("completed", 1, [])
    it = play(llm=ScriptedLlm(errors=[EngineError("No call")]), config=config)
    assert (finished(it).error, len(prompts(it)), outcomes(it)) == ("No call", 1, [])


def test_a_call_needs_no_words() -> None:
    config = replace(VOICE, tools=(DANCE,))
    it = play(("😀", ToolCall("dance", "{}")), config=config)
    assert finished(it).status == "completed"
    assert words(it) == "😀"
    assert len(it.events(ReplyArguments)) == len(prompts(it)) == 1


def test_what_is_for_eyes_stands_where_it_was_written() -> None:
    answer = "😀 Look:\n```\na\n```\nThat is it. 👍"
    it = play([f"{part} " for part in answer.split(" ")])
    assert words(it) == answer
    assert texts(it)[-1] == answer
    assert outcomes(it) == []


def test_an_answer_cut_off_before_it_is_heard_is_incomplete() -> None:
    """Its tokens are spent, so it is not asked again."""
    options = ResponseOptions(max_output_tokens=2)
    it = play(("<think>", "Well, ", "I ", "wonder.", "</think>", "Hi!"), options=options)
    end = finished(it)
    assert (end.status, end.reason, end.error) == ("incomplete", "max_output_tokens", None)
    assert words(it) == SORRY
    assert len(prompts(it)) == 1
    assert outcomes(it) == ["given_up"]
    assert texts(it) == ["Hi", SORRY]


# --- cut short by others -----------------------------------------------------------------------


@pytest.mark.parametrize("after_s", [0.05, 0.13, 0.2, 0.3, 0.5])
@in_virtual_time
async def test_cancelling_either_attempt(after_s: float) -> None:
    llm = ScriptedLlm(ALOUD_NOW, answers=[SILENT["an object"]])
    async with scene(config=VOICE, settings=SETTINGS, llm=llm) as it:
        await it.do(CreateResponse())
        await asyncio.sleep(after_s)
        await it.do(CancelResponse())
        at = it.loop.time()
        await asyncio.sleep(4)
        assert not [t for t, e in it.log if isinstance(e, ReplyAudio | ReplyText) and t > at]
        assert llm.running == 0
    assert finished(it).status == "cancelled"
    assert "fly" not in words(it)


@in_virtual_time
async def test_speech_before_anything_is_heard_is_answered() -> None:
    llm = ScriptedLlm(ALOUD_NOW, answers=[SILENT["code"]], first_s=1.0)
    async with scene(config=VOICE, settings=SETTINGS, llm=llm) as it:
        await it.say(1.0)
        await it.hear(1.4)  # the second attempt has begun
        assert len(llm.prompts) == 2
        await it.say(1.0)
        await it.hear(6.0)
    statuses = [event.status for event in it.events(ReplyFinished)]
    assert statuses == ["cancelled", "completed"]
    assert words(it) == "It is noon."


@in_virtual_time
async def test_a_silent_speculative_reply_is_not_sent() -> None:
    llm = ScriptedLlm(ALOUD_NOW, answers=[("😀",), ("👍",)])
    stt = ScriptedStt(texts=("What", "What time is it"))
    turn = ScriptedTurn(probability=0.4)
    async with scene(config=VOICE, settings=SETTINGS, llm=llm, stt=stt, turn=turn) as it:
        await it.say(1.0)
        await it.hear(0.24)
        await it.say(0.5)
        await it.hear(5.0)
    assert it.events(SpeculationDiscarded)
    assert "It is noon." in words(it)
    assert "😀" not in words(it)


@in_virtual_time
async def test_a_guess_is_asked_again_behind_its_gate() -> None:
    async with gated(ScriptedTts(), ["😀"], apology=SORRY) as (reply, log):
        await asyncio.sleep(5)
        assert log == []
        assert not reply.broken
        reply.confirm()
        await asyncio.sleep(5)
    assert isinstance(log[0], ReplyStarted)
    assert [e.text for e in log if isinstance(e, ReplyText)] == [SORRY]
    assert isinstance(log[-1], ReplyFinished)
    assert log[-1].status == "failed"
