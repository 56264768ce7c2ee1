"""A small run of ``benchmarks.room``: scenes whose outcome is plain, without a model."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from app.settings.model import Settings
from benchmarks.harness.acoustics import to_signal
from benchmarks.harness.ears import Ears
from benchmarks.room.__main__ import PARTS, cases, figures, lines
from benchmarks.room.play import Case, Outcome, RoomScene, play
from benchmarks.room.sounds import SOUNDS, Request
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.registry import EngineOptions
from pipeline.engines.stt.moonshine import MoonshineOptions
from pipeline.engines.turn.smart_turn import SmartTurnOptions
from pipeline.engines.vad.silero import SileroOptions
from tests.benchmarks.level_ears import LevelEars, voice

pytestmark = pytest.mark.quick

SECOND = LISTEN_RATE
NONE = EngineOptions(engine="none")
SETTINGS = Settings(
    vad=SileroOptions(),
    turn=SmartTurnOptions(),
    stt=MoonshineOptions(),
    llm=NONE,
    tts=NONE,
    speaker=NONE,
)


def played(case: Case, sound: Pcm, request: Request | None = None) -> Outcome:
    begin = end = 0
    if request:
        begin, end = 2 * SECOND, 3 * SECOND
    heard = RoomScene(sound, np.zeros(len(sound), np.float32), request, begin, end)
    return play(case, heard, cast(Ears, LevelEars()), SETTINGS)


def speech(level: int, begin_s: float, seconds: float, whole_s: float) -> Pcm:
    sound = np.full(int(whole_s * SECOND), 3, np.int16)
    spoken = voice(level, int(seconds * SECOND))
    sound[int(begin_s * SECOND) :][: len(spoken)] = spoken
    return sound


def test_a_sound_that_is_taken_for_words_is_a_false_turn_and_an_interruption() -> None:
    sound = speech(2000, 8, 1.5, 20)
    silence = played(Case("silence", "servo", 0, 0), sound)
    assert (silence.turns, silence.texts, silence.stopped) == (1, ["apples"], 0)
    answers = played(Case("answers", "servo", 0, 0), sound)
    assert (answers.texts, answers.stopped, answers.lost) == (["apples"], 1, 1)
    assert answers.source == "room 0"


def test_a_person_is_understood_and_the_delay_counts_from_the_last_word() -> None:
    request = Request("p", to_signal(speech(2000, 0, 1, 1)), ("apples", "pears"))
    found = played(Case("words", None, 0, 0), speech(2000, 2, 1, 7), request)
    assert (found.heard, found.wanted, found.kept, found.own_turns) == ("apples", 2, 1, 1)
    assert found.errors == 0
    assert found.over_ms == pytest.approx(600, abs=600)
    assert found.audio_ms is not None
    assert not found.open
    endless = played(Case("others", "reader", 0, 0), speech(2000, 2, 6, 8), request)
    assert endless.open
    assert endless.over_ms is None


def test_the_figures() -> None:
    some = [
        Outcome("others, reader -18 dB", name, 0.01, heard=heard, own_turns=1, over_ms=over_ms,
                open=over_ms is None, wanted=4, kept=kept, spoken=4, errors=4 - kept)
        for name, heard, over_ms, kept in (("a", "x", 400.0, 4), ("b", "", None, 0))
    ]  # fmt: skip
    found = figures(some)["others, reader -18 dB"]
    assert found["over in time"]["value"] == found["never over"]["value"] == 0.5
    assert found["words kept"]["value"] == found["word errors"]["value"] == 0.5
    assert found["missed"]["value"] == 0.5
    assert (found["over P50, ms"]["value"], found["over P90, ms"]["value"]) == (400, 32_000)
    assert any("50.0%" in line for line in lines({"x": found}))
    assert len({case.group for case in cases(PARTS, SOUNDS, 1, 1)}) == 9 + 9 + 12 + 17 + 1 + 1
