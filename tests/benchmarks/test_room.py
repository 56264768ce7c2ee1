"""A small run of ``benchmarks.room``: scenes with an obvious outcome, without a model."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from app.settings.model import Settings
from benchmarks.harness.ears import Ears
from benchmarks.room.play import Case, Outcome, RoomScene, play
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


def played(case: Case, sound: Pcm) -> Outcome:
    heard = RoomScene(sound, np.zeros(len(sound), np.float32), None, 0, 0)
    return play(case, heard, cast(Ears, LevelEars()), SETTINGS)


def speech(level: int, begin_s: float, seconds: float, whole_s: float) -> Pcm:
    sound = np.full(int(whole_s * SECOND), 3, np.int16)
    spoken = voice(level, int(seconds * SECOND))
    sound[int(begin_s * SECOND) :][: len(spoken)] = spoken
    return sound


def test_a_sound_taken_for_words_is_a_false_turn_and_an_interruption() -> None:
    sound = speech(2000, 8, 1.5, 20)
    silence = played(Case("silence", "servo", 0, 0), sound)
    assert (silence.turns, silence.texts, silence.stopped) == (1, ["apples"], 0)
    answers = played(Case("answers", "servo", 0, 0), sound)
    assert (answers.texts, answers.stopped, answers.lost) == (["apples"], 1, 1)
    assert answers.source == "room 0"
