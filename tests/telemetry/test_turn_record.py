"""Turn records: the outcome of a turn, whatever ends it and however late its answer is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeline import commands, events
from pipeline.engines.contract import ToolCall
from pipeline.errors import EngineError
from pipeline.items import MessageItem
from pipeline.messages import Usage
from pipeline.telemetry.turn_recorder import TurnRecorder
from pipeline.turn_record import TurnRecord
from reachy_voice.testing import (
    AT_ONCE,
    PUSH_TO_TALK,
    VOICE,
    Act,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurn,
    play,
    say,
    silence,
    wait,
    write,
)
from tests.support.turn_records import records_of

pytestmark = pytest.mark.quick

SAID = say(1.024)
GREETED = "Hello there, my friend. How are you?"
LONG = ("Hello there, ", "my friend. ") * 4
ASIDE = commands.ResponseOptions(in_conversation=False, modality="text", input=())
ASK = commands.CreateResponse()


def detecting(**fields: Any) -> Any:
    return replace(VOICE, turn_detection=commands.TurnDetection(**fields))


def heard_as(*texts: str, **how: Any) -> ScriptedStt:
    return ScriptedStt(texts=texts, **how)


def recorded(*acts: Act, **options: Any) -> list[TurnRecord]:
    return records_of(play(*acts, **options))


# --- a turn that is answered -------------------------------------------------------------------


def test_a_spoken_turn_has_all_times_and_figures() -> None:
    played = play(SAID, silence(6.0), stt=heard_as("who are you?"))
    [record] = records_of(played)
    assert (record.origin, record.outcome) == ("voice", "answered")
    assert (record.status, record.reason, record.error) == ("completed", None, None)
    [speech] = played.events(events.InputCommitted)
    [reply] = played.events(events.ReplyStarted)
    assert (record.item_id, record.reply_id) == (speech.item_id, reply.reply_id)
    assert (record.text, record.heard) == ("who are you?", GREETED)
    [timeline] = played.events(events.Timeline)
    for moment in ("endpoint", "transcript", "first_token", "first_clause", "first_audio"):
        assert getattr(record, f"{moment}_ms") == getattr(timeline, moment)
    # 2.1 s of speech: the first 2 s are sent 40 ms ahead of the player, the rest at once
    assert record.first_audio_ms is not None
    assert record.last_audio_ms == pytest.approx(record.first_audio_ms + 2000 - 40, abs=45)
    assert record.ended_ms == pytest.approx(record.last_audio_ms, abs=1)
    assert record.usage == Usage(10, 4, 6, 7)
    assert record.sent_s == record.heard_s == pytest.approx(2.1)
    assert (record.speculations_begun, record.speculations_discarded) == (1, 0)
    assert record.engine_wasted_s == 0


def test_a_resumed_pause_is_recorded_with_its_wasted_work() -> None:
    acts, turn = (say(1.0), silence(0.5), say(1.0), silence(5.0)), ScriptedTurn(probability=0.2)
    [record] = recorded(*acts, stt=heard_as("I want", "I want some tea"), turn=turn)
    inner, last = record.pauses
    assert inner.lasted_ms == pytest.approx(500, abs=40)
    assert last.lasted_ms is None
    assert inner.judgements
    assert (record.speculations_begun, record.speculations_discarded) == (2, 1)
    assert (record.text, record.outcome) == ("I want some tea", "answered")


# --- what becomes of turns ---------------------------------------------------------------------


def row(id: str, *acts: Act, expect: list[dict[str, Any]], **options: Any) -> Any:
    """``expect``: attributes of each record."""
    return pytest.param(acts, options, expect, id=id)


def failed(engine: str, text: str | None, **options: Any) -> Any:
    why = {"outcome": "failed", "status": "failed", "error": f"The {engine} broke", "text": text}
    return row(f"the {engine} fails", SAID, silence(3.0), expect=[why], **options)


def broken(engine: str) -> EngineError:
    return EngineError(f"The {engine} broke")


@pytest.mark.parametrize(
    ("acts", "options", "expect"),
    [
        row(
            "push to talk counts from the commit, its answer from what asked for it",
            *(say(1.0), commands.CommitAudio(), wait(0.2), ASK, silence(3.0)),
            config=PUSH_TO_TALK,
            expect=[
                {"origin": "commit", "outcome": "answered", "text": "hello", "heard": GREETED}
                | {"transcript_ms": pytest.approx(60), "first_token_ms": pytest.approx(100)}
                | {"pauses": (), "speculations_begun": 0}
            ],
        ),
        row(
            "a typed question and a bare request",
            *(write("Hi!"), ASK, silence(2.0), ASK, silence(2.0)),
            config=replace(VOICE, modality="text"),
            expect=[
                {"origin": "text", "outcome": "answered", "text": "Hi!", "heard": GREETED}
                | {"sent_s": 0.0, "first_audio_ms": None},
                {"origin": "request", "text": None},
            ],
        ),
        row(
            "an answer out of band takes no turn away",
            *(SAID, silence(1.0), commands.CreateResponse(ASIDE), silence(2.0), ASK, silence(5.0)),
            config=detecting(create_response=False),
            expect=[
                {"in_conversation": False, "origin": "request", "outcome": "answered"}
                | {"item_id": None},
                {"origin": "voice", "outcome": "answered", "text": "hello"}
                | {"speculations_begun": 0},
            ],
        ),
        row(
            "the idle timeout is a silent origin",
            *(SAID, silence(10.0)),
            config=detecting(idle_timeout_ms=5000),
            expect=[
                {"origin": "voice"},
                {"origin": "silence", "text": "", "outcome": "answered"},
            ],
        ),
        row(
            "tool calls are counted",
            *(SAID, silence(5.0)),
            llm=ScriptedLlm(answers=[("Dancing now. ", *[ToolCall("dance", "{}")] * 2)]),
            expect=[{"tool_calls": 2}],
        ),
        row(
            "noise costs what was spent on it",
            *(say(0.512), silence(2.0)),
            stt=heard_as("", takes_s=0.125),
            expect=[
                {"origin": "voice", "outcome": "rejected", "text": ""}
                | {"engine_wasted_s": pytest.approx(0.125)}
            ],
        ),
        failed("stt", None, stt=ScriptedStt(error=broken("stt"))),
        failed("llm", "hello", llm=ScriptedLlm(errors=[broken("llm")] * 2)),
        failed("tts", "hello", tts=ScriptedTts(error=broken("tts"))),
        row(
            "the client cancels",
            *(SAID, silence(1.0), commands.CancelResponse(), silence(1.0)),
            expect=[{"outcome": "cancelled", "reason": "client_cancelled"}],
        ),
        row(
            "a client that truncates while the answer goes on is believed",
            *(SAID, silence(1.5)),
            lambda it: it.do(
                commands.TruncateItem(it.events(events.ReplyItemStarted)[0].item.id, 0, 300),
                commands.CancelResponse(),
            ),
            expect=[{"heard_s": 0.3, "heard": "Hello"}],
        ),
        row(
            "speech that the client clears, or that ends with voice activation, is dropped",
            *(say(1.0), commands.ClearAudio(), say(1.0)),
            *(commands.Configure(PUSH_TO_TALK), commands.Configure(VOICE), silence(0.5)),
            *(say(1.0), silence(5.0)),
            expect=[{"outcome": "dropped"}, {"outcome": "dropped"}, {"outcome": "answered"}],
        ),
        *(
            row(f"the session ends {when}", SAID, silence(quiet_s), expect=[
                {"outcome": "shutdown", "text": text}
            ])
            for when, quiet_s, text in (
                ("while somebody speaks", 0.0, None),
                ("in the first silent frames", 0.06, None),
                ("before the first audio", 0.5, "hello"),
                ("after the first audio", 1.5, "hello"),
            )
        ),
        row(
            "an answer that was heard is not given again after noise",
            *(SAID, silence(3.0), say(0.3), silence(3.0), ASK, silence(5.0)),
            stt=heard_as("Tell me", ""),
            settings=AT_ONCE,
            llm=ScriptedLlm(deltas=LONG),
            expect=[
                {"outcome": "interrupted"},
                {"outcome": "rejected"},
                {"origin": "request", "item_id": None, "answers_also": ()},
            ],
        ),
        row(
            "a barge-in before the first audio has nothing heard",
            *(SAID, silence(1.0), SAID, silence(8.0)),
            tts=ScriptedTts(first_s=2.0),
            expect=[
                {"outcome": "interrupted", "first_audio_ms": None, "last_audio_ms": None}
                | {"heard": "", "heard_s": 0.0, "sent_s": 0.0},
                {},
            ],
        ),
    ],
)  # fmt: skip
def test_each_turn_has_its_outcome(acts, options, expect) -> None:  # type: ignore[no-untyped-def]
    records = recorded(*acts, **options)
    found = [
        {name: getattr(record, name) for name in wanted}
        for record, wanted in zip(records, expect, strict=True)
    ]
    assert found == expect


def test_an_unanswered_turn_is_recorded_at_the_end() -> None:
    [record] = recorded(SAID, silence(2.0), config=detecting(create_response=False))
    assert (record.outcome, record.text, record.reply_id) == ("unanswered", "hello", None)
    assert None not in (record.endpoint_ms, record.transcript_ms)


def test_a_transcription_session_completes_its_records_at_once() -> None:
    played = play(SAID, silence(2.0), config=replace(VOICE, answers=False))
    recorder = TurnRecorder(answers=False)
    [record] = [r for at, event in played.log for r in recorder.feed(at, event)]
    assert (record.outcome, record.text) == ("unanswered", "hello")


def test_an_interrupted_answer_records_heard_audio_and_end() -> None:
    acts = (SAID, silence(3.0), SAID, silence(5.0))
    played = play(*acts, settings=AT_ONCE, llm=ScriptedLlm(deltas=LONG))
    first, second = records_of(played)
    cut = ("interrupted", "cancelled", "turn_detected")
    assert (first.outcome, first.status, first.reason) == cut
    kept = played.session.chat.items[1]
    assert isinstance(kept, MessageItem)
    assert first.heard == kept.text != "".join(LONG)
    assert first.heard_s == pytest.approx(kept.parts[0].seconds, abs=0.001)  # type: ignore[union-attr]
    assert first.sent_s > first.heard_s > 2.0
    cut_at = played.time_of(events.ReplyFinished)
    assert first.ended_ms == pytest.approx((cut_at - 1.024) * 1000, abs=33)
    assert (second.outcome, second.answers_also) == ("answered", ())


def test_noise_records_its_end() -> None:
    played = play(say(0.512), silence(2.0), stt=heard_as(""))
    stopped_at = played.time_of(events.SpeechStopped)
    [record] = records_of(played)
    assert record.endpoint_ms == pytest.approx((stopped_at - 0.512) * 1000, abs=33)


# --- an answer that comes later than its turn --------------------------------------------------

SLOW_VOICE = 0.5
"""Seconds to the first sound; noise in this time ends an answer that has just begun."""
NOISE_OVER_THE_ANSWER = (SAID, silence(0.55), say(0.3))


def slow_voice() -> ScriptedTts:
    return ScriptedTts(first_s=SLOW_VOICE)


def range_of(record: TurnRecord) -> tuple[int | None, int | None]:
    return record.speech_start_sample, record.speech_end_sample


def test_an_answer_repeated_after_noise_has_its_own_record() -> None:
    acts = (*NOISE_OVER_THE_ANSWER, silence(6.0))
    cut, noise, again = recorded(*acts, stt=heard_as("Tell me", ""), tts=slow_voice())
    assert (cut.origin, cut.outcome, cut.heard_s) == ("voice", "interrupted", 0.0)
    assert (noise.outcome, noise.text) == ("rejected", "")
    assert (again.origin, again.outcome, again.text) == ("again", "answered", "Tell me")
    assert (again.item_id, again.answers_also, again.heard) == (cut.item_id, (), GREETED)
    assert again.reply_id != cut.reply_id
    assert range_of(again) == range_of(cut)
    # Counted once, with the turn itself.
    assert cut.pauses != () == again.pauses
    assert again.speculations_begun == 0
    # From the end of the words, not of the noise.
    stopped_at = 1.024 + 0.55 + 0.3 + (noise.endpoint_ms or 0) / 1000
    assert again.endpoint_ms == pytest.approx((stopped_at - 1.024) * 1000, abs=70)
    assert again.first_audio_ms is not None
    assert again.first_audio_ms > again.endpoint_ms + SLOW_VOICE * 1000


def test_an_answer_given_again_outlasts_noise() -> None:
    acts = (*NOISE_OVER_THE_ANSWER, silence(0.9), say(0.3), silence(6.0))
    records = recorded(*acts, stt=heard_as("Tell me", "", ""), tts=slow_voice())
    first, second = (record for record in records if record.outcome != "rejected")
    assert (first.origin, first.outcome) == ("voice", "interrupted")
    assert (second.origin, second.outcome) == ("again", "answered")
    assert first.item_id == second.item_id


@pytest.mark.parametrize(
    ("acts", "texts", "options", "outcome", "origin"),
    [
        pytest.param((SAID, silence(0.6), SAID, silence(5.0)), ("Tell me", "about tea"), {},
                     "interrupted", "voice", id="the answer has hardly begun"),
        pytest.param((SAID, silence(1.0), SAID, silence(8.0)), ("Tell me", "about tea"),
                     {"tts": ScriptedTts(first_s=2.0)}, "interrupted", "voice",
                     id="the answer has not begun"),
        pytest.param((SAID, silence(2.6), SAID, silence(9.0)), ("Tell me", "about tea"),
                     {"stt": {"takes_s": 3.0}}, "merged", "voice",
                     id="the first still waits for its transcript"),
        pytest.param((SAID, silence(2.6), say(0.5), commands.CommitAudio(), ASK, silence(9.0)),
                     ("Tell me", "about tea"), {"stt": {"takes_s": 3.0}}, "merged", "voice",
                     id="the client commits while the first waits"),
        pytest.param((*NOISE_OVER_THE_ANSWER, silence(0.9), say(0.6), silence(6.0)),
                     ("Tell me", "", "about tea"), {"tts": slow_voice()}, "interrupted", "voice",
                     id="noise has ended the first answer"),
        pytest.param((SAID, silence(1.1), ASK, silence(0.1), say(0.3), silence(1.5),
                      write("about tea"), ASK, silence(6.0)),
                     ("Tell me", ""), {"tts": slow_voice(),
                      "config": detecting(create_response=False)}, "interrupted", "text",
                     id="noise has ended it and the rest is typed"),
    ],
)  # fmt: skip
def test_turns_answered_together_have_two_records(
    acts: tuple[Act, ...], texts: tuple[str, ...], options: Any, outcome: str, origin: str
) -> None:
    stt = heard_as(*texts, **options.pop("stt", {}))
    records = recorded(*acts, stt=stt, **options)
    first, second = (record for record in records if record.text and record.origin != "again")
    assert (first.outcome, first.text) == (outcome, "Tell me")
    assert (second.origin, second.outcome, second.text) == (origin, "answered", "about tea")
    assert second.answers_also == (first.item_id,)
    assert first.endpoint_ms is not None
    if outcome == "merged":
        assert first.reply_id is None
        assert (first.speech_end_sample or 0) <= (second.speech_start_sample or 0)


def test_a_barely_begun_answer_records_heard_audio() -> None:
    first, _ = recorded(SAID, silence(0.6), SAID, silence(5.0), stt=heard_as("Tell me", "more"))
    assert 0 < first.heard_s < 1.0


def test_a_turn_that_waits_for_another_answer_has_its_own_record() -> None:
    llm = ScriptedLlm(answers=[("One. ", "Two. ", "Three."), ("Tea.",)])
    config, tts = detecting(interrupt_response=False), ScriptedTts(first_s=2.0)
    acts, stt = (SAID, silence(1.0), SAID, silence(12.0)), heard_as("Tell me", "about tea")
    first, second = recorded(*acts, stt=stt, llm=llm, tts=tts, config=config)
    assert (first.outcome, first.text) == ("answered", "Tell me")
    assert (second.origin, second.outcome, second.text) == ("voice", "answered", "about tea")
    assert second.item_id not in (None, first.item_id)
    assert (second.answers_also, second.heard) == ((), "Tea.")
    # The turn was over long before its answer could begin.
    assert second.pauses
    assert second.endpoint_ms is not None
    assert second.endpoint_ms > 1000


# --- on the bus --------------------------------------------------------------------------------


def test_a_record_is_published_just_before_its_last_event() -> None:
    played = play(SAID, silence(1.7), SAID, silence(0.1))
    published = played.events(TurnRecord)
    assert published[:-1] == records_of(played)[:-1]
    assert [record.outcome for record in published] == ["interrupted", "shutdown"]
    at = next(n for n, (_, e) in enumerate(played.log) if isinstance(e, TurnRecord))
    assert isinstance(played.log[at + 1].event, events.ReplyFinished)
