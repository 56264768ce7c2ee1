"""Turn records: what became of a turn, also where its answer comes later."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pipeline import events
from pipeline.commands import CommitAudio, CreateResponse, ResponseOptions, TurnDetection
from pipeline.engines.contract import ToolCall
from pipeline.messages import Usage
from pipeline.telemetry.turn_recorder import TurnRecorder
from pipeline.turn_record import TurnRecord
from reachy_voice.testing import (
    AT_ONCE,
    PUSH_TO_TALK,
    VOICE,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
    in_virtual_time,
    scene,
    write,
)
from tests.support.turn_records import records_of

pytestmark = pytest.mark.quick

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
        await played.do(write("Hi!"), CreateResponse())
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


# --- turn records where an answer comes later than its turn ------------------------------------


SLOW_VOICE = 0.5
"""Seconds to the first sound: a noise in this time ends an answer that has just begun."""
LONG = ("Hello there, ", "my friend. ") * 4


async def noise_over_the_answer(played: Scene) -> None:
    await played.say(1.024)
    await played.hear(0.55)
    await played.say(0.3)


@in_virtual_time
async def test_an_answer_that_noise_has_ended_and_that_is_given_again() -> None:
    stt = ScriptedStt(texts=("Tell me", ""))

    async with scene(stt=stt, tts=ScriptedTts(first_s=SLOW_VOICE)) as played:
        await noise_over_the_answer(played)
        await played.hear(6.0)
    cut, noise, given = records_of(played)
    assert (cut.origin, cut.outcome, cut.heard_s) == ("voice", "interrupted", 0.0)
    assert (noise.outcome, noise.text) == ("rejected", "")
    assert (given.origin, given.outcome, given.text) == ("again", "answered", "Tell me")
    assert (given.item_id, given.answers_also) == (cut.item_id, ())
    assert given.reply_id != cut.reply_id
    assert given.heard == "Hello there, my friend. How are you?"
    assert range_of(given) == range_of(cut)
    # Counted once, with the turn itself.
    assert cut.pauses != () == given.pauses
    assert given.speculations_begun == 0
    # From the end of the words, not of the noise.
    stopped_at = 1.024 + 0.55 + 0.3 + (noise.endpoint_ms or 0) / 1000
    assert given.endpoint_ms == pytest.approx((stopped_at - 1.024) * 1000, abs=70)
    assert given.first_audio_ms is not None
    assert given.first_audio_ms > given.endpoint_ms + SLOW_VOICE * 1000


def range_of(record: TurnRecord) -> tuple[int | None, int | None]:
    return record.speech_start_sample, record.speech_end_sample


@in_virtual_time
async def test_an_answer_given_again_outlasts_noise() -> None:
    stt = ScriptedStt(texts=("Tell me", "", ""))

    async with scene(stt=stt, tts=ScriptedTts(first_s=SLOW_VOICE)) as played:
        await noise_over_the_answer(played)
        await played.hear(0.9)
        await played.say(0.3)
        await played.hear(6.0)
    records = [record for record in records_of(played) if record.outcome != "rejected"]
    assert [(r.origin, r.outcome) for r in records] == [
        ("voice", "interrupted"),
        ("again", "answered"),
    ]
    assert len({record.item_id for record in records}) == 1


@in_virtual_time
async def test_words_after_the_noise_are_answered_together_with_what_still_waits() -> None:
    stt = ScriptedStt(texts=("Tell me", "", "about tea"))

    async with scene(stt=stt, tts=ScriptedTts(first_s=SLOW_VOICE)) as played:
        await noise_over_the_answer(played)
        await played.hear(0.9)
        await played.say(0.6)
        await played.hear(6.0)
    first, last = (r for r in records_of(played) if r.origin == "voice" and r.text)
    assert (last.outcome, last.text) == ("answered", "about tea")
    assert last.answers_also == (first.item_id,)


@in_virtual_time
async def test_words_that_are_typed_after_the_noise_are_answered_together_with_it() -> None:
    stt = ScriptedStt(texts=("Tell me", ""))
    detection = TurnDetection(create_response=False)
    config = replace(VOICE, turn_detection=detection)

    async with scene(stt=stt, config=config, tts=ScriptedTts(first_s=SLOW_VOICE)) as played:
        await played.say(1.024)
        await played.hear(1.1)
        await played.do(CreateResponse())
        await played.hear(0.1)
        await played.say(0.3)
        await played.hear(1.5)
        await played.do(write("about tea"), CreateResponse())
        await played.hear(6.0)
    cut, noise, given = records_of(played)
    assert (cut.outcome, noise.outcome) == ("interrupted", "rejected")
    assert (given.origin, given.outcome, given.text) == ("text", "answered", "about tea")
    assert given.answers_also == (cut.item_id,)


@in_virtual_time
async def test_an_answer_that_was_heard_is_not_given_again() -> None:
    stt = ScriptedStt(texts=("Tell me", ""))
    async with scene(stt=stt, settings=AT_ONCE, llm=ScriptedLlm(deltas=LONG)) as played:
        await played.say(1.024)
        await played.hear(3.0)
        await played.say(0.3)
        await played.hear(3.0)
        await played.do(CreateResponse())
        await played.hear(5.0)
    cut, noise, asked = records_of(played)
    assert cut.heard_s > 2.0
    assert noise.outcome == "rejected"
    assert (asked.origin, asked.item_id, asked.answers_also) == ("request", None, ())


@in_virtual_time
async def test_a_turn_that_waits_until_another_answer_is_over_has_its_own_record() -> None:
    detection = TurnDetection(interrupt_response=False)
    stt = ScriptedStt(texts=("Tell me", "about tea"))
    config = replace(VOICE, turn_detection=detection)

    llm = ScriptedLlm(answers=[("One. ", "Two. ", "Three."), ("Tea.",)])
    async with scene(stt=stt, llm=llm, tts=ScriptedTts(first_s=2.0), config=config) as played:
        await played.say(1.024)
        await played.hear(1.0)
        await played.say(1.024)
        await played.hear(12.0)
    first, second = records_of(played)
    assert (first.outcome, first.text) == ("answered", "Tell me")
    assert (second.origin, second.outcome, second.text) == ("voice", "answered", "about tea")
    assert second.item_id not in (None, first.item_id)
    assert second.answers_also == ()
    assert second.heard == "Tea."
    # It was over long before its answer could begin.
    assert second.pauses
    assert second.endpoint_ms is not None
    assert second.endpoint_ms > 1000


@in_virtual_time
async def test_a_commit_while_a_turn_that_has_ended_still_waits() -> None:
    stt = ScriptedStt(texts=("Tell me", "about tea"), takes_s=3.0)

    async with scene(stt=stt) as played:
        await played.say(1.024)
        await played.hear(2.6)
        await played.say(0.5)
        await played.do(CommitAudio(), CreateResponse())
        await played.hear(9.0)
    first, second = records_of(played)
    assert (first.outcome, first.reply_id) == ("merged", None)
    assert (second.outcome, second.answers_also) == ("answered", (first.item_id,))
    assert (second.origin, second.text) == ("voice", "about tea")
    assert first.endpoint_ms is not None
    assert second.speech_start_sample is not None
    assert first.speech_end_sample is not None
    assert first.speech_end_sample <= second.speech_start_sample
