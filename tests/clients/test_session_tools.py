"""Function calls in a session, in virtual time: their order, and the model's prompts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.audio import AudioFormat
from pipeline.commands import (
    AddItem,
    CancelResponse,
    CreateResponse,
    ResponseOptions,
    SessionConfig,
)
from pipeline.engines.contract import ToolCall
from pipeline.events import (
    InputCommitted,
    ReplyArguments,
    ReplyAudio,
    ReplyFinished,
    SpeculationDiscarded,
    SpeechStarted,
    TranscriptReady,
)
from pipeline.items import FunctionCallItem, FunctionOutputItem, MessageItem, TextPart
from pipeline.messages import Message, Tool, ToolChoice
from pipeline.settings import SessionSettings
from reachy_voice.testing import (
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
    in_virtual_time,
    scene,
)

pytestmark = pytest.mark.clients

DANCE = Tool("dance", "Dance.", {"type": "object", "properties": {"name": {"type": "string"}}})
CONFIG = SessionConfig("Be brief.", output_format=AudioFormat(rate=16_000), tools=(DANCE,))
CALL = ToolCall("dance", '{"name":"waltz"}')
SILENT_DANCE: tuple[str | ToolCall, ...] = (CALL,)
SPOKEN_DANCE: tuple[str | ToolCall, ...] = ("I will ", "dance for you ", "now.", CALL)


def call_of(played: Scene) -> FunctionCallItem:
    (item,) = (i for i in played.session.chat.items if isinstance(i, FunctionCallItem))
    return item


@in_virtual_time
async def test_the_answer_to_a_call_reads_words_call_and_output_as_one_exchange() -> None:
    llm = ScriptedLlm(answers=[SPOKEN_DANCE, ("Done.",)])
    async with scene(config=CONFIG, llm=llm) as played:
        await played.say(1.0)
        await played.hear(6.0)
        call = call_of(played)
        await played.do(
            AddItem(FunctionOutputItem("item_o", call.call_id, '{"ok": true}')),
            CreateResponse(),
        )
        await played.hear(2.0)
    said = {"name": "dance", "arguments": '{"name":"waltz"}'}
    tool_call = {"id": call.call_id, "type": "function", "function": said}
    assert llm.prompts[1][1:] == [
        Message("user", "hello"),
        Message("assistant", "I will dance for you now.", (tool_call,)),
        Message("tool", '{"ok": true}', tool_call_id=call.call_id),
    ]
    assert [event.status for event in played.events(ReplyFinished)] == ["completed"] * 2


@pytest.mark.parametrize("interrupt", ["speech", "client"])
@pytest.mark.parametrize(("per_token_s", "calls"), [(0.01, 1), (0.4, 0)])
@in_virtual_time
async def test_an_interruption_ends_the_calls_that_are_not_complete(
    per_token_s: float, calls: int, interrupt: str
) -> None:
    words = "I will dance for you now. |It |is |a |waltz |in |three |steps."
    answer = (*words.split("|"), CALL)
    llm = ScriptedLlm(answers=[answer], deltas=("Yes?",), per_token_s=per_token_s)
    async with scene(config=CONFIG, llm=llm) as played:
        await played.say(1.0)
        while not played.events(ReplyAudio):
            await played.hear(0.02)
        if interrupt == "speech":
            await played.say(1.0)
        else:
            await played.do(CancelResponse())
        await played.hear(3.0)
    assert played.events(ReplyFinished)[0].status == "cancelled"
    assert len(played.events(ReplyArguments)) == calls
    kept = [i for i in played.session.chat.items if isinstance(i, FunctionCallItem)]
    assert [item.status for item in kept] == ["completed"] * calls


@in_virtual_time
async def test_a_speculative_call_is_not_sent() -> None:
    llm = ScriptedLlm(answers=[SILENT_DANCE], deltas=("All right.",))
    stt = ScriptedStt(texts=("Dance", "Dance slowly"))
    turn = ScriptedTurn(probability=0.4)
    async with scene(config=CONFIG, llm=llm, stt=stt, turn=turn) as played:
        await played.say(1.0)
        await played.hear(0.19)  # the reply is done behind its gate
        await played.say(0.5)
        await played.hear(3.0)
    assert played.events(SpeculationDiscarded)
    assert not played.events(ReplyArguments)
    assert [event.text for event in played.events(TranscriptReady)] == ["Dance slowly"]
    assert len(played.events(SpeechStarted)) == len(played.events(InputCommitted)) == 1


@in_virtual_time
async def test_tools_and_choice_reach_the_model_from_session_and_response() -> None:
    llm = ScriptedLlm(SILENT_DANCE)
    named = ToolChoice("named", "dance")
    async with scene(config=replace(CONFIG, tool_choice=named), llm=llm) as played:
        await played.do(CreateResponse())
        await played.hear(1.0)
        nothing = ResponseOptions(tools=(), tool_choice=ToolChoice("none"))
        await played.do(CreateResponse(nothing))
        await played.hear(1.0)
    assert llm.offered == [((DANCE,), named), ((), ToolChoice("none"))]


@in_virtual_time
async def test_instructions_about_tools_are_read_only_where_there_are_tools() -> None:
    llm = ScriptedLlm()
    settings = SessionSettings(tool_instructions="Say what you do.")
    async with scene(config=CONFIG, llm=llm, settings=settings) as played:
        await played.do(CreateResponse())
        await played.hear(1.0)
        await played.do(CancelResponse(), CreateResponse(ResponseOptions(tools=())))
        await played.hear(1.0)
    assert llm.prompts[0] == [Message("system", "Be brief.\n\nSay what you do.")]
    assert llm.prompts[1][0] == Message("system", "Be brief.")
    assert llm.warmed[0] == llm.prompts[0]


@in_virtual_time
async def test_a_call_leaves_although_the_voice_fails() -> None:
    from pipeline.errors import EngineError

    tts = ScriptedTts(error=EngineError("The voice broke"))
    async with scene(config=CONFIG, llm=ScriptedLlm(SPOKEN_DANCE), tts=tts) as played:
        await played.do(AddItem(MessageItem("u", "user", (TextPart("Dance"),))))
        await played.do(CreateResponse())
        await played.hear(1.0)
    (finished,) = played.events(ReplyFinished)
    assert finished.status == "failed"
    assert len(played.events(ReplyArguments)) == 1
