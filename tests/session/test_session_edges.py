"""Corners of a session, in virtual time: late transcripts, explicit requests, deleted items."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from pipeline.commands import (
    AddItem,
    AppendAudio,
    CommitAudio,
    Configure,
    CreateResponse,
    DeleteItem,
    ResponseOptions,
    TruncateItem,
)
from pipeline.events import (
    InputCommitted,
    Refused,
    ReplyAudio,
    ReplyFinished,
    ReplyStarted,
    SpeechStarted,
    SpeechStopped,
    TranscriptReady,
)
from pipeline.items import FunctionCallItem, MessageItem, TextPart
from pipeline.messages import Message
from pipeline.settings import Endpointing, SessionSettings
from reachy_voice.testing import (
    PUSH_TO_TALK,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTurn,
    in_virtual_time,
    scene,
    text_item,
)

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("message_ms", [20, 500])
@pytest.mark.parametrize("every_ms", [260, 500, 900])
@in_virtual_time
async def test_audio_that_comes_rarely_or_in_bursts_is_heard_without_holes(
    every_ms: int, message_ms: int
) -> None:
    stt = ScriptedStt()
    async with scene(stt=stt) as played:
        speech = played.noise(3000, 16_000 * 3)
        pcm = np.concatenate((np.zeros(40_000, np.int16), speech, np.zeros(64_000, np.int16)))
        for burst in np.split(pcm, range(every_ms * 16, len(pcm), every_ms * 16)):
            await asyncio.sleep(len(burst) / 16_000)
            step = message_ms * 16
            for message in np.split(burst, range(step, len(burst), step)):
                await played.session.submit(AppendAudio(message, 16_000))
    assert len(played.events(InputCommitted)) == len(played.events(ReplyStarted)) == 1
    heard = np.flatnonzero(stt.finished[-1])
    assert len(heard) == heard[-1] - heard[0] + 1 == len(speech)


@in_virtual_time
async def test_a_late_transcript_never_makes_it_talk_over_the_user() -> None:
    llm = ScriptedLlm()
    stt = ScriptedStt(texts=("first", "second"), takes_s=3.0)
    async with scene(stt=stt, llm=llm, turn=ScriptedTurn(probability=0.1)) as played:
        await played.say(0.5)
        await played.hear(2.6)
        await played.say(1.5)
        await played.hear(8)
    wire = played.names()
    pairs = [name for name in wire if name in ("SpeechStarted", "SpeechStopped")]
    assert pairs == ["SpeechStarted", "SpeechStopped"] * 2
    assert [event.text for event in played.events(TranscriptReady)] == ["first", "second"]
    assert len(played.events(InputCommitted)) == 2
    # One answer, to both parts, and not while the user speaks.
    assert len(played.events(ReplyStarted)) == 1
    assert llm.prompts[-1][-1] == Message("user", "first second")
    assert played.time_of(ReplyAudio) > 0.5 + 1.1 + 1.5


@in_virtual_time
async def test_an_utterance_over_the_limit_is_cut_without_an_answer_in_between() -> None:
    llm = ScriptedLlm()
    settings = SessionSettings(endpointing=Endpointing(max_utterance_s=1.0))
    stt = ScriptedStt(texts=("one", "two", "three"))
    async with scene(stt=stt, llm=llm, settings=settings) as played:
        await played.say(1.5)
        await played.hear(5)
    assert len(played.events(ReplyFinished)) >= 1
    assert played.events(ReplyFinished)[-1].status == "completed"
    assert [type(e) for _, e in played.log if isinstance(e, SpeechStarted | SpeechStopped)] == [
        SpeechStarted,
        SpeechStopped,
    ] * 2
    assert llm.prompts[-1][-1].content == "one two"


@in_virtual_time
async def test_commit_and_create_with_turn_detection_answer_what_was_just_said() -> None:
    llm = ScriptedLlm()
    async with scene(llm=llm) as played:
        await played.say(1.0)
        await played.do(CommitAudio(), CreateResponse())
        await asyncio.sleep(5)
    names = played.names()
    assert names.index("InputCommitted") < names.index("ReplyStarted")
    assert llm.prompts[-1][-1] == Message("user", "hello")
    assert len(played.events(ReplyFinished)) == 1


@in_virtual_time
async def test_a_warm_up_that_a_reply_displaced_goes_on_after_it() -> None:
    llm = ScriptedLlm()
    async with scene(llm=llm, config=PUSH_TO_TALK) as played:
        llm.warm_s = 5.0
        await played.do(Configure(replace(PUSH_TO_TALK, instructions="Long.")))
        await played.do(AddItem(text_item("item_x", "hi")), CreateResponse())
        await asyncio.sleep(20)
    assert llm.warm_ups_finished == 2
    assert llm.warmed[-1][0].content == "Long."


@in_virtual_time
async def test_arguments_that_nest_too_deep_do_not_end_the_session() -> None:
    async with scene() as played:
        call = FunctionCallItem("c", "call", "f", "[" * 100_000)
        await played.do(AddItem(call), CreateResponse())
        await asyncio.sleep(5)
    assert played.events(ReplyFinished)[0].status == "completed"


@in_virtual_time
async def test_an_id_stolen_from_running_speech_does_not_end_the_session() -> None:
    async with scene() as played:
        await played.say(0.5)
        stolen = played.events(SpeechStarted)[0].item_id
        await played.do(AddItem(MessageItem(stolen, "user", (TextPart("mine"),))))
        await played.hear(5)
    assert played.events(ReplyFinished)[0].status == "completed"
    assert len(played.session.chat.items) == 3


@in_virtual_time
async def test_a_bug_in_a_reply_fails_it_and_not_the_session() -> None:
    llm = ScriptedLlm(errors=[ZeroDivisionError("bug")])
    async with scene(llm=llm) as played:
        await played.do(AddItem(text_item("item_x", "hi")), CreateResponse())
        await asyncio.sleep(1)
        await played.do(CreateResponse())
        await asyncio.sleep(5)
    assert [event.status for event in played.events(ReplyFinished)] == ["failed", "completed"]


@in_virtual_time
async def test_an_item_deleted_while_it_is_spoken_stays_away() -> None:
    async with scene() as played:
        await played.do(AddItem(text_item("item_x", "hi")), CreateResponse())
        await asyncio.sleep(0.5)
        speaking = played.session.chat.items[-1].id
        await played.do(DeleteItem(speaking))
        await asyncio.sleep(5)
    assert [item.id for item in played.session.chat.items] == ["item_x"]


@in_virtual_time
async def test_only_spoken_answers_can_be_truncated() -> None:
    async with scene() as played:
        await played.do(
            AddItem(text_item("item_x", "hi there")), TruncateItem("item_x", 0, 10, "e1")
        )
        await played.do(CreateResponse())
        await asyncio.sleep(4)
        answer = played.session.chat.items[-1].id
        await played.do(TruncateItem(answer, 3, 10, "e2"), TruncateItem(answer, 0, 600, "e3"))
    assert [(r.event_id, r.code) for r in played.events(Refused)] == [
        ("e1", "item_truncate_invalid_item_id"),
        ("e2", "invalid_value"),
    ]
    answered = played.session.chat.items[-1]
    assert isinstance(answered, MessageItem)
    assert answered.text == "Hello there,"


@in_virtual_time
async def test_commits_are_bounded() -> None:
    async with scene(config=PUSH_TO_TALK, stt=ScriptedStt(takes_s=60)) as played:
        for _ in range(40):
            clip = AppendAudio(np.zeros(1600, np.int16), 16_000)
            await played.do(clip, CommitAudio())
    assert len(played.events(InputCommitted)) == 32
    assert played.events(Refused)[0].code == "input_audio_buffer_commit_busy"


@in_virtual_time
async def test_a_burst_of_audio_lets_others_run() -> None:
    async with scene() as played:
        listener = played.session._listener
        burst = AppendAudio(np.zeros(16_000 * 30, np.int16), 16_000)
        await played.session.submit(burst)
        await played.settle()
        # Others have had 50 turns; most of the burst still waits.
        assert 0 < listener.heard_end < 16_000 * 3
        for _ in range(100):
            await played.settle()
        assert listener.heard_end > 16_000 * 29


@in_virtual_time
async def test_an_out_of_band_response_survives_a_barge_in() -> None:
    async with scene() as played:
        aside = ResponseOptions(modality="text", in_conversation=False)
        await played.do(AddItem(text_item("item_x", "hi")), CreateResponse(aside))
        await played.say(0.3)
        await played.hear(3)
    aside_end = played.events(ReplyFinished)[0]
    assert aside_end.status == "completed"
