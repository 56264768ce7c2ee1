"""A recorded session, played again, does the same: whatever happened in it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.commands import TurnDetection
from pipeline.conversation.memory import Memory
from pipeline.errors import ConfigError
from pipeline.recording.difference import compare
from pipeline.recording.reading import HeldSession, read_file
from pipeline.recording.replay import Replayed, changed, replay
from pipeline.recording.tape import Tape
from pipeline.settings import SessionSettings
from tests.support.recorded_scenarios import (
    SCENARIOS,
    Scenario,
    barge_in,
    broken_engines,
    partials,
    question,
    speculation,
)
from tests.support.recorded_scene import VOICE, record, recorded, recorded_scene
from tests.support.scripted import ScriptedLlm, ScriptedStt, ScriptedTurn


def names(replayed: Replayed) -> list[str]:
    return [type(event).__name__ for _, event in replayed.published]


def outcomes(replayed: Replayed) -> list[str]:
    return [record.outcome for _, record in replayed.records]


# --- the same again ----------------------------------------------------------------------------


@pytest.mark.parametrize("play", SCENARIOS)
def test_a_replay_does_what_was_recorded(play: Scenario, tmp_path: Path) -> None:
    held = recorded(tmp_path / "r.jsonl", play)
    assert held.whole
    replayed = replay(held)
    assert replayed.stopped is None
    comparison = compare(held.events, replayed.events)
    assert comparison.difference is None
    assert comparison.events == len(held.events) == len(replayed.events) > 5
    assert comparison.largest_ms < 1


@pytest.mark.parametrize("play", [barge_in, speculation, partials, broken_engines])
def test_two_replays_give_the_same_bytes(play: Scenario, tmp_path: Path) -> None:
    held = recorded(tmp_path / "r.jsonl", play)
    first, second = ("\n".join(replay(held).lines("s")) for _ in range(2))
    assert first == second
    again = read_file(tmp_path / "r.jsonl").sessions[held.name]
    assert "\n".join(replay(again).lines("s")) == first


def test_a_replay_has_the_turn_records(tmp_path: Path) -> None:
    replayed = replay(recorded(tmp_path / "r.jsonl", barge_in))
    assert outcomes(replayed) == ["interrupted", "interrupted", "answered"]
    texts = [record.text for _, record in replayed.records]
    assert texts == ["who are you?", "stop", "thanks"]


def test_a_conversation_that_goes_on_in_a_second_session(tmp_path: Path) -> None:
    numbers = itertools.count(1).__next__

    async def twice(tape: Tape) -> None:
        async with recorded_scene(tape, numbers=numbers) as played:
            memory: Memory = played.session.release()
            await played.say(1.0)
            await played.hear(6.0)
        async with recorded_scene(tape, numbers=numbers, memory=memory) as played:
            await played.say(1.0)
            await played.hear(6.0)

    record(tmp_path / "r.jsonl", twice)
    first, second = read_file(tmp_path / "r.jsonl").sessions.values()
    assert len(second.items) == 2
    for held in (first, second):
        replayed = replay(held)
        assert compare(held.events, replayed.events).difference is None
        assert outcomes(replayed) == ["answered"]


# --- what is different -------------------------------------------------------------------------


def first_difference(held: HeldSession) -> str:
    found = compare(held.events, replay(held).events).difference
    assert found is not None
    return found


def test_the_first_difference_is_told_in_plain_words(tmp_path: Path) -> None:
    held = recorded(tmp_path / "r.jsonl", question)
    at, event = next((at, e) for at, e in held.events if e["is"] == "TranscriptReady")
    event["text"] = "something else"
    assert first_difference(held) == (
        f"After {at:.3f} s: TranscriptReady of item_1: text is 'something else' in the recording, "
        f"and 'hello' in the replay."
    )


def test_events_that_are_on_one_side_only(tmp_path: Path) -> None:
    held = recorded(tmp_path / "r.jsonl", question)
    at, last = held.events[-1]
    assert last["is"] == "ReplyFinished"
    held.events.append((at, {"is": "InputCleared"}))
    assert first_difference(held) == f"After {at:.3f} s: InputCleared is not in the replay."
    del held.events[-2:]
    assert "ReplyFinished of resp_" in first_difference(held)
    assert first_difference(held).endswith("is only in the replay.")


def test_times_may_differ_a_little_and_not_much(tmp_path: Path) -> None:
    held = recorded(tmp_path / "r.jsonl", question)
    moved = [(at + 0.02 * (n % 2), event) for n, (at, event) in enumerate(held.events)]
    comparison = compare(moved, held.events)
    assert comparison.difference is None
    assert comparison.largest_ms == pytest.approx(20)
    late = [(at + 0.3, event) for at, event in held.events]
    found = compare(held.events, late).difference
    assert found is not None
    assert found.endswith("SpeechStarted of item_1 comes 300 ms later in the replay.")


def test_a_probability_must_be_equal_though_it_is_a_number(tmp_path: Path) -> None:
    held = recorded(tmp_path / "r.jsonl", question)
    next(e for _, e in held.events if e["is"] == "TurnJudged")["probability"] += 0.001
    assert "probability" in first_difference(held)


def test_what_the_recording_does_not_hold_stops_the_replay_with_a_reason(tmp_path: Path) -> None:
    held = recorded(tmp_path / "r.jsonl", question)
    held.calls = [call for call in held.calls if call.of != "llm.reply"]
    replayed = replay(held)
    assert replayed.stopped is not None
    assert 'asked to answer "hello"' in replayed.stopped
    assert replayed.stopped.startswith("After 1.1")
    assert "ReplyStarted" not in names(replayed)


# --- what if -----------------------------------------------------------------------------------


def always(settings: SessionSettings, wait_ms: int) -> SessionSettings:
    """Every turn ends after this silence."""
    for name in ("clear_wait_ms", "likely_wait_ms", "unsure_wait_ms"):
        settings = changed(settings, f"endpointing.{name}", wait_ms)
    return settings


def test_a_longer_wait_is_a_later_answer(tmp_path: Path) -> None:
    held = recorded(tmp_path / "r.jsonl", question)
    [(_, before)], [(_, after)] = (
        replay(held, always(held.settings, wait_ms)).records for wait_ms in (256, 512)
    )
    assert before.endpoint_ms == pytest.approx(256, abs=35)
    assert after.endpoint_ms == pytest.approx(512, abs=35)
    assert after.first_audio_ms == pytest.approx(512, abs=35)
    assert after.heard == before.heard != ""


def test_what_if_nothing_is_changed_is_the_same(tmp_path: Path) -> None:
    for play in (question, barge_in, speculation):
        held = recorded(tmp_path / "r.jsonl", play)
        replayed = replay(held, held.settings)
        assert replayed.stopped is None
        assert compare(held.events, replayed.events).difference is None


def test_what_was_given_up_may_be_given_up_a_little_later(tmp_path: Path) -> None:
    """The pause of ``speculation`` is one with a longer wait, too, and so is its end."""
    held = recorded(tmp_path / "r.jsonl", speculation)
    given_up = [call for call in held.calls if call.of == "llm.reply" and not call.whole]
    assert given_up
    replayed = replay(held, always(held.settings, 1500))
    assert replayed.stopped is None
    [(_, record)] = replayed.records
    assert record.outcome == "answered"


async def slow_speculation(tape: Tape) -> None:
    """As ``speculation``, with an answer that is not complete when it is given up, and that nobody
    may interrupt."""
    config = replace(VOICE, turn_detection=TurnDetection(interrupt_response=False))
    llm = ScriptedLlm(per_token_s=0.2)
    turn = ScriptedTurn(probability=0.2)
    stt = ScriptedStt(texts=("I want", "I want some tea"))
    async with recorded_scene(tape, config=config, stt=stt, turn=turn, llm=llm) as played:
        await played.say(1.0)
        await played.hear(0.3)
        await played.say(1.0)
        await played.hear(5.0)


@pytest.mark.parametrize(
    ("play", "why"),
    [
        (slow_speculation, "an answer of the language model is needed. The recording does not"),
        (speculation, "s of speech is needed. The recording holds none of exactly that range"),
    ],
)
def test_what_if_goes_as_far_as_the_recording_holds(
    play: Scenario, why: str, tmp_path: Path
) -> None:
    """With a shorter wait the pause ends the turn, whose answer was given up in the recording, and
    what follows is a turn of its own."""
    held = recorded(tmp_path / "r.jsonl", play)
    replayed = replay(held, always(held.settings, 100))
    assert replayed.stopped is not None
    assert why in replayed.stopped
    assert "ReplyStarted" in names(replayed)
    assert replay(held).stopped is None


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("endpointing.clear_wait_ms", -1, "greater than or equal to 0"),
        ("endpointing.nothing", 1, "does not depend on it"),
        ("tts.engine", "piper", "does not depend on it"),
        ("playback.lead_ms", "much", "does not depend on it"),
    ],
)
def test_what_cannot_be_set(name: str, value: object, why: str, tmp_path: Path) -> None:
    held = recorded(tmp_path / "r.jsonl", question)
    with pytest.raises(ConfigError) as raised:
        changed(held.settings, name, value)
    assert why in raised.value.why
    assert "endpointing.unsure_wait_ms" in raised.value.fix


def test_other_settings_that_a_replay_depends_on(tmp_path: Path) -> None:
    held = recorded(tmp_path / "r.jsonl", question)
    settings = changed(held.settings, "playback.lead_ms", 40)
    assert settings.lead_ms == 40
    [(_, record)] = replay(held, settings).records
    [(_, before)] = replay(held).records
    assert record.last_audio_ms is not None
    assert before.last_audio_ms is not None
    assert record.last_audio_ms >= before.last_audio_ms + 40
