"""A client's requests to a session besides talking, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.audio import AudioFormat, Recording
from pipeline.commands import (
    AddItem,
    AppendAudio,
    Configure,
    CreateResponse,
    ItemReference,
    ResponseOptions,
    RetrieveItem,
    TruncateItem,
    TurnDetection,
)
from pipeline.conversation.chat import Chat
from pipeline.conversation.media import PICTURE_CHARS_KEPT
from pipeline.conversation.memory import Memory
from pipeline.conversation.prompt import prompt
from pipeline.conversation.reply_prompts import SILENCE
from pipeline.engines.llm.pictures import pieces
from pipeline.events import (
    IdleTimeout,
    InputCommitted,
    ItemAdded,
    ItemRetrieved,
    ItemTruncated,
    Refused,
    ReplyAudio,
    ReplyFinished,
    ReplyStarted,
    SpeechStarted,
    SpeechStopped,
    TranscriptPartial,
    TranscriptReady,
)
from pipeline.items import UNSEEN_IMAGE, AudioPart, ImagePart, MessageItem, TextPart
from pipeline.messages import Message
from pipeline.settings import Endpointing, Policy, SessionSettings
from reachy_voice.testing import (
    PUSH_TO_TALK,
    VOICE,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTurn,
    in_virtual_time,
    scene,
    text_item,
)

pytestmark = pytest.mark.quick

SECOND = np.full(16_000, 1000, dtype=np.int16)


# --- items -------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_retrieved_item_of_speech_has_exactly_the_audio_that_was_committed() -> None:
    async with scene() as played:
        await played.say(1.0)
        await played.hear(5.0)
        (committed,) = played.events(InputCommitted)
        await played.do(RetrieveItem(committed.item_id))
        (finished,) = played.events(ReplyFinished)
        await played.do(RetrieveItem(finished.items[0].id))
    heard, answered = (event.item.parts[0] for event in played.events(ItemRetrieved))  # type: ignore[union-attr]
    (recognised,) = played.stages.stt.finished  # type: ignore[attr-defined]
    assert heard.audio.rate == 16_000
    assert np.array_equal(heard.audio.pcm, recognised)
    sent = np.concatenate([event.pcm for event in played.events(ReplyAudio)])
    assert np.array_equal(answered.audio.pcm, sent)
    assert answered.transcript == "Hello there, my friend. How are you?"


@in_virtual_time
async def test_an_item_that_does_not_exist_cannot_be_retrieved_or_referred_to() -> None:
    async with scene(config=PUSH_TO_TALK) as played:
        nowhere = ResponseOptions(in_conversation=False, input=(ItemReference("gone"),))
        await played.do(RetrieveItem("gone", "e1"), CreateResponse(nowhere, "e2"))
    assert [(e.event_id, e.code) for e in played.events(Refused)] == [
        ("e1", "item_retrieve_invalid_item_id"),
        ("e2", "invalid_value"),
    ]
    assert not played.events(ReplyStarted)


@in_virtual_time
async def test_a_client_that_knows_better_what_was_heard_overrides_our_guess() -> None:
    async with scene() as played:
        await played.say(1.0)
        await played.hear(0.8)
        await played.say(0.3)
        (finished,) = played.events(ReplyFinished)
        assert finished.reason == "turn_detected"
        item_id = finished.items[0].id
        guess = played.session.chat.get(item_id).parts[0].seconds  # type: ignore[union-attr]
        earlier = round(guess * 1000) - 100
        await played.do(TruncateItem(item_id, 0, earlier))
        part = played.session.chat.get(item_id).parts[0]  # type: ignore[union-attr]
        assert part.seconds == earlier / 1000
        assert part.audio.seconds == pytest.approx(earlier / 1000)
        await played.do(TruncateItem(item_id, 0, earlier + 5000, "mine"))
    assert len(played.events(ItemTruncated)) == 1
    (refused,) = played.events(Refused)
    assert refused.event_id == "mine"
    assert "already shorter than" in refused.message


@in_virtual_time
async def test_speech_that_comes_as_an_item_is_recognised_before_it_is_answered() -> None:
    llm = ScriptedLlm()
    async with scene(config=PUSH_TO_TALK, llm=llm) as played:
        part = AudioPart(None, 1.0, Recording(SECOND, 16_000))
        await played.do(AddItem(MessageItem("a", "user", (part,))), CreateResponse())
        await played.hear(1.0)
    assert llm.prompts[0][-1] == Message("user", "hello")
    assert [e.text for e in played.events(TranscriptReady)] == ["hello"]
    assert played.session.chat.get("a").text == "hello"  # type: ignore[union-attr]
    assert played.stages.stt.opened == 0  # type: ignore[attr-defined]


@in_virtual_time
async def test_a_full_conversation_refuses_items_but_still_listens() -> None:
    async with scene(settings=SessionSettings(max_items=3)) as played:
        await played.do(*(AddItem(text_item(f"i{n}", "x"), event_id=n) for n in "0123"))
        assert [(e.event_id, e.code) for e in played.events(Refused)] == [("3", "too_many_items")]
        await played.say(1.0)
        await played.hear(5.0)
    assert [event.status for event in played.events(ReplyFinished)] == ["completed"]
    assert len(played.session.chat.items) == 3


def pictures(chat: Chat) -> list[str | None]:
    return [item.parts[0].url for item in chat.items]  # type: ignore[union-attr]


def test_pictures_go_when_there_are_too_many() -> None:
    chat = Chat()
    for n in range(4):
        chat.add(MessageItem(f"p{n}", "user", (ImagePart(f"data:{n}"), TextPart("look"))))
    assert pictures(chat) == [f"data:{n}" for n in range(4)]
    chat.add(MessageItem("p4", "user", (ImagePart("data:4"),)))
    assert pictures(chat) == [None, None, None, None, "data:4"]
    huge = f"data:{'x' * PICTURE_CHARS_KEPT}"
    chat.add(MessageItem("p5", "user", (ImagePart(huge),)))
    assert pictures(chat) == [None] * 5 + [huge], "however large, the newest one stays"


def test_where_pictures_stand_in_a_prompt() -> None:
    shown = MessageItem("a", "user", (TextPart("Look:"), ImagePart("data:1"), TextPart("nice?")))
    again = MessageItem("b", "user", (ImagePart(None), AudioPart(None), TextPart("And that?")))
    (message,) = prompt("", [shown, again])
    assert message.content == f"Look: {UNSEEN_IMAGE} nice? {UNSEEN_IMAGE} And that?"
    assert [image.url for image in message.images] == ["data:1", None]
    assert list(pieces(message)) == [
        "Look: ",
        message.images[0],
        " nice? ",
        message.images[1],
        " And that?",
    ]


def test_only_the_newest_audio_is_kept() -> None:
    chat = Chat()
    for n in range(3):
        chat.add(MessageItem(f"p{n}", "user", (ImagePart(f"data:{n}"), TextPart("look"))))
    minute = Recording(np.zeros(8_000 * 60, dtype=np.int16), 8_000)
    for n in range(7):
        chat.add(MessageItem(f"a{n}", "user", (AudioPart("hi", 60.0, minute),)))
    kept = [item.parts[0].audio is not None for item in chat.items[3:]]  # type: ignore[union-attr]
    assert kept == [False, False, True, True, True, True, True]
    assert "cannot see images" in prompt("", chat.items[:1])[0].content


# --- out of band -------------------------------------------------------------------------------


@in_virtual_time
async def test_a_response_out_of_band_reads_what_it_is_given_and_leaves_no_trace() -> None:
    llm = ScriptedLlm()
    async with scene(config=PUSH_TO_TALK, llm=llm) as played:
        await played.do(AddItem(text_item("a", "One")), AddItem(text_item("b", "Two")))
        given = (ItemReference("b"), text_item("c", "Three"))
        options = ResponseOptions(
            instructions="Count.", modality="text", in_conversation=False, input=given
        )
        await played.do(CreateResponse(options))
        await played.hear(1.0)
    assert llm.prompts == [[Message("system", "Count."), Message("user", "Two Three")]]
    assert [item.id for item in played.session.chat.items] == ["a", "b"]
    (finished,) = played.events(ReplyFinished)
    assert finished.items[0].text.startswith("Hello there")  # type: ignore[union-attr]
    assert llm.opened == 0


@in_virtual_time
async def test_a_flood_of_responses_out_of_band_is_refused() -> None:
    async with scene(config=PUSH_TO_TALK) as played:
        options = ResponseOptions(modality="text", in_conversation=False)
        await played.do(*(CreateResponse(options, str(n)) for n in range(10)))
        await played.hear(2.0)
    assert len(played.events(ReplyFinished)) == 8
    assert [(e.event_id, e.code) for e in played.events(Refused)] == [
        ("8", "too_many_responses"),
        ("9", "too_many_responses"),
    ]


# --- silence -----------------------------------------------------------------------------------

NAGGING = replace(VOICE, turn_detection=TurnDetection(idle_timeout_ms=5000))


@in_virtual_time
async def test_after_an_idle_timeout_the_server_speaks_again() -> None:
    llm = ScriptedLlm(answers=[("Hello.",)], deltas=("Still there?",))
    async with scene(config=NAGGING, llm=llm) as played:
        await played.hear(7.0)
        assert not played.events(IdleTimeout), "nothing has been answered yet"
        await played.say(1.0)
        await played.hear(7.0)
    (idle,) = played.events(IdleTimeout)
    ended = played.time_of(ReplyFinished)
    # 0.3 s of audio were played from when they left.
    played_out = played.time_of(ReplyAudio) + 0.3
    assert played.time_of(IdleTimeout) == pytest.approx(max(ended, played_out) + 5.0, abs=0.03)
    assert idle.audio_end_ms - idle.audio_start_ms == pytest.approx(5000, abs=40)
    names = played.names()
    at = names.index("IdleTimeout")
    assert names[at : at + 5] == [
        "IdleTimeout",
        "InputCommitted",
        "ItemAdded",
        "TranscriptReady",
        "ReplyStarted",
    ]
    assert played.events(InputCommitted)[-1].item_id == idle.item_id
    assert llm.prompts[-1][-1] == SILENCE
    assert llm.prompts[-1][-2] == Message("assistant", "Hello.")


@in_virtual_time
async def test_speech_ends_the_idle_timeout() -> None:
    llm = ScriptedLlm(deltas=("Hello.",))
    async with scene(config=NAGGING, llm=llm) as played:
        for _ in range(3):
            await played.say(1.0)
            await played.hear(4.0)
        await played.say(6.0)
        await played.hear(1.0)
        assert not played.events(IdleTimeout)
        await played.do(Configure(PUSH_TO_TALK))
        await played.hear(11.0)
    assert not played.events(IdleTimeout)


# --- when a turn is told -----------------------------------------------------------------------


@in_virtual_time
async def test_stopped_and_committed_come_together_however_long_the_transcript_takes() -> None:
    async with scene(stt=ScriptedStt(takes_s=2.0)) as played:
        await played.say(1.0)
        await played.hear(4.0)
    assert played.time_of(SpeechStopped) == played.time_of(InputCommitted)


# --- transcription -----------------------------------------------------------------------------


@in_virtual_time
async def test_a_session_that_only_transcribes_tells_stable_words_and_answers_nothing() -> None:
    hypotheses = ("go", "go for", "go forward", "go forward ten", "go forward ten meters") * 20
    stt = ScriptedStt(texts=("go forward ten meters",), partials=hypotheses[:5])
    llm = ScriptedLlm()
    config = replace(VOICE, answers=False, partials=True)
    async with scene(config=config, stt=stt, llm=llm) as played:
        await played.say(1.0)
        await played.hear(2.0)
    told = played.events(TranscriptPartial)
    assert "".join(event.text for event in told) == "go forward ten"
    assert {event.item_id for event in told} == {played.events(SpeechStarted)[0].item_id}
    names = played.names()
    assert names.index("TranscriptPartial") < names.index("InputCommitted")
    assert [event.text for event in played.events(TranscriptReady)] == ["go forward ten meters"]
    assert not llm.prompts
    assert not llm.warmed


@in_virtual_time
async def test_partials_cost_nothing_unless_asked_for() -> None:
    async with scene(stt=ScriptedStt(partials=("a", "a b", "a b c"))) as played:
        await played.say(1.0)
        await played.hear(2.0)
    assert not played.events(TranscriptPartial)


# --- turn detection ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "asked", "probability", "wait_s"),
    [
        ("adaptive", TurnDetection(), 0.98, 0.224),
        ("adaptive", TurnDetection(silence_duration_ms=100), 0.98, 0.1),
        ("adaptive", TurnDetection(silence_duration_ms=800), 0.98, 0.224),
        ("adaptive", TurnDetection(silence_duration_ms=100), 0.02, 2.496),
        ("strict", TurnDetection(silence_duration_ms=800), 0.98, 0.8),
        ("strict", TurnDetection(silence_duration_ms=800), 0.02, 0.8),
        ("strict", TurnDetection(), 0.98, 0.224),
        ("adaptive", TurnDetection(eagerness="high"), 0.02, 1.248),
        ("adaptive", TurnDetection(eagerness="medium"), 0.02, 2.496),
        ("adaptive", TurnDetection(eagerness="low"), 0.02, 7.996),
        ("adaptive", TurnDetection(eagerness="low"), 0.98, 0.448),
    ],
)
@in_virtual_time
async def test_what_a_client_says_about_silence_has_a_meaning(
    policy: Policy, asked: TurnDetection, probability: float, wait_s: float
) -> None:
    ours = Endpointing(policy=policy, clear_wait_ms=224, mean_pause_ms=3000, confidence=0.8)
    async with scene(
        config=replace(VOICE, turn_detection=asked),
        settings=SessionSettings(endpointing=ours),
        turn=ScriptedTurn(probability=probability, takes_s=0.01),
        stt=ScriptedStt(texts=("I went to the big house.",), takes_s=0.01),
    ) as played:
        await played.say(1.024)
        await played.hear(11.0)
    assert played.time_of(SpeechStopped) - 1.024 == pytest.approx(wait_s, abs=0.04)


# --- output ------------------------------------------------------------------------------------


@in_virtual_time
async def test_speed_and_format_change_what_is_spoken() -> None:
    config = replace(PUSH_TO_TALK, speed=1.5)
    async with scene(config=config) as played:
        await played.do(CreateResponse())
        await played.hear(2.0)
        slow = ResponseOptions(output_format=AudioFormat("pcmu", 8_000))
        await played.do(CreateResponse(slow))
        await played.hear(2.0)
    first, second = played.events(ReplyStarted)
    assert first.format == AudioFormat(rate=16_000)
    assert second.format == AudioFormat("pcmu", 8_000)
    by_rate = dict.fromkeys((16000, 8000), 0.0)
    for event in played.events(ReplyAudio):
        by_rate[event.rate] += len(event.pcm) / event.rate
    assert by_rate == pytest.approx({16_000: 1.4, 8_000: 1.4}, abs=0.01)


# --- going on ----------------------------------------------------------------------------------


@in_virtual_time
async def test_a_session_goes_on_with_the_memory_of_another() -> None:
    long = tuple(f"word{n} " for n in range(40))
    llm = ScriptedLlm(answers=[long, long])
    async with scene(llm=llm) as first:
        await first.say(1.0)
        await first.hear(4.0)
        memory: Memory = first.session.release()
    assert llm.opened == 1, "released, not closed"
    spoken = memory.chat.items[-1]
    assert isinstance(spoken, MessageItem)
    assert "word0" in spoken.text
    assert "word39" not in spoken.text, "cut to what was heard"
    async with scene(llm=llm, memory=memory) as second:
        await second.do(AppendAudio(np.zeros(160, dtype=np.int16), 16_000))
        await second.say(1.0)
        await second.hear(1.0)
    assert llm.prompts[-1][1] == Message("user", "hello")
    assert len(llm.prompts[-1]) >= 3
    assert llm.opened == 0


@in_virtual_time
async def test_a_conversation_does_not_grow_without_bound() -> None:
    async with scene(config=PUSH_TO_TALK) as played:
        big = "x" * 1_500_000
        await played.do(*(AddItem(text_item(f"i{n}", big), event_id=n) for n in "012"))
    refused = [(event.event_id, event.code) for event in played.events(Refused)]
    assert refused == [("2", "conversation_too_long")]


@in_virtual_time
async def test_a_client_that_comes_back_may_say_again_what_was_there() -> None:
    """Some clients (LiveKit) send their items again after a reconnect, with the ids they had."""
    async with scene(config=PUSH_TO_TALK) as first:
        await first.do(AddItem(text_item("a", "One")), AddItem(text_item("b", "Two")))
        memory = first.session.release()
    async with scene(config=PUSH_TO_TALK, memory=memory) as second:
        await second.do(AddItem(text_item("b", "Two"), event_id="1"))
        await second.do(AddItem(text_item("b", "Two"), event_id="2"))
        await second.do(AddItem(text_item("a", "Other"), event_id="3"))
    assert [event.item.id for event in second.events(ItemAdded)] == ["b"]
    assert [event.event_id for event in second.events(Refused)] == ["2", "3"]
    assert [item.id for item in memory.chat.items] == ["a", "b"]


@in_virtual_time
async def test_a_history_that_is_replayed_stands_once_in_the_prompt() -> None:
    llm = ScriptedLlm()
    async with scene(config=PUSH_TO_TALK, llm=llm) as first:
        await first.do(AddItem(text_item("a", "One")), CreateResponse())
        await first.hear(4.0)
        memory = first.session.release()
    answer = memory.chat.items[-1].text  # type: ignore[union-attr]
    async with scene(config=PUSH_TO_TALK, llm=llm, memory=memory) as second:
        said = MessageItem("new2", "assistant", (TextPart(answer),))
        await second.do(AddItem(text_item("new1", " One")), AddItem(said, after="new1"))
        await second.do(AddItem(text_item("new3", "Two"), after="new2"), CreateResponse())
        await second.hear(4.0)
        await second.do(AddItem(text_item("new4", "Two")), RetrieveItem("new1"))
    added = [(event.item.id, event.previous_item_id) for event in second.events(ItemAdded)]
    assert added[:3] == [("new1", None), ("new2", "new1"), ("new3", "new2")]
    assert [m.content for m in llm.prompts[-1]][1:] == ["One", answer, "Two"]
    assert [item.id for item in memory.chat.items[:3]] == ["new1", "new2", "new3"]
    assert memory.chat.last_id == "new4", "after a turn nothing is a replay"
    assert second.events(ItemRetrieved)


@in_virtual_time
async def test_what_is_said_a_second_time_is_answered() -> None:
    llm = ScriptedLlm()
    async with scene(config=PUSH_TO_TALK, llm=llm) as first:
        await first.do(AddItem(text_item("a", "Yes")), CreateResponse())
        await first.hear(4.0)
        memory = first.session.release()
    async with scene(config=PUSH_TO_TALK, llm=llm, memory=memory) as second:
        await second.do(AddItem(text_item("new", "Yes")), CreateResponse())
        await second.hear(4.0)
    assert second.events(ItemAdded)[0].item.id == "new"
    assert [m.role for m in llm.prompts[-1]][1:] == ["user", "assistant", "user"]
    assert [item.id for item in memory.chat.items][::2] == ["a", "new"]


@in_virtual_time
async def test_speech_ends_the_replay() -> None:
    async with scene(config=PUSH_TO_TALK) as first:
        await first.do(AddItem(text_item("a", "One")))
        memory = first.session.release()
    async with scene(memory=memory) as second:
        await second.say(1.0)
        await second.hear(4.0)
        await second.do(AddItem(text_item("new", "One")))
    assert "a" in memory.chat
    assert "new" in memory.chat
