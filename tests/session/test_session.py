"""The session in virtual time: what happens, in which order, and when, to the millisecond."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pipeline.commands import (
    AddItem,
    CancelResponse,
    ClearAudio,
    CommitAudio,
    Configure,
    CreateResponse,
    DeleteItem,
    ResponseOptions,
)
from pipeline.errors import EngineError, PromptTooLong
from pipeline.events import (
    ItemAdded,
    ItemDeleted,
    Refused,
    ReplyAudio,
    ReplyFinished,
    ReplyItemFinished,
    ReplyStarted,
    ReplyText,
    SpeculationDiscarded,
    SpeechPaused,
    SpeechRejected,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    Timeline,
    TranscriptFailed,
    TurnJudged,
    TurnUnderWay,
)
from pipeline.items import AudioPart, FunctionCallItem, FunctionOutputItem, MessageItem, TextPart
from pipeline.messages import Message
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
    text_item,
)

pytestmark = pytest.mark.quick

INTERNAL = (
    *(SpeechPaused, SpeechRejected, SpeechResumed, TurnJudged),
    *(SpeculationDiscarded, Timeline, TurnUnderWay),
)


def audio_seconds(played: Scene) -> float:
    return sum(len(event.pcm) / event.rate for event in played.events(ReplyAudio))


@in_virtual_time
async def test_a_spoken_question_gets_a_spoken_answer_in_the_order_of_the_wire() -> None:
    async with scene() as played:
        await played.say(1.0)
        await played.hear(6.0)
    assert played.names(*INTERNAL, ReplyText, ReplyAudio) == [
        "SpeechStarted",
        "SpeechStopped",
        "InputCommitted",
        "ItemAdded",
        "TranscriptReady",
        "ReplyStarted",
        "ReplyItemStarted",
        "ReplyItemFinished",
        "ReplyFinished",
    ]
    [finished] = played.events(ReplyFinished)
    assert finished.status == "completed"
    assert finished.items[0].text == "Hello there, my friend. How are you?"
    assert played.session.chat.items[-1].text == finished.items[0].text  # type: ignore[union-attr]
    # 7 words of 0.3 s each, to the sample.
    assert audio_seconds(played) == pytest.approx(2.1)


@in_virtual_time
async def test_the_recognised_audio_is_exactly_the_committed_range() -> None:
    stt = ScriptedStt()
    async with scene(stt=stt, turn=ScriptedTurn(probability=0.2)) as played:
        await played.hear(1.0)
        await played.say(1.0)
        await played.hear(0.4)
        await played.say(0.5)
        await played.hear(3.0)
    [started], [stopped] = played.events(SpeechStarted), played.events(SpeechStopped)
    committed_ms = stopped.audio_ms - started.audio_ms
    assert len(stt.finished[-1]) * 1000 // 16_000 == pytest.approx(committed_ms, abs=1)
    # 300 ms from before the onset, and no more silence than the first pause frame.
    assert committed_ms == pytest.approx(300 + 1900 + 32, abs=40)


@in_virtual_time
async def test_barge_in_ends_the_reply_at_once_and_history_keeps_what_was_heard() -> None:
    async with scene(settings=AT_ONCE) as played:
        await played.say(1.0)
        await played.hear(1.6)
        await played.say(1.0)
        await played.hear(0.1)
    names = played.names(*INTERNAL, ReplyText)
    after = names[names.index("ReplyAudio") + 1 :]
    assert after[:3] == ["SpeechStarted", "ReplyItemFinished", "ReplyFinished"]
    assert "ReplyAudio" not in after[:3]
    finished = played.events(ReplyFinished)[0]
    assert (finished.status, finished.reason) == ("cancelled", "turn_detected")
    item = played.session.chat.items[1]
    assert isinstance(item, MessageItem)
    assert item.status == "incomplete"
    said = "Hello there, my friend. How are you?"
    assert said.startswith(item.text)
    assert 0 < len(item.text) < len(said)
    [part] = item.parts
    assert isinstance(part, AudioPart)
    # Heard is what was sent less the lead that the client still held.
    sent = finished.items[0].parts[0]
    assert isinstance(sent, AudioPart)
    assert sent.seconds - part.seconds == pytest.approx(0.06, abs=0.03)


@in_virtual_time
async def test_a_commit_of_next_to_nothing_is_refused_with_the_event_id() -> None:
    async with scene(config=PUSH_TO_TALK) as played:
        await played.hear(0.06)
        await played.do(CommitAudio("ev_1"))
    [refused] = played.events(Refused)
    assert (refused.event_id, refused.code) == ("ev_1", "input_audio_buffer_commit_empty")
    assert "60.00ms" in refused.message


@in_virtual_time
async def test_clear_forgets_what_was_appended() -> None:
    async with scene(config=PUSH_TO_TALK) as played:
        await played.say(1.0)
        await played.do(ClearAudio(), CommitAudio("ev_1"))
    assert played.names() == ["InputCleared", "Refused"]


@in_virtual_time
async def test_a_manual_commit_ends_an_open_voice_turn_without_a_reply() -> None:
    async with scene() as played:
        await played.say(1.0)
        await played.do(CommitAudio())
        await asyncio.sleep(1.0)
    assert played.names(*INTERNAL) == [
        "SpeechStarted",
        "SpeechStopped",
        "InputCommitted",
        "ItemAdded",
        "TranscriptReady",
    ]


@in_virtual_time
async def test_a_text_turn_is_answered_in_text() -> None:
    llm, tts = ScriptedLlm(), ScriptedTts()
    async with scene(llm=llm, tts=tts) as played:
        await played.do(
            AddItem(text_item("item_x", "hi")), CreateResponse(ResponseOptions(modality="text"))
        )
        await asyncio.sleep(1.0)
    assert "".join(event.text for event in played.events(ReplyText)) == "".join(llm.deltas)
    assert tts.said == []
    assert played.events(ReplyFinished)[0].items[0].parts == (TextPart("".join(llm.deltas)),)


@in_virtual_time
async def test_a_second_response_is_refused_while_one_is_active() -> None:
    async with scene() as played:
        await played.do(
            AddItem(text_item("item_x", "hi")), CreateResponse(), CreateResponse(event_id="e")
        )
        await asyncio.sleep(5)
    [refused] = played.events(Refused)
    assert (refused.event_id, refused.code) == ("e", "conversation_already_has_active_response")
    assert len(played.events(ReplyFinished)) == 1


@in_virtual_time
async def test_an_out_of_band_response_runs_beside_the_spoken_one_and_leaves_no_item() -> None:
    llm = ScriptedLlm()
    async with scene(llm=llm) as played:
        aside = ResponseOptions(
            modality="text", in_conversation=False, input=(), instructions="Summarise."
        )
        await played.do(AddItem(text_item("item_x", "hi")), CreateResponse(), CreateResponse(aside))
        await asyncio.sleep(5)
        assert llm.opened == 1
    assert len(played.events(ReplyFinished)) == 2
    assert llm.prompts[1] == [Message("system", "Summarise.")]
    assert len(played.session.chat.items) == 2


@in_virtual_time
async def test_cancel_without_a_response_is_refused_and_with_one_ends_it() -> None:
    async with scene() as played:
        await played.do(CancelResponse(event_id="e1"))
        await played.do(AddItem(text_item("item_x", "hi")), CreateResponse())
        await asyncio.sleep(0.5)
        await played.do(CancelResponse())
        await asyncio.sleep(2)
    [refused] = played.events(Refused)
    assert refused.code == "response_cancel_not_active"
    [finished] = played.events(ReplyFinished)
    assert (finished.status, finished.reason) == ("cancelled", "client_cancelled")


@pytest.mark.parametrize("cancelled_at_s", [0.05, 0.5, 30.0])
@in_virtual_time
async def test_cancel_of_a_response_that_is_over_is_ignored(cancelled_at_s: float) -> None:
    """0.05 s: before its first sound; 30 s: it ended by itself."""
    async with scene() as played:
        await played.do(AddItem(text_item("item_x", "hi")), CreateResponse())
        await asyncio.sleep(cancelled_at_s)
        [first] = [event.reply_id for event in played.events(ReplyStarted)]
        await played.do(CancelResponse(first), CancelResponse(first))
        await played.do(AddItem(text_item("item_y", "again")), CreateResponse())
        await asyncio.sleep(0.5)
        await played.do(CancelResponse(first), CancelResponse("resp_unknown", event_id="e1"))
        await asyncio.sleep(20)
    assert [refused.event_id for refused in played.events(Refused)] == ["e1"]
    ends = [event.status for event in played.events(ReplyFinished)]
    assert ends == ["completed" if cancelled_at_s == 30.0 else "cancelled", "completed"]


@in_virtual_time
async def test_cancel_of_a_held_response_ends_it_and_one_of_a_guess_is_refused() -> None:
    async with scene() as played:
        await played.say(1.0)
        await played.hear(0.1)
        await played.do(CancelResponse("resp_guess", event_id="e1"))
        await played.hear(2.0)
        [first] = [event.reply_id for event in played.events(ReplyStarted)]
        await played.say(0.3)
        await played.do(CancelResponse(first), CancelResponse(first))
        await played.hear(0.02)
    assert [refused.event_id for refused in played.events(Refused)] == ["e1"]
    assert played.events(ReplyFinished)[0].status == "cancelled"


@pytest.mark.machine
@pytest.mark.parametrize("step", range(300))
@in_virtual_time
async def test_cancel_sweep(step: int) -> None:
    """Barge in at every 10 ms: nothing is audible after, and there is exactly one end."""
    llm = ScriptedLlm()
    async with scene(llm=llm) as played:
        await played.say(0.512)
        await asyncio.sleep(step / 100)
        await played.say(0.3)
        await played.hear(0.02)
        closed: dict[str, str] = {}
        started: set[str] = set()
        for _, event in played.log:
            if isinstance(event, ReplyStarted):
                started.add(event.reply_id)
            if isinstance(event, ReplyFinished):
                assert event.reply_id in started
                assert event.reply_id not in closed
                closed[event.reply_id] = event.status
            if isinstance(event, ReplyAudio | ReplyText | ReplyItemFinished):
                assert event.reply_id in started
                assert event.reply_id not in closed
        assert len(started) - len(closed) <= 1
        await played.hear(8)
        assert played.session._replies.quiet.is_set()
        assert llm.running == 0


@in_virtual_time
async def test_a_token_limit_makes_the_response_incomplete() -> None:
    async with scene() as played:
        options = ResponseOptions(max_output_tokens=3)
        await played.do(AddItem(text_item("item_x", "hi")), CreateResponse(options))
        await asyncio.sleep(3)
    [finished] = played.events(ReplyFinished)
    assert (finished.status, finished.reason) == ("incomplete", "max_output_tokens")
    assert finished.items[0].status == "incomplete"


@pytest.mark.parametrize("broken", ["llm", "tts"])
@in_virtual_time
async def test_a_failing_engine_fails_the_response_and_the_session_goes_on(broken: str) -> None:
    trouble = EngineError("The voice broke")
    llm = ScriptedLlm(errors=[trouble] if broken == "llm" else [])
    tts = ScriptedTts(error=trouble if broken == "tts" else None)
    async with scene(llm=llm, tts=tts) as played:
        await played.do(AddItem(text_item("item_x", "hi")), CreateResponse())
        await asyncio.sleep(2)
        tts.error = None
        await played.do(CreateResponse())
        await asyncio.sleep(5)
    first, second = played.events(ReplyFinished)
    assert (first.status, first.error) == ("failed", "The voice broke")
    assert second.status == "completed"


@in_virtual_time
async def test_a_failing_recogniser_is_reported_and_commits_the_speech() -> None:
    async with scene(stt=ScriptedStt(error=EngineError("no ears"))) as played:
        await played.say(1.0)
        await played.hear(2.0)
    assert [event.message for event in played.events(TranscriptFailed)] == ["no ears"]
    assert len(played.events(ItemAdded)) == 1
    (finished,) = played.events(ReplyFinished)
    assert (finished.status, finished.error) == ("failed", "no ears")
    assert not played.events(ReplyAudio)


@in_virtual_time
async def test_a_prompt_that_is_too_long_forgets_the_oldest_half() -> None:
    llm = ScriptedLlm(errors=[PromptTooLong(9000, 8192)])
    async with scene(llm=llm) as played:
        for n in range(6):
            role = "user" if n % 2 == 0 else "assistant"
            item = MessageItem(f"i{n}", role, (TextPart(f"text {n}"),))  # type: ignore[arg-type]
            await played.do(AddItem(item))
        await played.do(CreateResponse())
        await asyncio.sleep(5)
    assert played.events(ReplyFinished)[0].status == "completed"
    assert [m.content for m in llm.prompts[1]] == ["Be brief.", "text 3", "text 4", "text 5"]
    assert len(played.session.chat.items) == 7


@in_virtual_time
async def test_a_result_that_comes_two_turns_later_is_told_at_the_next_chance() -> None:
    llm = ScriptedLlm()
    call = FunctionCallItem("c", "call", "weather", "{}")
    async with scene(llm=llm) as played:
        await played.do(AddItem(text_item("a", "Will it rain?")), AddItem(call), CreateResponse())
        await asyncio.sleep(6)
        await played.do(AddItem(text_item("b", "And now?")), CreateResponse())
        await asyncio.sleep(6)
        output = FunctionOutputItem("o", "call", "It will rain.")
        await played.do(AddItem(output), CreateResponse())
        await asyncio.sleep(6)
        await played.do(AddItem(text_item("d", "Thanks.")), CreateResponse())
        await asyncio.sleep(6)
    _, before, told, after = llm.prompts
    assert told[: len(before)] == before
    assert told[-1] == Message("tool", "It will rain.", tool_call_id="call")
    assert after[: len(told)] == told
    assert [m.content for m in after].count("It will rain.") == 1


FACT = "The tower is 71 metres high. "


@pytest.mark.parametrize("results", [[600_001], [45_000], [12_000] * 4])
@pytest.mark.parametrize("counts", [(12_000, 8192), (0, 0)])
@in_virtual_time
async def test_results_that_are_too_long_are_shortened_and_the_question_stays(
    results: list[int], counts: tuple[int, int]
) -> None:
    llm = ScriptedLlm(errors=[PromptTooLong(*counts)])
    async with scene(llm=llm) as played:
        await played.do(AddItem(text_item("q", "How high is the tower?")))
        for n in range(len(results)):
            await played.do(AddItem(FunctionCallItem(f"c{n}", f"{n}", "search", "{}")))
        for n, chars in enumerate(results):
            output = FACT + "x" * (chars - len(FACT))
            await played.do(AddItem(FunctionOutputItem(f"o{n}", f"{n}", output)))
        await played.do(CreateResponse())
        await asyncio.sleep(5)
        await played.do(AddItem(text_item("t", "Thank you.")), CreateResponse())
        await asyncio.sleep(5)
    assert [event.status for event in played.events(ReplyFinished)] == ["completed"] * 2
    system, question, calls, *told = llm.prompts[-1][: 3 + len(results)]
    assert (system.content, question.content) == ("Be brief.", "How high is the tower?")
    assert len(calls.tool_calls) == len(results)
    for message, chars in zip(told, results, strict=True):
        assert message.content.startswith(FACT)
        assert "characters left out" in message.content
        assert len(message.content) <= chars / 2
    assert len(played.session.chat.get("o0").output) == results[0]  # type: ignore[union-attr]


@pytest.mark.parametrize("outside", [False, True])
@in_virtual_time
async def test_a_long_text_is_shortened_in_and_outside_the_conversation(outside: bool) -> None:
    llm = ScriptedLlm(errors=[PromptTooLong(12_000, 8192)])
    long = text_item("long", f"{FACT}{'x' * 50_000} How high is it?")
    options = ResponseOptions(in_conversation=False, input=(long,)) if outside else None
    async with scene(llm=llm) as played:
        if not outside:
            await played.do(AddItem(text_item("first", "Hello.")), AddItem(long))
        await played.do(CreateResponse(options or ResponseOptions()))
        await asyncio.sleep(5)
    assert played.events(ReplyFinished)[0].status == "completed"
    told = llm.prompts[-1][-1].content
    assert FACT in told
    assert told.endswith(" How high is it?")
    assert len(told) < 25_000
    assert told.startswith("Hello.") != outside


@in_virtual_time
async def test_a_prompt_that_can_never_fit_fails_clearly() -> None:
    llm = ScriptedLlm(errors=[PromptTooLong(9000, 8192)] * 5)
    async with scene(llm=llm) as played:
        await played.do(AddItem(text_item("item_x", "hi")), CreateResponse())
        await asyncio.sleep(2)
    [finished] = played.events(ReplyFinished)
    assert finished.status == "failed"
    assert "9000 tokens" in (finished.error or "")


@in_virtual_time
async def test_session_update_warms_the_prefix() -> None:
    llm = ScriptedLlm()
    async with scene(llm=llm) as played:
        await played.do(Configure(replace(VOICE, instructions="You are a robot.")))
    assert [messages[0].content for messages in llm.warmed] == ["Be brief.", "You are a robot."]


@in_virtual_time
async def test_turning_turn_detection_off_in_the_middle_closes_the_open_pair() -> None:
    async with scene() as played:
        await played.say(1.0)
        await played.do(Configure(PUSH_TO_TALK))
        await played.hear(1.0)
    assert played.names(*INTERNAL) == ["SpeechStarted", "SpeechStopped"]


@in_virtual_time
async def test_items_can_be_deleted_and_bad_ids_are_refused() -> None:
    async with scene() as played:
        await played.do(
            AddItem(text_item("item_x", "hi")), AddItem(text_item("item_x", "again"), event_id="e1")
        )
        await played.do(AddItem(MessageItem("b", "user"), after="nowhere", event_id="e2"))
        await played.do(DeleteItem("item_x"), DeleteItem("item_x", event_id="e3"))
    assert [(r.event_id, r.code) for r in played.events(Refused)] == [
        ("e1", "item_create_duplicate_item_id"),
        ("e2", "item_create_invalid_previous_item_id"),
        ("e3", "item_delete_invalid_item_id"),
    ]
    assert len(played.events(ItemDeleted)) == 1


@in_virtual_time
async def test_ending_the_session_mid_reply_leaves_nothing_behind() -> None:
    llm, stt = ScriptedLlm(), ScriptedStt()
    async with scene(llm=llm, stt=stt) as played:
        await played.say(1.0)
        await played.hear(0.8)
        assert played.session._replies.speaking
    assert llm.running == 0
    assert llm.opened == 0
    assert stt.opened == 0
