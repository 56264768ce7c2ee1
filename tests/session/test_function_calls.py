"""Function calls in a session, in virtual time: their order, and the model's prompts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline import commands, events
from pipeline.commands import CreateResponse, ResponseOptions
from pipeline.engines.contract import ToolCall
from pipeline.errors import EngineError
from pipeline.items import FunctionCallItem, FunctionOutputItem
from pipeline.messages import Message, Tool, ToolChoice
from pipeline.settings import SessionSettings
from reachy_voice.testing import (
    VOICE,
    Act,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
    play,
    say,
    silence,
    write,
)

pytestmark = pytest.mark.quick

DANCE = Tool("dance", "Dance.", {"type": "object", "properties": {"name": {"type": "string"}}})
CONFIG = replace(VOICE, tools=(DANCE,))
CALL = ToolCall("dance", '{"name":"waltz"}')
SPOKEN_DANCE: tuple[str | ToolCall, ...] = ("I will ", "dance for you ", "now.", CALL)


def calls_of(played: Scene) -> list[FunctionCallItem]:
    return [item for item in played.session.chat.items if isinstance(item, FunctionCallItem)]


def test_the_answer_to_a_call_reads_words_call_and_output() -> None:
    async def bring(played: Scene) -> None:
        (call,) = calls_of(played)
        output = FunctionOutputItem("item_o", call.call_id, '{"ok": true}')
        await played.do(commands.AddItem(output), CreateResponse())

    llm = ScriptedLlm(answers=[SPOKEN_DANCE, ("Done.",)])
    played = play(say(1.0), silence(6.0), bring, silence(2.0), config=CONFIG, llm=llm)
    (call,) = calls_of(played)
    said = {"name": "dance", "arguments": '{"name":"waltz"}'}
    tool_call = {"id": call.call_id, "type": "function", "function": said}
    assert llm.prompts[1][1:] == [
        Message("user", "hello"),
        Message("assistant", "I will dance for you now.", (tool_call,)),
        Message("tool", '{"ok": true}', tool_call_id=call.call_id),
    ]
    assert played.statuses == ["completed"] * 2


@pytest.mark.parametrize("interrupt", [say(1.0), commands.CancelResponse()], ids=str)
@pytest.mark.parametrize(("per_token_s", "calls"), [(0.01, 1), (0.4, 0)])
def test_an_interruption_ends_incomplete_calls(
    per_token_s: float, calls: int, interrupt: Act
) -> None:
    async def until_it_speaks(played: Scene) -> None:
        while not played.audio_s:
            await played.hear(0.02)

    words = "I will dance for you now. |It |is |a |waltz |in |three |steps."
    answer = (*words.split("|"), CALL)
    llm = ScriptedLlm(answers=[answer], deltas=("Yes?",), per_token_s=per_token_s)
    acts = (say(1.0), until_it_speaks, interrupt, silence(3.0))
    played = play(*acts, config=CONFIG, llm=llm)
    assert played.statuses[0] == "cancelled"
    assert len(played.events(events.ReplyArguments)) == calls
    assert [item.status for item in calls_of(played)] == ["completed"] * calls


def test_a_speculative_call_is_not_sent() -> None:
    llm = ScriptedLlm(answers=[(CALL,)], deltas=("All right.",))
    stt, turn = ScriptedStt(texts=("Dance", "Dance slowly")), ScriptedTurn(probability=0.4)
    pause = silence(0.19)  # the reply is complete behind its gate
    acts = (say(1.0), pause, say(0.5), silence(3.0))
    played = play(*acts, config=CONFIG, llm=llm, stt=stt, turn=turn)
    assert played.events(events.SpeculationDiscarded)
    assert not played.events(events.ReplyArguments)
    assert played.transcripts == ["Dance slowly"]
    begun, committed = (played.events(e) for e in (events.SpeechStarted, events.InputCommitted))
    assert len(begun) == len(committed) == 1


def test_tools_and_choice_reach_the_model_from_session_and_response() -> None:
    llm, named = ScriptedLlm((CALL,)), ToolChoice("named", "dance")
    nothing = ResponseOptions(tools=(), tool_choice=ToolChoice("none"))
    acts = (CreateResponse(), silence(1.0), CreateResponse(nothing), silence(1.0))
    play(*acts, config=replace(CONFIG, tool_choice=named), llm=llm)
    assert llm.offered == [((DANCE,), named), ((), ToolChoice("none"))]


def test_instructions_about_tools_are_read_only_with_tools() -> None:
    llm, settings = ScriptedLlm(), SessionSettings(tool_instructions="Say what you do.")
    without = CreateResponse(ResponseOptions(tools=()))
    acts = (CreateResponse(), silence(1.0), commands.CancelResponse(), without, silence(1.0))
    play(*acts, config=CONFIG, llm=llm, settings=settings)
    assert llm.prompts[0] == [Message("system", "Be brief.\n\nSay what you do.")]
    assert llm.prompts[1][0] == Message("system", "Be brief.")
    assert llm.warmed[0] == llm.prompts[0]


def test_a_call_is_sent_although_the_voice_fails() -> None:
    llm, tts = ScriptedLlm(SPOKEN_DANCE), ScriptedTts(error=EngineError("The voice broke"))
    acts = (write("Dance"), CreateResponse(), silence(1.0))
    played = play(*acts, config=CONFIG, llm=llm, tts=tts)
    assert played.statuses == ["failed"]
    assert len(played.events(events.ReplyArguments)) == 1
