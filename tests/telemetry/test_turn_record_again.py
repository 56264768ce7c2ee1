"""Turn records where an answer comes later than its turn: owed, given again, or asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.commands import AddItem, CommitAudio, CreateResponse, TurnDetection
from pipeline.turn_record import TurnRecord
from tests.support.scripted import AT_ONCE, Scene, ScriptedLlm, ScriptedStt, ScriptedTts, scene
from tests.support.turn_records import VOICE, records_of, user_text
from tests.support.virtual_time import in_virtual_time

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
        await played.do(AddItem(user_text("about tea")), CreateResponse())
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
