"""A small run of ``benchmarks.room``: scenes whose outcome is plain, without a model."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import soundfile

from app.settings.model import Settings
from benchmarks.echo.scenes import RobotVoices, active_dbfs
from benchmarks.harness.acoustics import to_signal
from benchmarks.harness.ears import Ears
from benchmarks.harness.rooms import draw_room
from benchmarks.room.__main__ import PARTS, cases, figures, lines
from benchmarks.room.play import Case, Outcome, RoomScene, play, scene
from benchmarks.room.sounds import SOUNDS, Home, Request, shorten
from benchmarks.turns.people import Packages
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.registry import EngineOptions
from pipeline.engines.stt.moonshine import MoonshineOptions
from pipeline.engines.turn.smart_turn import SmartTurnOptions
from pipeline.engines.vad.silero import SileroOptions
from tests.benchmarks.level_ears import LevelEars, labelled_turn, voice
from tests.support.echo_sound import pcm, speechlike

pytestmark = pytest.mark.quick

SECOND = LISTEN_RATE
NONE = EngineOptions(engine="none")
SETTINGS = Settings(
    vad=SileroOptions(), turn=SmartTurnOptions(), stt=MoonshineOptions(), llm=NONE, tts=NONE
)


class Voices:
    """Something like speech for every text."""

    def say(self, voice: str, text: str) -> Pcm:
        return spoken(len(text) % 3)


@cache
def spoken(seed: int) -> Pcm:
    return pcm(speechlike(1.5, seed))


@pytest.fixture(scope="module")
def home() -> Home:
    return Home(cast(RobotVoices, Voices()), None, Packages())


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


def test_a_sound_has_the_requested_level_and_a_room_is_the_same_for_all(home: Home) -> None:
    rooms = [scene(Case("others", "reader", db, 3), home, 0) for db in (-18, -6)]
    quiet, loud = (active_dbfs(each.beside) for each in rooms)
    assert loud - quiet == pytest.approx(12, abs=0.1)
    assert rooms[0].end == rooms[1].end
    request = rooms[0].request
    assert request
    assert request.slots


@pytest.mark.parametrize("sound", [each for each in SOUNDS if each != "music"])
def test_sounds_are_seeded(sound: Any, home: Home) -> None:
    one, other = (
        home.at_mic(sound, draw_room(np.random.default_rng(5)), SECOND, np.random.default_rng(5))
        for _ in range(2)
    )
    assert len(one) == SECOND
    assert np.array_equal(one, other)
    assert one.any()


def test_silences_are_shortened() -> None:
    said = speechlike(1, 1)
    long = np.concatenate((said, np.zeros(2 * SECOND, np.float32), said))
    assert len(shorten(long, 0.4)) == pytest.approx(len(long) - 1.6 * SECOND, abs=0.1 * SECOND)


def test_people_are_taken_from_a_folder(tmp_path: Path) -> None:
    labelled_turn(tmp_path / "set")
    loud = np.full((2 * SECOND, 2), 2000, np.int16)
    soundfile.write(tmp_path / "set" / "b.wav", loud, LISTEN_RATE)
    (tmp_path / "set" / "intents.json").write_text('{"a": {"slots": {"size": "12 Ounce"}}}')
    home = Home(cast(RobotVoices, Voices()), tmp_path, Packages())
    assert home.requests == 1
    assert (home.request(5).name, home.request(5).slots) == ("a", ("twelve", "ounce"))
    rng = np.random.default_rng(1)
    assert home.at_mic("television", draw_room(rng), SECOND, rng).any()


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
