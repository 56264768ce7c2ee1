"""Turn records: one for every turn and every answer, right under whatever ends it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scene, ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedTurn, scene
from virtual_time import run_virtual

from pipeline import events
from pipeline.audio import AudioFormat
from pipeline.chat import FunctionCallItem, MessageItem, TextPart
from pipeline.commands import (
    AddItem,
    CancelResponse,
    ClearAudio,
    CommitAudio,
    Configure,
    CreateResponse,
    ResponseOptions,
    SessionConfig,
    TruncateItem,
    TurnDetection,
)
from pipeline.engines import ToolCall, Usage
from pipeline.errors import EngineError
from pipeline.events import Event
from pipeline.turn_record import (
    MAX_METADATA_PAIRS,
    Outcome,
    TurnRecord,
    as_metadata,
)
from pipeline.turn_recorder import MAX_HELD, TurnRecorder

VOICE = SessionConfig(instructions="Be brief.", output_format=AudioFormat(rate=16_000))
PUSH_TO_TALK = replace(VOICE, turn_detection=None)


def records_of(played: Scene, *, answers: bool = True) -> list[TurnRecord]:
    """The records of everything that was published, by a fold of our own."""
    recorder = TurnRecorder(answers=answers)
    seen = [(at, e) for at, e in played.log if not isinstance(e, TurnRecord)]
    records = [record for at, event in seen for record in recorder.feed(at, event)]
    return records + recorder.close(seen[-1][0])


def user_text(text: str, item_id: str = "item_x") -> MessageItem:
    return MessageItem(item_id, "user", (TextPart(text),))


# --- a turn that is answered -------------------------------------------------------------------


def test_a_spoken_turn_has_all_its_moments_and_figures() -> None:
    async def main() -> None:
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
        # 2.1 s of speech, of which the last 250 ms and one piece leave ahead of the player
        assert record.first_audio_ms is not None
        assert record.last_audio_ms == pytest.approx(
            record.first_audio_ms + 2100 - 250 - 40, abs=45
        )
        assert record.ended_ms == pytest.approx(record.last_audio_ms, abs=1)
        assert record.usage == Usage(10, 4, 6, 7)
        assert record.sent_s == pytest.approx(2.1)
        assert record.heard_s == pytest.approx(2.1)
        assert (record.speculations_begun, record.speculations_discarded) == (1, 0)
        assert record.engine_wasted_s == 0

    run_virtual(main())


def test_the_range_is_in_samples_and_the_pause_tells_why_it_was_the_end() -> None:
    async def main() -> None:
        async with scene(turn=ScriptedTurn(probability=0.95)) as played:
            await played.hear(0.512)
            await played.say(1.024)
            await played.hear(3.0)
        [record] = records_of(played)
        [started] = played.events(events.SpeechStarted)
        [stopped] = played.events(events.SpeechStopped)
        assert record.speech_start_sample == started.audio_ms * 16
        assert record.speech_end_sample == stopped.audio_ms * 16
        [pause] = record.pauses
        assert pause.start_sample == pytest.approx((0.512 + 1.024) * 16_000, abs=512)
        assert pause.lasted_ms is None
        judged = played.events(events.TurnJudged)
        assert [(j.probability, j.wait_ms, j.reasons) for j in pause.judgements] == [
            (j.probability, j.wait_ms, j.reasons) for j in judged
        ]
        assert record.judgement == pause.judgements[-1]
        times = [j.after_ms for j in pause.judgements]
        assert times == sorted(times)
        # heard in windows of 32 ms; the recogniser takes 60 ms, the detector 50 ms more
        assert times[-1] == pytest.approx(110, abs=40)

    run_virtual(main())


def test_a_pause_that_is_none_is_kept_with_what_it_wasted() -> None:
    stt = ScriptedStt(texts=("I want", "I want some tea"))

    async def main() -> None:
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

    run_virtual(main())


def test_waste_is_summed_and_never_negative() -> None:
    recorder = TurnRecorder()
    told: list[Event] = [
        events.SpeechStarted("item_1", 0),
        events.SpeechPaused("item_1", 1000, 32),
        events.SpeculationDiscarded("item_1", 0.25),
        events.SpeechResumed("item_1", 1400),
        events.SpeechPaused("item_1", 2000, 32),
        events.SpeculationDiscarded("item_1", 0.5),
        events.SpeechStopped("item_1", 2032),
        events.InputCommitted("item_1", None),
        events.ReplyStarted("resp_1", "audio", True, "joe", AudioFormat(), None, None),
        events.Timeline("resp_1", endpoint=224.0),
        events.ReplyFinished("resp_1", "completed", (), Usage(), engine_seconds=1.0),
    ]
    records = [record for event in told for record in recorder.feed(3.0, event)]
    [record] = records
    assert record.engine_wasted_s == 0.75
    assert record.engine_used_s == 1.0
    assert record.speculations_discarded == 2
    assert [pause.lasted_ms for pause in record.pauses] == [400, None]


# --- how else a turn can end -------------------------------------------------------------------


def test_an_interrupted_answer_tells_what_was_heard_and_when_it_ended() -> None:
    async def main() -> None:
        async with scene() as played:
            await played.say(1.024)
            await played.hear(1.7)
            await played.say(1.024)
            await played.hear(5.0)
        first, second = records_of(played)
        assert (first.outcome, first.status, first.reason) == (
            "interrupted",
            "cancelled",
            "turn_detected",
        )
        kept = played.session.chat.items[1]
        assert isinstance(kept, MessageItem)
        assert first.heard == kept.text != "Hello there, my friend. How are you?"
        assert first.heard_s == pytest.approx(kept.parts[0].seconds, abs=0.001)  # type: ignore[union-attr]
        assert first.sent_s > first.heard_s > 1.0
        cut_at = next(at for at, event in played.log if isinstance(event, events.ReplyFinished))
        assert first.ended_ms == pytest.approx((cut_at - 1.024) * 1000, abs=33)
        assert second.outcome == "answered"
        assert second.answers_also == ()

    run_virtual(main())


def test_who_goes_on_when_the_answer_has_hardly_begun_is_answered_together() -> None:
    async def main() -> None:
        async with scene(stt=ScriptedStt(texts=("Tell me", "about tea"))) as played:
            await played.say(1.024)
            await played.hear(0.6)
            await played.say(1.024)
            await played.hear(5.0)
        first, second = records_of(played)
        assert first.outcome == "interrupted"
        assert 0 < first.heard_s < 1.0
        assert second.answers_also == (first.item_id,)
        assert second.outcome == "answered"

    run_virtual(main())


def test_a_barge_in_before_the_first_audio_has_nothing_heard() -> None:
    async def main() -> None:
        async with scene(tts=ScriptedTts(first_s=2.0)) as played:
            await played.say(1.024)
            await played.hear(1.0)
            await played.say(1.024)
            await played.hear(8.0)
        first, second = records_of(played)
        assert first.outcome == "interrupted"
        assert (first.first_audio_ms, first.last_audio_ms) == (None, None)
        assert (first.heard, first.heard_s, first.sent_s) == ("", 0.0, 0.0)
        assert second.answers_also == (first.item_id,)

    run_virtual(main())


def test_two_utterances_that_are_answered_as_one_are_two_records() -> None:
    """The second begins while the first still waits for its transcript."""
    stt = ScriptedStt(texts=("Tell me", "about tea"), takes_s=1.5)

    async def main() -> None:
        async with scene(stt=stt) as played:
            await played.say(1.024)
            await played.hear(1.1)
            await played.say(1.024)
            await played.hear(9.0)
        first, second = records_of(played)
        assert (first.outcome, first.text) == ("merged", "Tell me")
        assert first.reply_id is None
        assert second.answers_also == (first.item_id,)
        assert second.text == "about tea"
        assert second.outcome == "answered"

    run_virtual(main())


def test_noise_is_a_record_without_words() -> None:
    async def main() -> None:
        async with scene(stt=ScriptedStt(texts=("",))) as played:
            await played.say(0.5)
            await played.hear(2.0)
        [record] = records_of(played)
        assert (record.origin, record.outcome, record.text) == ("voice", "rejected", "")
        [rejected] = played.events(events.SpeechRejected)
        assert record.item_id == rejected.item_id
        assert record.endpoint_ms is not None

    run_virtual(main())


@pytest.mark.parametrize("engine", ["stt", "llm", "tts"])
def test_a_failing_engine_is_a_failed_turn_that_says_why(engine: str) -> None:
    broken = EngineError(f"The {engine} broke")

    async def main() -> None:
        async with scene(
            stt=ScriptedStt(error=broken if engine == "stt" else None),
            llm=ScriptedLlm(errors=[broken] if engine == "llm" else []),
            tts=ScriptedTts(error=broken if engine == "tts" else None),
        ) as played:
            await played.say(1.024)
            await played.hear(3.0)
        [record] = records_of(played)
        assert (record.outcome, record.status) == ("failed", "failed")
        assert record.error == f"The {engine} broke"
        assert record.text == (None if engine == "stt" else "hello")

    run_virtual(main())


def test_a_failing_turn_detector_fails_no_turn() -> None:
    class BrokenTurn(ScriptedTurn):
        async def score(self, *args: object) -> float:
            raise EngineError("The detector broke")

    async def main() -> None:
        async with scene(turn=BrokenTurn()) as played:
            await played.say(1.024)
            await played.hear(5.0)
        [record] = records_of(played)
        assert record.outcome == "answered"

    run_virtual(main())


def test_the_client_cancels() -> None:
    async def main() -> None:
        async with scene() as played:
            await played.say(1.024)
            await played.hear(1.0)
            await played.do(CancelResponse())
            await played.hear(1.0)
        [record] = records_of(played)
        assert (record.outcome, record.reason) == ("cancelled", "client_cancelled")

    run_virtual(main())


def test_a_client_that_truncates_while_the_answer_goes_on_is_believed() -> None:
    async def main() -> None:
        async with scene() as played:
            await played.say(1.024)
            await played.hear(1.5)
            item = played.events(events.ReplyItemStarted)[0].item
            await played.do(TruncateItem(item.id, 0, 300), CancelResponse())
        [record] = records_of(played)
        assert record.heard_s == 0.3
        assert record.heard == "Hello"

    run_virtual(main())


def test_speech_that_the_client_clears_is_dropped() -> None:
    async def main() -> None:
        async with scene() as played:
            await played.say(1.0)
            await played.do(ClearAudio())
            await played.say(1.0)
            await played.do(Configure(PUSH_TO_TALK), Configure(VOICE))
            await played.hear(0.5)
            await played.say(1.0)
            await played.hear(5.0)
        outcomes = [record.outcome for record in records_of(played)]
        assert outcomes == ["dropped", "dropped", "answered"]

    run_virtual(main())


@pytest.mark.parametrize(
    ("quiet_s", "text"), [(0.0, None), (0.06, None), (0.5, "hello"), (1.5, "hello")]
)
def test_a_session_that_ends_in_the_middle_leaves_a_record(
    quiet_s: float, text: str | None
) -> None:
    """While somebody speaks, in the first silent frames, before and after the first audio."""

    async def main() -> None:
        async with scene() as played:
            await played.say(1.024)
            await played.hear(quiet_s)
        [record] = records_of(played)
        assert (record.outcome, record.text) == ("shutdown", text)

    run_virtual(main())


# --- other origins -----------------------------------------------------------------------------


def test_push_to_talk_counts_from_the_commit() -> None:
    async def main() -> None:
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

    run_virtual(main())


def test_two_commits_and_one_request_are_answered_together() -> None:
    async def main() -> None:
        async with scene(config=PUSH_TO_TALK) as played:
            for _ in range(2):
                await played.say(1.0)
                await played.do(CommitAudio())
            await played.do(CreateResponse())
            await played.hear(5.0)
        first, second = records_of(played)
        assert (first.outcome, second.outcome) == ("merged", "answered")
        assert second.answers_also == (first.item_id,)

    run_virtual(main())


def test_a_typed_question_and_a_bare_request() -> None:
    config = replace(VOICE, modality="text")

    async def main() -> None:
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

    run_virtual(main())


def test_an_out_of_band_answer_takes_no_turn_away() -> None:
    aside = ResponseOptions(in_conversation=False, modality="text", input=())

    async def main() -> None:
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

    run_virtual(main())


def test_a_turn_that_nobody_answers_is_known_at_the_end() -> None:
    async def main() -> None:
        detection = TurnDetection(create_response=False)
        async with scene(config=replace(VOICE, turn_detection=detection)) as played:
            await played.say(1.024)
            await played.hear(2.0)
        [record] = records_of(played)
        assert (record.outcome, record.text, record.reply_id) == ("unanswered", "hello", None)
        assert record.endpoint_ms is not None
        assert record.transcript_ms is not None

    run_virtual(main())


def test_a_session_that_only_transcribes_has_its_records_at_once() -> None:
    async def main() -> None:
        async with scene(config=replace(VOICE, answers=False)) as played:
            await played.say(1.024)
            await played.hear(2.0)
            recorder = TurnRecorder(answers=False)
            [record] = [r for at, event in played.log for r in recorder.feed(at, event)]
        assert (record.outcome, record.text) == ("unanswered", "hello")

    run_virtual(main())


def test_the_idle_timeout_is_a_silent_origin() -> None:
    config = replace(VOICE, turn_detection=TurnDetection(idle_timeout_ms=5000))

    async def main() -> None:
        async with scene(config=config) as played:
            await played.say(1.024)
            await played.hear(10.0)
        spoken, unasked = records_of(played)[:2]
        assert (spoken.origin, unasked.origin) == ("voice", "silence")
        assert unasked.text == ""
        assert unasked.outcome == "answered"

    run_virtual(main())


def test_tool_calls_are_counted() -> None:
    llm = ScriptedLlm(answers=[("Dancing now. ", ToolCall("dance", "{}"), ToolCall("dance", "{}"))])

    async def main() -> None:
        async with scene(llm=llm) as played:
            await played.say(1.024)
            await played.hear(5.0)
        [record] = records_of(played)
        assert record.tool_calls == 2

    run_virtual(main())


# --- whatever comes ----------------------------------------------------------------------------

IDS = st.sampled_from(["item_1", "item_2", "item_3"])
REPLIES = st.sampled_from(["resp_1", "resp_2"])
MS = st.integers(0, 5000)
PCM = np.zeros(640, np.int16)
USER_ITEM = IDS.map(lambda id: MessageItem(id, "user", (TextPart("x"),)))
CALL = FunctionCallItem("item_c", "call_1", "dance", "{}")

ANY_EVENT: st.SearchStrategy[Event] = st.one_of(
    st.builds(events.SpeechStarted, IDS, MS),
    st.builds(events.SpeechPaused, IDS, MS, MS),
    st.builds(events.SpeechResumed, IDS, MS),
    st.builds(events.TurnJudged, IDS, st.floats(0, 1), MS, st.just(("sound",))),
    st.builds(events.SpeechStopped, IDS, MS),
    st.builds(events.SpeechRejected, IDS),
    st.builds(events.InputCommitted, IDS, st.none()),
    st.just(events.InputCleared()),
    st.builds(events.IdleTimeout, IDS, MS, MS),
    st.builds(events.TranscriptReady, IDS, st.just("hi"), st.just(1.0)),
    st.builds(events.TranscriptFailed, IDS, st.just("broken")),
    st.builds(events.ItemAdded, USER_ITEM, st.none()),
    st.builds(events.ItemTruncated, IDS, st.just(0), MS),
    st.builds(
        events.ReplyStarted,
        REPLIES,
        st.sampled_from(["audio", "text"]),
        st.booleans(),
        st.just("joe"),
        st.just(AudioFormat()),
        st.none(),
        st.none(),
    ),
    st.builds(events.ReplyText, REPLIES, IDS, st.just(0), st.just("Well, ")),
    st.builds(events.ReplyAudio, REPLIES, IDS, st.just(0), st.just(PCM), st.just(16_000)),
    st.builds(events.ReplyItemFinished, REPLIES, st.just(CALL), st.just(0), st.none()),
    st.builds(events.Timeline, REPLIES, st.floats(0, 100), st.none()),
    st.builds(
        events.ReplyFinished,
        REPLIES,
        st.sampled_from(["completed", "cancelled", "incomplete", "failed"]),
        st.just(()),
        st.just(Usage()),
        st.sampled_from([None, "turn_detected", "client_cancelled", "resumed", "shutdown"]),
    ),
    st.builds(events.SpeculationDiscarded, IDS, st.just(0.5)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(ANY_EVENT, max_size=60))
def test_no_order_of_events_breaks_it_or_loses_a_turn(told: list[Event]) -> None:
    recorder = TurnRecorder()
    records = []
    for n, event in enumerate(told):
        new = recorder.feed(n * 0.01, event)
        if isinstance(event, events.ReplyFinished):
            assert sum(r.reply_id == event.reply_id for r in new) <= 1
        records += new
    records += recorder.close(len(told) * 0.01)
    assert recorder.close(99.0) == []
    assert {record.outcome for record in records} <= set(get_args(Outcome))
    committed = Counter(e.item_id for e in told if isinstance(e, events.InputCommitted))
    seen = Counter(record.item_id for record in records if record.item_id)
    assert all(seen[item_id] >= count for item_id, count in committed.items())
    started = sum(isinstance(event, events.SpeechStarted) for event in told)
    assert started <= seen.total() <= started + committed.total()
    wasted = sum(record.engine_wasted_s for record in records)
    discarded = [e.engine_seconds for e in told if isinstance(e, events.SpeculationDiscarded)]
    assert wasted <= sum(discarded)


def test_what_waits_is_bounded() -> None:
    recorder = TurnRecorder()
    records: list[TurnRecord] = []
    for n in range(3 * MAX_HELD):
        records += recorder.feed(n, events.SpeechStarted(f"item_s{n}", n))
        records += recorder.feed(n, events.InputCommitted(f"item_c{n}", None))
        records += recorder.feed(n, events.ItemAdded(user_text("x" * 10, f"item_t{n}"), None))
    assert len(records) == 4 * MAX_HELD
    assert len(recorder.close(100.0)) == 2 * MAX_HELD


# --- as metadata -------------------------------------------------------------------------------


def test_metadata_fits_the_api_and_has_no_words_in_it() -> None:
    async def main() -> None:
        async with scene(stt=ScriptedStt(texts=("my secret is tea",))) as played:
            await played.say(1.024)
            await played.hear(6.0)
        [record] = records_of(played)
        shown = as_metadata(record)
        assert len(shown) <= MAX_METADATA_PAIRS
        assert all(len(key) <= 64 and len(value) <= 512 for key, value in shown.items())
        assert shown["reachy_voice.outcome"] == "answered"
        assert shown["reachy_voice.first_audio_ms"] == f"{record.first_audio_ms:g}"
        assert not any("tea" in value or "friend" in value for value in shown.values())

    run_virtual(main())


def test_a_bus_publishes_what_it_derives_before_the_event() -> None:
    async def main() -> None:
        bus = events.Bus()
        bus.derive(TurnRecorder().feed)
        seen = bus.subscribe()
        bus.publish(events.SpeechStarted("item_1", 0))
        bus.publish(events.SpeechStopped("item_1", 100))
        bus.publish(events.SpeechRejected("item_1"))
        bus.close()
        assert [type(event).__name__ async for _, event in seen] == [
            *("SpeechStarted", "SpeechStopped", "TurnRecord", "SpeechRejected")
        ]

    run_virtual(main())
