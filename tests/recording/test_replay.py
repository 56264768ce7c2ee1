"""A recorded session, played again to today's program with other engines or settings."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from pipeline.audio import AudioFormat
from pipeline.bus import Bus
from pipeline.commands import AddItem, CreateResponse, DeleteItem, SessionConfig
from pipeline.conversation.chat import Chat
from pipeline.conversation.memory import LastingConversation, Memory
from pipeline.engines.contract import ToolCall
from pipeline.engines.stages import Stages
from pipeline.errors import EngineError
from pipeline.events import ReplyItemFinished
from pipeline.hearing.client_echo import Hearing
from pipeline.items import FunctionCallItem, FunctionOutputItem, MessageItem, TextPart
from pipeline.messages import Tool
from pipeline.recording.reading import RecordedRun
from pipeline.recording.replay import Replayed, replay
from pipeline.session import Session
from pipeline.settings import Echo, SessionSettings
from tests.support.lexicons import with_words
from tests.support.recorded import question, recorded
from tests.support.scripted import (
    AT_ONCE,
    LevelVad,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
)
from tests.support.virtual_time import run_virtual


def stages(
    turn: ScriptedTurn | None = None, stt: ScriptedStt | None = None, llm: ScriptedLlm | None = None
) -> Stages:
    parts = turn or ScriptedTurn(), stt or ScriptedStt(), llm or ScriptedLlm(), ScriptedTts()
    return Stages(LevelVad(), *parts)


def again(
    run: RecordedRun, over: Stages, settings: SessionSettings | None = None
) -> tuple[Replayed, Session]:
    numbers, sessions = itertools.count(500), list[Session]()

    def new_id(prefix: str) -> str:
        return f"{prefix}_{next(numbers)}"

    def begin(bus: Bus, memory: Memory | None, hearing: Hearing) -> Session:
        shown = with_words(settings)
        sessions.append(Session(over, run.config, shown, bus, new_id, memory, hearing))
        return sessions[0]

    replayed = run_virtual(replay(run, over, Echo(), begin))
    return replayed, sessions[0]


def test_the_same_program_does_the_same(tmp_path: Path) -> None:
    run = recorded(tmp_path, question)
    replayed, _ = again(run, stages())
    [(at, before)], [(now_at, now)] = run.records, replayed.records
    assert now_at == pytest.approx(at, abs=0.03)
    assert (now.text, now.heard, now.outcome) == (before.text, before.heard, before.outcome)
    assert now.speech_end_sample == before.speech_end_sample
    for name in ("endpoint_ms", "transcript_ms", "first_audio_ms", "ended_ms"):
        assert getattr(now, name) == pytest.approx(getattr(before, name), abs=1.0), name


def test_other_engines_judge_the_same_sound(tmp_path: Path) -> None:
    run = recorded(tmp_path, question)
    other = stages(turn=ScriptedTurn(probability=0.2), stt=ScriptedStt(texts=("good bye",)))
    replayed, _ = again(run, other)
    [(_, before)], [(_, now)] = run.records, replayed.records
    assert now.text == "good bye"
    assert (now.endpoint_ms or 0) > (before.endpoint_ms or 0) + 500


def test_a_recorded_interruption_interrupts_again(tmp_path: Path) -> None:
    async def play(played: Scene) -> None:
        await played.say(1.0)
        await played.hear(1.7)
        await played.say(0.7)
        await played.hear(4.0)

    run = recorded(tmp_path, play, settings=AT_ONCE)
    replayed, _ = again(run, stages(), AT_ONCE)
    outcomes = [[record.outcome for _, record in each.records] for each in (run, replayed)]
    assert outcomes == [["interrupted", "answered"]] * 2


def test_a_conversation_that_went_on_goes_on(tmp_path: Path) -> None:
    chat = Chat()
    chat.add(MessageItem("item_9", "user", (TextPart("My name is Ada."),)))
    memory = Memory(chat, LastingConversation(stages()))
    run = recorded(tmp_path, question, memory=memory)
    _, session = again(run, stages())
    assert session.chat.items[0] == chat.items[0]


def test_what_a_client_says_of_an_answer_is_about_todays_answer(tmp_path: Path) -> None:
    async def play(played: Scene) -> None:
        await played.do(AddItem(MessageItem("mine", "user", (TextPart("Dance!"),))))
        await played.do(CreateResponse())
        await played.hear(3.0)
        [call] = [
            event.item
            for event in played.events(ReplyItemFinished)
            if isinstance(event.item, FunctionCallItem)
        ]
        await played.do(AddItem(FunctionOutputItem("out", call.call_id, "done")))
        await played.do(DeleteItem(call.id), DeleteItem("mine"))
        await played.hear(1.0)

    def dancing() -> ScriptedLlm:
        return ScriptedLlm(deltas=(ToolCall("dance", "{}"),))

    tools = (Tool("dance", "Dance.", {"type": "object"}),)
    config = SessionConfig("Be brief.", output_format=AudioFormat(rate=16_000), tools=tools)
    run = recorded(tmp_path, play, llm=dancing(), config=config)
    replayed, session = again(run, stages(llm=dancing()))
    assert replayed.left_out == 0
    assert [type(item) for item in session.chat.items] == [FunctionOutputItem]
    replayed, _ = again(run, stages())  # it says something, and does not dance
    assert replayed.left_out == 2


def test_an_engine_that_fails_today_fails_its_turn_only(tmp_path: Path) -> None:
    run = recorded(tmp_path, question)
    errors: list[Any] = [EngineError("It broke"), EngineError("It broke")]
    replayed, _ = again(run, stages(llm=ScriptedLlm(errors=errors)))
    assert [record.outcome for _, record in replayed.records] == ["failed"]
