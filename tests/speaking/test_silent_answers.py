"""Inaudible answers: the model is asked once more; then the user hears a notice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline import commands, events
from pipeline.engines.contract import ToolCall
from pipeline.errors import EngineError, PromptTooLong
from pipeline.items import MessageItem
from pipeline.messages import Sampling, SpeechRequest, Tool, ToolChoice, Usage
from pipeline.settings import Filler, SessionSettings
from pipeline.speaking.words import ALOUD, NOTHING_HEARD, remaining
from pipeline.work import Work
from reachy_voice.testing import (
    PUSH_TO_TALK,
    VOICE,
    Cast,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
    in_virtual_time,
    play,
    say,
    scene,
    silence,
    wait,
    write,
)
from tests.support.stories import hesitant
from tests.support.wired import wired

pytestmark = pytest.mark.quick

SORRY = "Sorry, please say that again."
DANCE = Tool("dance", "Dance.", {"type": "object", "properties": {}})
SETTINGS = SessionSettings(apology=SORRY)
ALOUD_NOW: tuple[str, ...] = ("It ", "is ", "noon.")
Answer = Sequence[str | ToolCall | Exception]

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


def ask(
    *answers: Answer,
    options: commands.ResponseOptions | None = None,
    llm: ScriptedLlm | None = None,
    **changes: Any,
) -> Scene:
    """``response.create`` behind one typed message."""
    changes = {"settings": SETTINGS, **changes}
    create = commands.CreateResponse(options or commands.ResponseOptions())
    llm = llm or ScriptedLlm(ALOUD_NOW, answers=[*answers])
    return play(write("Hi", "u"), create, wait(12), llm=llm, **changes)


def words(it: Scene) -> str:
    return "".join(it.words)


def outcomes(it: Scene) -> list[str]:
    return [event.outcome for event in it.events(events.SilentAnswer)]


def texts(it: Scene) -> list[str]:
    return [text for _, text in it.chat]


# --- asked once more ---------------------------------------------------------------------------


@SILENT_TEXTS
def test_the_model_is_asked_once_more(cause: str) -> None:
    it = ask(SILENT[cause])
    assert it.statuses == ["completed"]
    assert words(it) == "It is noon."
    assert it.audio_s == pytest.approx(3 * 0.3)
    assert texts(it) == ["Hi", "It is noon."], "nothing of the first attempt"
    assert outcomes(it) == ["asked_again"]
    first, second = it.prompts
    assert first[-1] == ("user", "Hi")
    assert second == [*first, (ALOUD.role, ALOUD.content)]
    generated = len(SILENT[cause]) + len(ALOUD_NOW)
    assert it.reply.usage == Usage(20, 8, 12, generated), "of both attempts"


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
    it = ask(SILENT["emoji"], ("👍", ToolCall("dance", "{}")), config=config)
    assert it.statuses == ["completed"]
    assert len(it.events(events.ReplyArguments)) == 1
    assert words(it) == "👍"
    assert outcomes(it) == ["asked_again"]


def test_a_silent_answer_out_of_band_is_asked_again() -> None:
    it = ask(SILENT["code"], options=commands.ResponseOptions(in_conversation=False))
    assert words(it) == "It is noon."
    assert outcomes(it) == ["asked_again"]


def test_a_silent_answer_to_push_to_talk_is_asked_again() -> None:
    llm = ScriptedLlm(ALOUD_NOW, answers=[()])
    acts = (say(1.0), commands.CommitAudio(), commands.CreateResponse(), silence(4.0))
    it = play(*acts, config=PUSH_TO_TALK, settings=SETTINGS, llm=llm)
    assert words(it) == "It is noon."
    assert outcomes(it) == ["asked_again"]


def test_a_limit_holds_for_both_attempts() -> None:
    sampling = Sampling(max_tokens=40)
    assert remaining(sampling, Usage(generated=15)).max_tokens == 25
    assert remaining(sampling, Usage(generated=40)).max_tokens == 1
    assert remaining(Sampling(), Usage(generated=15)).max_tokens is None


def test_a_filler_is_no_answer() -> None:
    settings = replace(SETTINGS, filler=Filler(after_ms=1000, sentences=("One moment.",)))
    it = ask(llm=ScriptedLlm(ALOUD_NOW, first_s=2.0, answers=[("😀",)]), settings=settings)
    assert words(it) == "One moment. It is noon."
    assert outcomes(it) == ["asked_again"]
    it = ask(llm=ScriptedLlm(("😀",), first_s=2.0), settings=settings)
    assert words(it) == f"One moment.{SORRY}"
    assert it.statuses == ["failed"]


# --- given up ----------------------------------------------------------------------------------


@SILENT_TEXTS
def test_after_two_silent_answers_the_apology_is_said(cause: str) -> None:
    it = ask(SILENT[cause], SILENT["emoji"])
    end = it.reply
    assert (end.status, end.error) == ("failed", NOTHING_HEARD)
    assert words(it) == SORRY
    assert it.audio_s == pytest.approx(5 * 0.3)
    assert outcomes(it) == ["given_up"]
    assert len(it.prompts) == 2
    (item,) = end.items
    assert isinstance(item, MessageItem)
    assert item.notice
    assert texts(it) == ["Hi", SORRY]


def test_the_next_prompt_has_no_silent_answer() -> None:
    llm = ScriptedLlm(ALOUD_NOW, answers=[SILENT["an object"], SILENT["code"]])
    again = (commands.CreateResponse(), wait(5))
    it = play(write("Hi", "u"), *again, *again, settings=SETTINGS, llm=llm)
    assert it.prompts[-1] == [("system", "Be brief."), ("user", "Hi")]


@pytest.mark.parametrize("problem", [EngineError("It broke"), PromptTooLong(10, 5)])
def test_a_second_attempt_that_fails_fails_the_answer(problem: Exception) -> None:
    it = ask(("😀",), (problem,))
    assert it.ends == [("failed", str(problem))]
    assert words(it) == SORRY


def test_after_a_voice_without_sound_the_apology_is_said() -> None:
    class Mute(ScriptedTts):
        async def synthesize(self, request: SpeechRequest, work: Work) -> Any:
            if request.text == SORRY:
                async for pcm in super().synthesize(request, work):
                    yield pcm
            else:
                yield np.zeros(0, np.int16)

    it = ask(tts=Mute())
    assert it.statuses == ["failed"]
    assert outcomes(it) == ["given_up"]
    assert words(it) == f"It is noon.{SORRY}"
    assert len(it.prompts) == 1, "its words could be heard"


# --- what stays as it is -----------------------------------------------------------------------


@SILENT_TEXTS
@pytest.mark.parametrize("in_conversation", [True, False])
def test_text_need_not_be_heard(cause: str, in_conversation: bool) -> None:
    options = commands.ResponseOptions(modality="text", in_conversation=in_conversation)
    it = ask(SILENT[cause], options=options)
    assert it.statuses == ["completed"]
    assert words(it) == "".join(map(str, SILENT[cause]))
    assert len(it.prompts) == 1
    assert outcomes(it) == []


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("named", "dance")])
def test_a_missing_required_call_is_not_a_silent_answer(choice: ToolChoice) -> None:
    config = replace(VOICE, tools=(DANCE,), tool_choice=choice)
    it = ask((), config=config)
    assert (it.reply.status, len(it.prompts), outcomes(it)) == ("completed", 1, [])
    it = ask(llm=ScriptedLlm(errors=[EngineError("No call")]), config=config)
    assert (it.reply.error, len(it.prompts), outcomes(it)) == ("No call", 1, [])


def test_a_call_needs_no_words() -> None:
    config = replace(VOICE, tools=(DANCE,))
    it = ask(("😀", ToolCall("dance", "{}")), config=config)
    assert it.statuses == ["completed"]
    assert words(it) == "😀"
    assert len(it.events(events.ReplyArguments)) == len(it.prompts) == 1


def test_inaudible_parts_keep_their_place() -> None:
    answer = "😀 Look:\n```\na\n```\nThat is it. 👍"
    it = ask([f"{part} " for part in answer.split(" ")])
    assert words(it) == answer
    assert texts(it)[-1] == answer
    assert outcomes(it) == []


def test_an_answer_cut_off_before_it_is_heard_is_incomplete() -> None:
    """Its tokens are spent, so it is not asked again."""
    options = commands.ResponseOptions(max_output_tokens=2)
    it = ask(("<think>", "Well, ", "I ", "wonder.", "</think>", "Hi!"), options=options)
    end = it.reply
    assert (end.status, end.reason, end.error) == ("incomplete", "max_output_tokens", None)
    assert words(it) == SORRY
    assert len(it.prompts) == 1
    assert outcomes(it) == ["given_up"]
    assert texts(it) == ["Hi", SORRY]


# --- cut short by others -----------------------------------------------------------------------


@pytest.mark.parametrize("after_s", [0.05, 0.13, 0.2, 0.3, 0.5])
@in_virtual_time
async def test_cancelling_either_attempt(after_s: float) -> None:
    llm = ScriptedLlm(ALOUD_NOW, answers=[SILENT["an object"]])
    async with scene(settings=SETTINGS, llm=llm) as it:
        await it.act(commands.CreateResponse(), wait(after_s), commands.CancelResponse())
        at = it.loop.time()
        await it.act(wait(4))
        assert max([0.0, *it.times_of(events.ReplyAudio), *it.times_of(events.ReplyText)]) <= at
        assert llm.running == 0
    assert it.statuses == ["cancelled"]
    assert "fly" not in words(it)


@in_virtual_time
async def test_speech_before_anything_is_heard_is_answered() -> None:
    llm = ScriptedLlm(ALOUD_NOW, answers=[SILENT["code"]], first_s=1.0)
    async with scene(settings=SETTINGS, llm=llm) as it:
        await it.act(say(1.0), silence(1.4))  # the second attempt has begun
        assert len(llm.prompts) == 2
        await it.act(say(1.0), silence(6.0))
    assert it.statuses == ["cancelled", "completed"]
    assert words(it) == "It is noon."


def test_a_silent_speculative_reply_is_not_sent() -> None:
    engines: dict[str, Any] = {
        "llm": ScriptedLlm(ALOUD_NOW, answers=[("😀",), ("👍",)]),
        "stt": ScriptedStt(texts=("What", "What time is it")),
        "turn": ScriptedTurn(probability=0.4),
    }
    acts = (say(1.0), silence(0.24), say(0.5), silence(5.0))
    it = play(*acts, settings=SETTINGS, **engines)
    assert it.events(events.SpeculationDiscarded)
    assert "It is noon." in words(it)
    assert "😀" not in words(it)


def test_a_speculative_reply_is_asked_again_behind_its_gate() -> None:
    llm = ScriptedLlm(("😀",))
    told: list[int] = []
    look = lambda played: told.extend((len(llm.prompts), len(played.statuses)))  # noqa: E731
    acts = say(1.0), silence(7.0), look, silence(9.0)
    it = play(*acts, llm=llm, **hesitant(SETTINGS))
    assert told == [2, 0]
    assert len(llm.prompts) == 2
    assert it.words == [SORRY]
    assert it.statuses == ["failed"]
