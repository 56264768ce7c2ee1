"""What hostile readers of the session found, each kept from coming back. Virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from pipeline.audio import Recording, Resampler
from pipeline.commands import (
    AddItem,
    AppendAudio,
    CancelResponse,
    ClearAudio,
    CommitAudio,
    Configure,
    CreateResponse,
    DeleteItem,
    ResponseOptions,
    TruncateItem,
    TurnDetection,
)
from pipeline.conversation.chat import Chat
from pipeline.engines.contract import ToolCall
from pipeline.errors import EngineError, PromptTooLong
from pipeline.events import (
    IdleTimeout,
    InputCommitted,
    ItemDeleted,
    ItemTruncated,
    Refused,
    ReplyFinished,
    ReplyItemFinished,
    ReplyItemStarted,
    ReplyStarted,
    SpeculationDiscarded,
    SpeechStarted,
    SpeechStopped,
    TranscriptFailed,
    TranscriptReady,
)
from pipeline.items import AudioPart, FunctionCallItem, FunctionOutputItem, Item, MessageItem
from pipeline.messages import Message, Sampling
from pipeline.settings import SessionSettings
from pipeline.work import Cancelled
from reachy_voice.testing import (
    PUSH_TO_TALK,
    VOICE,
    ScriptedLlm,
    ScriptedStt,
    in_virtual_time,
    scene,
    text_item,
)

pytestmark = pytest.mark.quick


def noise(seconds: float, rate: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    return np.random.default_rng(1).integers(-9000, 9000, int(seconds * rate)).astype(np.int16)


# --- audio in ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [24_000, 16_000, 8_000])
@in_virtual_time
async def test_a_commit_has_all_of_the_audio_to_the_sample(rate: int) -> None:
    async with scene(config=PUSH_TO_TALK) as played:
        for _ in range(2):
            for piece in np.split(noise(0.1, rate), 5):
                await played.do(AppendAudio(piece, rate))
            await played.do(CommitAudio())
            await played.hear(0.2, rate=rate)
            await played.do(ClearAudio())
    heard = [len(pcm) for pcm in played.stages.stt.finished]  # type: ignore[attr-defined]
    assert heard == [1600, 1600]
    assert not played.events(Refused)


@pytest.mark.parametrize("rate", [24_000, 8_000])
@in_virtual_time
async def test_what_was_cleared_is_gone(rate: int) -> None:
    async with scene(config=PUSH_TO_TALK) as played:
        await played.do(AppendAudio(noise(0.6, rate), rate), ClearAudio())
        await played.do(AppendAudio(np.zeros(rate // 2, np.int16), rate), CommitAudio())
        await asyncio.sleep(1)
    (pcm,) = played.stages.stt.finished  # type: ignore[attr-defined]
    assert np.abs(pcm.astype(int)).max() <= 1


@pytest.mark.parametrize(("rate", "most_ms"), [(24_000, 11), (48_000, 13), (8_000, 31)])
def test_converting_audio_holds_little_of_it_back(rate: int, most_ms: int) -> None:
    resampler = Resampler(rate, 16_000)
    given = got = 0
    for _ in range(100):
        given += 20
        got += len(resampler.feed(np.zeros(rate // 50, np.int16))) // 16
        assert given - got <= most_ms
    rest = len(resampler.flush())
    assert got * 16 + rest == pytest.approx(2000 * 16, abs=100)


@in_virtual_time
async def test_cleared_speech_does_not_come_back_as_padding() -> None:
    async with scene() as played:
        await played.say(1.0)
        await played.do(ClearAudio())
        await played.say(0.5)
        await played.hear(3.0)
    _, second = played.events(SpeechStarted)
    assert second.audio_ms >= 980
    (pcm,) = played.stages.stt.finished  # type: ignore[attr-defined]
    assert len(pcm) <= 16 * 800


@in_virtual_time
async def test_an_update_during_speech_loses_no_audio() -> None:
    async with scene() as played:
        await played.say(0.5)
        detection = TurnDetection(silence_duration_ms=200)
        await played.do(Configure(replace(VOICE, turn_detection=detection)))
        await played.say(0.5)
        await played.hear(3.0)
    assert len(played.events(SpeechStarted)) == 1
    (pcm,) = played.stages.stt.finished  # type: ignore[attr-defined]
    assert len(pcm) >= 16_000


@pytest.mark.parametrize("threshold", [0.0, 1.0])
@in_virtual_time
async def test_a_threshold_at_the_end_of_its_range_still_finds_turns(threshold: float) -> None:
    detection = TurnDetection(threshold=threshold)
    async with scene(config=replace(VOICE, turn_detection=detection)) as played:
        await played.say(1.0)
        await played.hear(3.0)
    assert len(played.events(InputCommitted)) == 1


@in_virtual_time
async def test_what_waits_in_the_inbox_is_bounded() -> None:
    async with scene(config=PUSH_TO_TALK) as played:
        await played.do(AppendAudio(np.zeros(16_000 * 110, np.int16), 16_000, "big"))
        await played.do(AppendAudio(np.zeros(16_000 * 60, np.int16), 16_000, "mine"))
        await asyncio.sleep(1)
    (refused,) = played.events(Refused)
    assert (refused.event_id, refused.code) == ("mine", "input_audio_buffer_full")


# --- a turn that waits for its transcript ------------------------------------------------------

SLOW = 4.0


@in_virtual_time
async def test_clear_drops_a_turn_that_waits_for_its_transcript() -> None:
    stt = ScriptedStt(takes_s=SLOW)
    async with scene(stt=stt) as played:
        await played.say(1.0)
        await played.hear(2.7)
        await played.do(ClearAudio())
        assert len(played.events(SpeechStopped)) == 1
        await played.hear(5.0)
        assert stt.opened == 0
    assert not played.events(InputCommitted)
    assert not played.events(ReplyStarted)


@pytest.mark.parametrize("detection", [None, TurnDetection(create_response=False)])
@in_virtual_time
async def test_a_waiting_turn_is_kept_but_not_answered_once_cancelled(
    detection: TurnDetection | None,
) -> None:
    async with scene(stt=ScriptedStt(takes_s=SLOW)) as played:
        await played.say(1.0)
        await played.hear(2.7)
        await played.do(Configure(replace(VOICE, turn_detection=detection)))
        await played.hear(5.0)
    assert len(played.events(InputCommitted)) == 1
    assert not played.events(ReplyStarted)


# --- what is answered --------------------------------------------------------------------------


@in_virtual_time
async def test_a_speculative_answer_to_what_has_changed_since_is_thrown_away() -> None:
    llm = ScriptedLlm()
    written = replace(VOICE, instructions="Be long.", modality="text")
    async with scene(llm=llm) as played:
        await played.say(1.0)
        await played.hear(0.18)
        assert len(llm.prompts) == 1
        await played.do(AddItem(text_item("s", "It rains.", "system")), Configure(written))
        await played.hear(5.0)
    assert played.events(SpeculationDiscarded)
    (started,) = played.events(ReplyStarted)
    assert started.modality == "text"
    assert llm.prompts[-1] == [
        Message("system", "Be long."),
        Message("system", "It rains."),
        Message("user", "hello"),
    ]


@in_virtual_time
async def test_words_are_read_once_when_the_prompt_was_too_long_after_the_commit() -> None:
    llm = ScriptedLlm(first_s=1.2, errors=[PromptTooLong(9, 8)])
    async with scene(llm=llm) as played:
        await played.do(AddItem(text_item("a", "Old")), AddItem(text_item("b", "Older")))
        await played.say(1.0)
        await played.hear(5.0)
    assert llm.prompts[0][-1] == Message("user", "Old Older hello")
    assert llm.prompts[-1][-1] == Message("user", "hello")


@in_virtual_time
async def test_a_response_answers_the_conversation_as_it_was_when_it_was_asked() -> None:
    llm = ScriptedLlm()
    async with scene(config=PUSH_TO_TALK, llm=llm, stt=ScriptedStt(takes_s=1.0)) as played:
        await played.do(AppendAudio(noise(0.5, 16_000), 16_000), CommitAudio())
        await played.do(CreateResponse(), AddItem(text_item("l", "LATER")))
        await played.do(Configure(replace(PUSH_TO_TALK, instructions="NEW")))
        await played.hear(5.0)
    assert llm.prompts == [[Message("system", "Be brief."), Message("user", "hello")]]


@in_virtual_time
async def test_a_voice_turn_waits_for_recordings_that_are_being_read() -> None:
    llm = ScriptedLlm()
    stt = ScriptedStt(texts=("spoken", "recorded"), takes_s=0.7)
    async with scene(llm=llm, stt=stt) as played:
        await played.say(1.0)
        part = AudioPart(None, 1.0, Recording(noise(1.0, 16_000), 16_000))
        await played.do(AddItem(MessageItem("r", "user", (part,))))
        await played.hear(4.0)
    assert "recorded" in llm.prompts[-1][-1].content
    assert "spoken" in llm.prompts[-1][-1].content


def test_forgetting_never_empties_the_context() -> None:
    call = FunctionCallItem("c", "call_1", "look", "{}")
    outputs = [FunctionOutputItem(f"o{n}", "call_1", "{}") for n in range(3)]
    for items in (
        [text_item("u", "hi"), call, outputs[0]],
        [text_item("u", "hi"), call, call2(), *outputs],
        [text_item("u", "hi")],
    ):
        chat = Chat()
        for item in items:
            chat.add(item)
        while chat.forget_oldest():
            pass
        assert chat.context
        assert not isinstance(chat.context[0], FunctionOutputItem)


def call2() -> Item:
    return FunctionCallItem("c2", "call_2", "look", "{}")


@in_virtual_time
async def test_speech_without_words_is_not_ignored_silently() -> None:
    llm = ScriptedLlm()
    stt = ScriptedStt(error=EngineError("no ears"))
    async with scene(config=PUSH_TO_TALK, llm=llm, stt=stt) as played:
        await played.do(AppendAudio(noise(0.5, 16_000), 16_000), CommitAudio())
        await played.do(CreateResponse())
        await played.hear(2.0)
    assert "could not be understood" in llm.prompts[0][-1].content


@in_virtual_time
async def test_no_limit_for_one_response_is_no_limit() -> None:
    settings = SessionSettings(sampling=Sampling(max_tokens=3))
    options = ResponseOptions(max_output_tokens="inf")
    async with scene(config=PUSH_TO_TALK, settings=settings) as played:
        await played.do(CreateResponse(options))
        await played.hear(1.0)
        await played.do(CreateResponse())
        await played.hear(1.0)
    assert [e.status for e in played.events(ReplyFinished)] == ["completed", "incomplete"]
    assert [e.max_output_tokens for e in played.events(ReplyStarted)] == [None, 3]


# --- what was heard ----------------------------------------------------------------------------


@pytest.mark.parametrize("detection", [None, TurnDetection(interrupt_response=False)])
@in_virtual_time
async def test_what_is_being_said_can_be_cut_before_it_is_cancelled(
    detection: TurnDetection | None,
) -> None:
    llm = ScriptedLlm(("One two three four. ",) * 3, per_token_s=0.5)
    async with scene(config=replace(VOICE, turn_detection=detection), llm=llm) as played:
        await played.do(CreateResponse())
        await played.hear(0.5)
        item_id = played.events(ReplyItemStarted)[0].item.id
        await played.do(TruncateItem(item_id, 0, 99_000, "much"))
        await played.do(TruncateItem(item_id, 0, 300), CancelResponse())
        await played.hear(1.0)
    assert [event.event_id for event in played.events(Refused)] == ["much"]
    assert len(played.events(ItemTruncated)) == 1
    (part,) = played.session.chat.get(item_id).parts  # type: ignore[union-attr]
    assert (part.transcript, part.seconds) == ("One", 0.3)
    assert part.audio.seconds == pytest.approx(0.3)
    assert len(played.events(ReplyItemFinished)) == 1


# --- silence -----------------------------------------------------------------------------------

NAGGING = replace(VOICE, turn_detection=TurnDetection(idle_timeout_ms=5000))


@in_virtual_time
async def test_idleness_is_still_counted_after_a_response_out_of_band_and_an_update() -> None:
    llm = ScriptedLlm(deltas=("Hello.",))
    async with scene(config=NAGGING, llm=llm) as played:
        await played.do(CreateResponse())
        await played.hear(2.0)
        aside = ResponseOptions(modality="text", in_conversation=False)
        await played.do(CreateResponse(aside))
        await played.hear(4.0)
        assert len(played.events(IdleTimeout)) == 1
        await played.hear(2.0)
        slower = TurnDetection(idle_timeout_ms=6000)
        await played.do(Configure(replace(VOICE, turn_detection=slower)))
        await played.hear(6.5)
    assert len(played.events(IdleTimeout)) == 2


@in_virtual_time
async def test_an_engine_that_fails_is_not_asked_again_by_silence() -> None:
    llm = ScriptedLlm(errors=[EngineError("broken")] * 9)
    async with scene(config=NAGGING, llm=llm) as played:
        await played.do(CreateResponse())
        await played.hear(20.0)
    assert len(played.events(ReplyFinished)) == 1
    assert not played.events(IdleTimeout)


# --- items -------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_conversation_full_of_speech_still_takes_the_output_of_a_call() -> None:
    llm = ScriptedLlm(answers=[("Yes.",)] * 7, deltas=(ToolCall("look", "{}"),))
    async with scene(settings=SessionSettings(max_items=8), llm=llm) as played:
        for _ in range(8):
            await played.say(0.5)
            await played.hear(5.0)
        call = played.session.chat.items[-1]
        assert isinstance(call, FunctionCallItem)
        assert len(played.session.chat.items) == 8
        await played.do(AddItem(FunctionOutputItem("o", call.call_id, "{}")))
        await played.do(AddItem(text_item("t", "hi"), event_id="mine"))
    assert [event.event_id for event in played.events(Refused)] == ["mine"]
    assert played.session.chat.last_id == "o"
    assert len(played.events(ItemDeleted)) == 8 + 8 + 1 - 8


@in_virtual_time
async def test_a_transcript_does_not_overwrite_a_new_item_with_the_same_id() -> None:
    first, second = (AudioPart(None, 0.2, Recording(noise(0.2, 16_000), 16_000)) for _ in range(2))
    stt = ScriptedStt(texts=("first", "second"), takes_s=1.0)
    async with scene(config=PUSH_TO_TALK, stt=stt) as played:
        await played.do(AddItem(MessageItem("r", "user", (first,))), DeleteItem("r"))
        await played.do(AddItem(MessageItem("r", "user", (second,))))
        await asyncio.sleep(5)
    assert [event.text for event in played.events(TranscriptReady)] == ["second"]
    assert [item.text for item in played.session.chat.items] == ["second"]  # type: ignore[union-attr]


@in_virtual_time
async def test_the_transcript_of_committed_speech_does_not_go_into_a_new_item_with_its_id() -> None:
    recording = Recording(noise(0.2, 16_000), 16_000)
    stt = ScriptedStt(texts=("first", "second"), takes_s=1.0)
    async with scene(config=PUSH_TO_TALK, stt=stt) as played:
        await played.do(AppendAudio(noise(0.5, 16_000), 16_000), CommitAudio())
        (committed,) = played.events(InputCommitted)
        item = MessageItem(committed.item_id, "user", (AudioPart(None, 0.2, recording),))
        await played.do(DeleteItem(item.id), AddItem(item))
        await asyncio.sleep(5)
    assert [event.text for event in played.events(TranscriptReady)] == ["second"]
    assert [item.text for item in played.session.chat.items] == ["second"]  # type: ignore[union-attr]


@in_virtual_time
async def test_an_engine_that_stops_while_it_transcribes_does_not_end_the_session() -> None:
    stt = ScriptedStt(error=Cancelled())
    part = AudioPart(None, 0.2, Recording(noise(0.2, 16_000), 16_000))
    async with scene(config=PUSH_TO_TALK, stt=stt) as played:
        await played.do(AppendAudio(noise(0.5, 16_000), 16_000), CommitAudio())
        await played.do(AddItem(MessageItem("r", "user", (part,))))
        await asyncio.sleep(1)
        stt.error = None
        await played.do(AppendAudio(noise(0.5, 16_000), 16_000), CommitAudio())
        await asyncio.sleep(1)
    assert len(played.events(TranscriptFailed)) == 2
    assert [event.text for event in played.events(TranscriptReady)] == ["hello"]


@in_virtual_time
async def test_recordings_cannot_pile_up() -> None:
    part = AudioPart(None, 0.2, Recording(noise(0.2, 16_000), 16_000))
    async with scene(config=PUSH_TO_TALK, stt=ScriptedStt(takes_s=9.0)) as played:
        items = [MessageItem(f"r{n}", "user", (part,)) for n in range(34)]
        await played.do(*(AddItem(item, event_id=item.id) for item in items))
    refused = [(event.event_id, event.code) for event in played.events(Refused)]
    assert refused == [(f"r{n}", "input_audio_buffer_commit_busy") for n in (32, 33)]


@in_virtual_time
async def test_speech_unread_when_the_client_was_lost_is_read_when_it_comes_back() -> None:
    async with scene(config=PUSH_TO_TALK, stt=ScriptedStt(takes_s=9.0)) as first:
        await first.do(AppendAudio(noise(0.5, 16_000), 16_000), CommitAudio())
        memory = first.session.release()
    async with scene(config=PUSH_TO_TALK, memory=memory) as second:
        await second.hear(1.0)
    assert [event.text for event in second.events(TranscriptReady)] == ["hello"]
    assert memory.chat.items[0].text == "hello"  # type: ignore[union-attr]
