"""Where the time of a turn went, and what of it was ours, on intervals that are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.talk.realtime_client import RATE, SpokenTurn
from benchmarks.latency import trace as latency_trace
from benchmarks.latency.clips import Take
from benchmarks.latency.report import answered_as_one, traced_row, turn_row
from benchmarks.latency.run import Played
from benchmarks.latency.trace import Moments, Sent, TraceLog, breakdown, critical_path, steps
from benchmarks.latency.waste import engine_time

Rows = list[dict[str, Any]]

CHUNK_S = 0.02
SPEECH_END = 512 * 32
"""1.024 s, in samples of 16 kHz."""


def sent(seconds: float = 5.0) -> Sent:
    """20 ms chunks, each when it would have been recorded, from time 0."""
    count = round(seconds / CHUNK_S)
    numbers = range(1, count + 1)
    return Sent([n * CHUNK_S for n in numbers], [n * RATE // 50 for n in numbers], RATE)


def call(name: str, began: float, ended: float, work: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "call": name,
        "work": work,
        "began": began,
        "first": ended,
        "ended": ended,
        "complete": True,
        **more,
    }


def event(name: str, at: float, **fields: Any) -> dict[str, Any]:
    return {"event": name, "at": at, **fields}


def engine(method: str, *steps: tuple[float, float, str], asked: str = "") -> dict[str, Any]:
    return {"method": method, "asked": asked, "steps": steps}


def turn_rows(wait_ms: int = 224) -> Rows:
    """Speech ends at 1.0 (the VAD says 1.024); silence is known at 1.07, the gate opens at 1.28."""
    return [
        event("SpeechPaused", 1.07, item_id="i", audio_ms=1024, silence_ms=32),
        event("TurnJudged", 1.16, item_id="i", probability=0.9, wait_ms=wait_ms, reasons=[]),
        call("stt.finish", 1.07, 1.105),
        call("turn.score", 1.106, 1.156),
        call("llm.reply", 1.106, 1.6, first=1.135),
        call("tts.synthesize", 1.17, 1.9, first=1.235),
        event("ReplyStarted", 1.28, reply_id="r"),
        event("ReplyAudio", 1.285, reply_id="r"),
        event("Timeline", 3.0, reply_id="r", first_clause=100.0, first_audio=217.0),
        event("ReplyFinished", 3.0, reply_id="r", status="completed", engine_seconds=0.5),
    ]


def engine_rows() -> Rows:
    """30 ms, 25 + 2 x 10 ms to a clause of three words, 60 ms."""
    return [
        engine("finish", (1.071, 1.101, "")),
        engine(
            "reply",
            (1.107, 1.132, "One "),
            (1.133, 1.143, "two "),
            (1.144, 1.154, "three, "),
            (1.155, 1.165, "four "),
            asked="hello",
        ),
        engine(
            "synthesize",
            (1.171, 1.201, ""),
            (1.201, 1.216, ""),
            (1.217, 1.232, "audio"),
            (1.24, 1.4, "audio"),
            asked="One two three,",
        ),
    ]


def moments(received_at: float = 1.287) -> Moments:
    return Moments(0.0, 1.0, received_at, sent())


def test_the_moments_of_a_turn_count_from_the_last_speech_sample() -> None:
    found = breakdown(TraceLog.of(turn_rows()), moments())
    expected = {
        "silence_known": 70,
        "stt_begins": 70,
        "stt_final": 105,
        "llm_begins": 106,
        "first_token": 135,
        "first_clause": 168,
        "tts_begins": 170,
        "tts_first_audio": 235,
        "judged": 160,
        "gate": 280,
        "audio_sent": 285,
        "received": 287,
    }
    assert found == pytest.approx(expected)
    assert list(found) == list(latency_trace.BREAKDOWN)
    took = steps(found)
    assert took["transcript"] == pytest.approx(35)
    assert took["voice"] == pytest.approx(65)
    assert took["gate_after_speech"] == pytest.approx(45)
    assert took["sending"] == pytest.approx(5)
    assert took["receiving"] == pytest.approx(2)
    assert steps({"gate": 1.0}) == {}


def test_overhead_is_what_comes_after_the_gate_where_the_gate_is_last() -> None:
    best = critical_path(TraceLog.of(turn_rows(), engine_rows()), moments())
    assert best
    # Silent windows to 1.056 and 1.248 were in the chunks that left at 1.06 and 1.26.
    assert best.transcript == pytest.approx(1.06 + 0.030)
    assert best.clause == pytest.approx(1.09 + 0.045)
    assert best.speech == pytest.approx(1.135 + 0.060)
    assert best.decided == pytest.approx(1.09 + 0.050)
    assert best.gate == pytest.approx(1.26)
    assert best.overhead_ms == pytest.approx(27)


def test_overhead_is_what_comes_after_the_speech_where_the_engines_are_last() -> None:
    rows = turn_rows()
    slow = engine_rows()
    slow[2]["steps"] = [(1.171, 1.201, ""), (1.201, 1.371, "audio")]
    late = next(r for r in rows if r.get("call") == "tts.synthesize")
    late["first"] = 1.375
    next(r for r in rows if r.get("event") == "ReplyAudio")["at"] = 1.377
    best = critical_path(TraceLog.of(rows, slow), moments(received_at=1.38))
    assert best
    assert best.speech == pytest.approx(1.135 + 0.200)
    assert best.overhead_ms == pytest.approx(45)


def test_waiting_between_the_steps_of_an_engine_is_ours() -> None:
    slow = engine_rows()
    slow[1]["steps"] = [(1.107, 1.132, "One "), (1.143, 1.153, "two "), (1.254, 1.264, "three, ")]
    best = critical_path(TraceLog.of(turn_rows(), slow), moments())
    assert best
    assert best.clause == pytest.approx(1.09 + 0.045)


def test_what_began_before_the_pause_is_not_moved_behind_it() -> None:
    rows = [r for r in turn_rows() if r.get("call") not in ("llm.reply", "tts.synthesize")]
    rows += [call("llm.reply", 0.9, 1.3, work=2, first=0.93)]
    rows += [call("tts.synthesize", 0.96, 1.3, work=2, first=1.03)]
    early = engine_rows()
    early[1]["steps"] = [(0.9, 0.925, "One "), (0.93, 0.94, "two "), (0.94, 0.95, "three, ")]
    early[2]["steps"] = [(0.96, 1.02, "audio")]
    best = critical_path(TraceLog.of(rows, early), moments())
    assert best
    assert best.clause == pytest.approx(0.945)
    assert best.speech == pytest.approx(1.005)
    assert best.gate == pytest.approx(1.26)


def test_a_late_decision_is_not_our_overhead() -> None:
    rows = turn_rows(wait_ms=32)
    next(r for r in rows if r.get("call") == "turn.score").update(began=1.106, ended=1.506)
    next(r for r in rows if r.get("event") == "TurnJudged")["at"] = 1.507
    for name, at in (("ReplyStarted", 1.508), ("ReplyAudio", 1.509)):
        next(r for r in rows if r.get("event") == name)["at"] = at
    best = critical_path(TraceLog.of(rows, engine_rows()), moments(received_at=1.51))
    assert best
    assert best.decided == pytest.approx(1.09 + 0.400)
    assert best.overhead_ms == pytest.approx(20)


def test_a_turn_detector_that_runs_beside_the_recogniser_could_begin_with_the_pause() -> None:
    rows = turn_rows(wait_ms=32)
    next(r for r in rows if r.get("call") == "turn.score").update(began=1.072, ended=1.152)
    best = critical_path(TraceLog.of(rows, engine_rows()), moments())
    assert best
    assert best.decided == pytest.approx(1.06 + 0.080)


def test_a_decision_by_words_alone_could_be_made_with_the_transcript() -> None:
    rows = [r for r in turn_rows(wait_ms=32) if r.get("call") != "turn.score"]
    best = critical_path(TraceLog.of(rows, engine_rows()), moments())
    assert best
    assert best.decided == best.transcript


@pytest.mark.parametrize("absent", ["stt.finish", "llm.reply", "tts.synthesize", "TurnJudged"])
def test_without_all_of_its_calls_a_turn_has_no_overhead(absent: str) -> None:
    rows = [r for r in turn_rows() if absent not in (r.get("call"), r.get("event"))]
    assert critical_path(TraceLog.of(rows, engine_rows()), moments()) is None


def test_events_that_belong_to_another_turn_give_no_overhead() -> None:
    rows = turn_rows()
    rows[0]["audio_ms"] = 2048
    assert critical_path(TraceLog.of(rows, engine_rows()), moments()) is None
    log = TraceLog.of(turn_rows(), engine_rows())
    assert log.chain(Moments(5.0, 6.0, 6.3, sent())) is None


def test_an_answer_that_died_unseen_is_not_taken_for_the_one_that_was_heard() -> None:
    died = [
        event("SpeechPaused", 0.5, item_id="i", audio_ms=448, silence_ms=32),
        call("stt.finish", 0.5, 0.535, work=7),
        call("llm.reply", 0.536, 0.7, work=7, complete=False),
        call("tts.synthesize", 0.6, 0.7, work=7, first=0.65, complete=False),
        event("SpeculationDiscarded", 0.7, item_id="i", engine_seconds=0.1),
    ]
    log = TraceLog.of([*turn_rows(), *died], engine_rows())
    chain = log.chain(moments())
    assert chain
    assert chain.tts
    assert chain.tts["work"] == 1
    assert critical_path(log, moments())


def test_a_row_says_where_its_time_went() -> None:
    spoken = SpokenTurn(speech_end_at=1.0, first_audio_at=1.287)
    take = Take("a", "g", np.zeros(1, np.int16), RATE, ((0.0, 1.0, "hello"),))
    played = Played(take, spoken, 0.0, sent(), 0.5, False, ())
    found = traced_row(played, TraceLog.of(turn_rows(), engine_rows()))
    assert found["voice_to_voice"] == 287
    assert found["overhead"] == 27
    assert found["gate_due"] == 260
    assert "overhead" not in traced_row(played, TraceLog.of(turn_rows()))
    silent = replace(played, turn=SpokenTurn(speech_end_at=1.0))
    assert traced_row(silent, TraceLog.of(turn_rows())) == turn_row(silent)


@pytest.mark.parametrize(
    ("asked", "heard_s", "as_one"),
    [
        ("One two three. Four five.", (2.0,), True),
        ("One three. Four five.", (0.4, 2.0), True),
        ("One two three. Four five.", (0.6, 2.0), False),
        ("Four five.", (2.0,), False),
    ],
)
def test_two_sentences_are_answered_as_one_if_the_last_answer_is_to_both(
    asked: str, heard_s: tuple[float, ...], as_one: bool
) -> None:
    engines = engine_rows()
    engines[1]["asked"] = asked
    said = ((0.0, 0.5, "One two three."), (0.8, 1.0, "Four five."))
    take = Take("a", "g", np.zeros(1, np.int16), RATE, said)
    spoken = SpokenTurn(speech_end_at=1.0, first_audio_at=1.287)
    played = Played(take, spoken, 0.0, sent(), 0.5, False, heard_s)
    assert answered_as_one(played, TraceLog.of(turn_rows(), engines)) is as_one
    assert not answered_as_one(played, TraceLog.of([]))


# --- waste -------------------------------------------------------------------------------------


def test_engine_time_of_unsent_answers_is_wasted() -> None:
    died = [
        call("stt.finish", 0.5, 0.530, work=7),
        call("turn.score", 0.53, 0.58, work=7),
        call("llm.reply", 0.54, 0.6, work=7, complete=False),
        call("tts.synthesize", 0.599, 0.6, work=7, first=None, complete=False),
        call("llm.warm", 0.7, 0.9, work=8),
        event("SpeculationDiscarded", 0.7, item_id="i", engine_seconds=0.14),
    ]
    engines = [
        *engine_rows(),
        engine("finish", (0.5, 0.530, "")),
        engine("reply", (0.54, 0.565, "One "), (0.57, 0.58, "two ")),
    ]
    spent = engine_time(TraceLog.of([*turn_rows(), *died], engines))
    # The voice was stopped before it began; the language model read ahead for everybody.
    assert spent.wasted == pytest.approx(0.030 + 0.050 + 0.035)
    assert spent.used == pytest.approx(0.030 + 0.050 + 0.055 + 0.220)
    assert spent.share == pytest.approx(0.115 / 0.470)
    assert spent.booked_share == pytest.approx(0.14 / 0.64)
    assert spent.discarded == 1
    assert spent.booked_cut_off == 0


def test_without_notes_of_the_engines_a_call_counts_as_long_as_it_was_waited_for() -> None:
    spent = engine_time(TraceLog.of(turn_rows()))
    assert spent.used == pytest.approx(0.035 + 0.050 + 0.494 + 0.73)
    assert spent.wasted == 0
    assert engine_time(TraceLog()).share is None
