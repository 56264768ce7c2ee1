"""Turn records: what became of a turn, and of those of every other origin."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pipeline import events
from pipeline.commands import (
    AddItem,
    CommitAudio,
    CreateResponse,
    ResponseOptions,
    TurnDetection,
)
from pipeline.engines.contract import ToolCall
from pipeline.messages import Usage
from pipeline.telemetry.turn_recorder import TurnRecorder
from tests.support.scripted import ScriptedLlm, ScriptedStt, ScriptedTurn, scene
from tests.support.turn_records import PUSH_TO_TALK, VOICE, records_of, user_text
from tests.support.virtual_time import in_virtual_time

# --- a turn that is answered -----------------------------------------------------------------


@in_virtual_time
async def test_a_spoken_turn_has_all_its_moments_and_figures() -> None:
    async with scene(stt=ScriptedStt(texts=("who are you?",))) as played:
        await played.say(1.024)
        await played.hear(6.0)
    [record] = records_of(played)
    assert (record.origin, record.outcome) == ("voice", "answered")
    assert (record.status, record.reason, record.error) == ("completed", None, None)
    [speech] = played.events(events.InputCommitted)
    [reply] = played.events(events.ReplyStarted)
    assert (record.item_id, record.reply_id) == (speech.item_id, reply.reply_id)
    assert record.text == "who are you?"
    assert record.heard == "Hello there, my friend. How are you?"
    [timeline] = played.events(events.Timeline)
    assert (record.endpoint_ms, record.transcript_ms) == (
        timeline.endpoint,
        timeline.transcript,
    )
    assert (record.first_token_ms, record.first_clause_ms, record.first_audio_ms) == (
        timeline.first_token,
        timeline.first_clause,
        timeline.first_audio,
    )
    # 2.1 s of speech: the first 2 s leave 40 ms ahead of the player, the rest at once
    assert record.first_audio_ms is not None
    assert record.last_audio_ms == pytest.approx(record.first_audio_ms + 2000 - 40, abs=45)
    assert record.ended_ms == pytest.approx(record.last_audio_ms, abs=1)
    assert record.usage == Usage(10, 4, 6, 7)
    assert record.sent_s == pytest.approx(2.1)
    assert record.heard_s == pytest.approx(2.1)
    assert (record.speculations_begun, record.speculations_discarded) == (1, 0)
    assert record.engine_wasted_s == 0


@in_virtual_time
async def test_a_pause_that_is_none_is_kept_with_what_it_wasted() -> None:
    stt = ScriptedStt(texts=("I want", "I want some tea"))

    async with scene(stt=stt, turn=ScriptedTurn(probability=0.2)) as played:
        await played.say(1.0)
        await played.hear(0.5)
        await played.say(1.0)
        await played.hear(5.0)
    [record] = records_of(played)
    inner, last = record.pauses
    assert inner.lasted_ms == pytest.approx(500, abs=40)
    assert last.lasted_ms is None
    assert inner.judgements
    assert (record.speculations_begun, record.speculations_discarded) == (2, 1)
    assert record.text == "I want some tea"
    assert record.outcome == "answered"


# --- other origins ---------------------------------------------------------------------------


@in_virtual_time
async def test_push_to_talk_counts_from_the_commit() -> None:
    async with scene(config=PUSH_TO_TALK) as played:
        await played.say(1.0)
        await played.do(CommitAudio())
        await asyncio.sleep(0.2)
        await played.do(CreateResponse())
        await played.hear(3.0)
    [record] = records_of(played)
    assert (record.origin, record.outcome, record.text) == ("commit", "answered", "hello")
    assert record.transcript_ms == pytest.approx(60)
    assert record.pauses == ()
    assert record.speculations_begun == 0
    # the answer's own moments count from what asked for it
    assert record.first_token_ms == pytest.approx(100)
    assert record.heard == "Hello there, my friend. How are you?"


@in_virtual_time
async def test_a_typed_question_and_a_bare_request() -> None:
    config = replace(VOICE, modality="text")

    async with scene(config=config) as played:
        await played.do(AddItem(user_text("Hi!")), CreateResponse())
        await played.hear(2.0)
        await played.do(CreateResponse())
        await played.hear(2.0)
    typed, bare = records_of(played)
    assert (typed.origin, typed.outcome, typed.text) == ("text", "answered", "Hi!")
    assert typed.heard == "Hello there, my friend. How are you?"
    assert (typed.sent_s, typed.first_audio_ms) == (0.0, None)
    assert (bare.origin, bare.text) == ("request", None)


@in_virtual_time
async def test_an_out_of_band_answer_takes_no_turn_away() -> None:
    aside = ResponseOptions(in_conversation=False, modality="text", input=())

    detection = TurnDetection(create_response=False)
    async with scene(config=replace(VOICE, turn_detection=detection)) as played:
        await played.say(1.024)
        await played.hear(1.0)
        await played.do(CreateResponse(aside))
        await played.hear(2.0)
        await played.do(CreateResponse())
        await played.hear(5.0)
    beside, turn = records_of(played)
    assert (beside.in_conversation, beside.origin, beside.outcome) == (
        False,
        "request",
        "answered",
    )
    assert beside.item_id is None
    assert (turn.origin, turn.outcome, turn.text) == ("voice", "answered", "hello")
    assert turn.speculations_begun == 0


@in_virtual_time
async def test_an_unanswered_turn_is_recorded_at_the_end() -> None:
    detection = TurnDetection(create_response=False)
    async with scene(config=replace(VOICE, turn_detection=detection)) as played:
        await played.say(1.024)
        await played.hear(2.0)
    [record] = records_of(played)
    assert (record.outcome, record.text, record.reply_id) == ("unanswered", "hello", None)
    assert record.endpoint_ms is not None
    assert record.transcript_ms is not None


@in_virtual_time
async def test_a_session_that_only_transcribes_has_its_records_at_once() -> None:
    async with scene(config=replace(VOICE, answers=False)) as played:
        await played.say(1.024)
        await played.hear(2.0)
        recorder = TurnRecorder(answers=False)
        [record] = [r for at, event in played.log for r in recorder.feed(at, event)]
    assert (record.outcome, record.text) == ("unanswered", "hello")


@in_virtual_time
async def test_the_idle_timeout_is_a_silent_origin() -> None:
    config = replace(VOICE, turn_detection=TurnDetection(idle_timeout_ms=5000))

    async with scene(config=config) as played:
        await played.say(1.024)
        await played.hear(10.0)
    spoken, unasked = records_of(played)[:2]
    assert (spoken.origin, unasked.origin) == ("voice", "silence")
    assert unasked.text == ""
    assert unasked.outcome == "answered"


@in_virtual_time
async def test_tool_calls_are_counted() -> None:
    llm = ScriptedLlm(answers=[("Dancing now. ", ToolCall("dance", "{}"), ToolCall("dance", "{}"))])

    async with scene(llm=llm) as played:
        await played.say(1.024)
        await played.hear(5.0)
    [record] = records_of(played)
    assert record.tool_calls == 2
