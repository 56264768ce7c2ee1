"""The fold behind turn records on its own: events in, records out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import events
from pipeline.audio import AudioFormat
from pipeline.events import Event
from pipeline.items import FunctionCallItem, MessageItem, TextPart
from pipeline.messages import Usage
from pipeline.telemetry.turn_recorder import MAX_WAITING, TurnRecorder
from pipeline.turn_record import (
    MAX_METADATA_PAIRS,
    Judgement,
    Outcome,
    Pause,
    TurnRecord,
    as_metadata,
)
from reachy_voice.testing import ScriptedStt, play, say, silence, text_item
from tests.support.turn_records import records_of

pytestmark = pytest.mark.quick

GOLDEN: list[tuple[float, Event]] = [
    (1.0, events.SpeechStarted("item_1", 700)),
    (2.0, events.SpeechPaused("item_1", 1968, 32)),
    (2.05, events.TurnJudged("item_1", 0.4, 900, ("leaning word",))),
    (2.4, events.SpeechResumed("item_1", 2368)),
    (2.4, events.SpeculationDiscarded("item_1", 0.125)),
    (3.0, events.SpeechPaused("item_1", 2968, 32)),
    (3.05, events.TurnJudged("item_1", 0.7, 500, ("question",))),
    (3.1, events.TurnJudged("item_1", 0.95, 200, ("sound", "question"))),
    (3.2, events.SpeechStopped("item_1", 3000)),
    (3.2, events.InputCommitted("item_1", None)),
    (3.2, events.TranscriptReady("item_1", "is it the tea?", 2.3)),
    (3.2, events.ReplyStarted("resp_1", "audio", True, "joe", AudioFormat(), None, None)),
    (3.25, events.ReplyText("resp_1", "item_2", 0, "Yes, it is")),
    (3.25, events.ReplyAudio("resp_1", "item_2", 0, np.zeros(8000, np.int16), 8000)),
    (3.5, events.ReplyText("resp_1", "item_2", 0, " the tea.")),
    (3.5, events.ReplyAudio("resp_1", "item_2", 0, np.zeros(8000, np.int16), 8000)),
    (4.75, events.SpeechStarted("item_3", 4500)),
    (
        4.75,
        events.Timeline(
            *("resp_1", 232.0, 80.0, 150.0, 200.0),
            first_audio=282.0,
        ),
    ),
    (
        4.75,
        events.ReplyFinished(
            *("resp_1", "cancelled", (), Usage(40, 30, 10, 8), "turn_detected"),
            engine_seconds=0.75,
        ),
    ),
]


def whole(told: Sequence[TurnRecord | events.TurnUnderWay]) -> list[TurnRecord]:
    return [each for each in told if isinstance(each, TurnRecord)]


def test_a_whole_turn_to_the_last_figure() -> None:
    recorder = TurnRecorder()
    told = [each for at, event in GOLDEN for each in recorder.feed(at, event)]
    glance, record = told
    assert isinstance(glance, events.TurnUnderWay)
    assert isinstance(record, TurnRecord)
    assert (glance.record.text, glance.record.reply_id) == (record.text, record.reply_id)
    assert rounded(glance.record.first_audio_ms) == 282.0
    last = (
        Judgement(82.0, 0.7, 500, ("question",)),
        Judgement(132.0, 0.95, 200, ("sound", "question")),
    )
    # Rounded, since time differences are not exact.
    assert rounded(record) == (
        TurnRecord(
            origin="voice",
            outcome="interrupted",
            item_id="item_1",
            reply_id="resp_1",
            text="is it the tea?",
            heard="Yes, it is the",
            speech_start_sample=700 * 16,
            speech_end_sample=3000 * 16,
            pauses=(
                Pause(1968 * 16, 400, (Judgement(82.0, 0.4, 900, ("leaning word",)),)),
                Pause(2968 * 16, None, last),
            ),
            endpoint_ms=232.0,
            transcript_ms=80.0,
            first_token_ms=150.0,
            first_clause_ms=200.0,
            first_audio_ms=282.0,
            last_audio_ms=532.0,
            ended_ms=1782.0,
            status="cancelled",
            reason="turn_detected",
            usage=Usage(40, 30, 10, 8),
            speculations_begun=2,
            speculations_discarded=1,
            engine_used_s=0.75,
            engine_wasted_s=0.125,
            sent_s=2.0,
            heard_s=1.5,
        )
    )
    assert record.judgement is not None
    assert record.judgement.probability == 0.95


def rounded(value: Any) -> Any:
    """The record with floats rounded to six decimals."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, tuple):
        return tuple(map(rounded, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: rounded(getattr(value, f.name)) for f in fields(value)})
    return value


# --- whatever comes --------------------------------------------------------------------------

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
    st.builds(events.SpeechRejected, IDS, st.just(0.25)),
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


@settings(max_examples=300)
@given(st.lists(ANY_EVENT, max_size=60))
def test_no_order_of_events_raises_or_loses_a_turn(told: list[Event]) -> None:
    recorder = TurnRecorder()
    records: list[TurnRecord] = []
    for n, event in enumerate(told):
        new = whole(recorder.feed(n * 0.01, event))
        if isinstance(event, events.ReplyFinished):
            assert sum(r.reply_id == event.reply_id for r in new) <= 1
        records += new
    records += whole(recorder.close(len(told) * 0.01))
    assert recorder.close(99.0) == []
    assert {record.outcome for record in records} <= set(get_args(Outcome))
    committed = Counter(e.item_id for e in told if isinstance(e, events.InputCommitted))
    seen = Counter(record.item_id for record in records if record.item_id)
    assert all(seen[item_id] >= count for item_id, count in committed.items())
    started = sum(isinstance(event, events.SpeechStarted) for event in told)
    # An answer cut off near its beginning is given again, with its own record.
    again = sum(isinstance(e, events.ReplyFinished) and e.reason == "turn_detected" for e in told)
    assert started <= seen.total() <= started + committed.total() + again
    wasted = sum(record.engine_wasted_s for record in records)
    vain = events.SpeculationDiscarded | events.SpeechRejected
    assert wasted <= sum(e.engine_seconds for e in told if isinstance(e, vain))


def test_waiting_turns_are_bounded() -> None:
    recorder = TurnRecorder()
    records: list[TurnRecord] = []
    for n in range(3 * MAX_WAITING):
        records += whole(recorder.feed(n, events.SpeechStarted(f"item_s{n}", n)))
        records += whole(recorder.feed(n, events.InputCommitted(f"item_c{n}", None)))
        typed = text_item(f"item_t{n}", "x" * 10)
        records += whole(recorder.feed(n, events.ItemAdded(typed, None)))
    assert len(records) == 4 * MAX_WAITING
    assert len(recorder.close(100.0)) == 2 * MAX_WAITING


# --- as metadata -----------------------------------------------------------------------------


def test_metadata_fits_the_api_and_has_no_words() -> None:
    played = play(say(1.024), silence(6.0), stt=ScriptedStt(texts=("my secret is tea",)))
    [record] = records_of(played)
    shown = as_metadata(record)
    assert len(shown) <= MAX_METADATA_PAIRS
    assert all(len(key) <= 64 and len(value) <= 512 for key, value in shown.items())
    assert shown["reachy_voice.outcome"] == "answered"
    assert shown["reachy_voice.first_audio_ms"] == f"{record.first_audio_ms:g}"
    assert not any("tea" in value or "friend" in value for value in shown.values())
