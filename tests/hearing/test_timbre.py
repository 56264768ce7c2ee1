"""The timbre of a voice changes; that of a motor, a fan or a hiss does not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from benchmarks.harness.acoustics import (
    Signal,
    gained,
    noise,
    rms_dbfs,
    room_tone,
    to_pcm,
    to_signal,
)
from pipeline.audio import LISTEN_RATE, AudioFrame, Pcm
from pipeline.engines.contract import info_of
from pipeline.engines.registry import Kind
from pipeline.engines.stages import Stages
from pipeline.engines.vad.silero import LEAST_MOVEMENT_DB, SileroVad
from pipeline.hearing.client import ClientHearing
from pipeline.hearing.listening import Listener
from pipeline.hearing.timbre import Motor, movement_db
from pipeline.hearing.tuning import TIMBRE_SHORT, TIMBRE_SHORT_SAMPLES
from pipeline.hearing.turn_taker import TurnStart
from pipeline.settings import Echo, Endpointing
from reachy_voice.testing import LevelVad
from tests.support.pico import spoken_by_pico
from tests.support.recordings import real_recordings

pytestmark = pytest.mark.quick

SECOND = LISTEN_RATE


def servo(seed: int, seconds: float = 1.2) -> Signal:
    """A gliding sawtooth, hiss in its rhythm, and clicks."""
    rng = np.random.default_rng(seed)
    count = round(seconds * LISTEN_RATE)
    turns = np.cumsum(np.linspace(*rng.uniform(90, 250, 2), count)) / LISTEN_RATE
    spectrum = np.fft.rfft(rng.standard_normal(count))
    hz = np.fft.rfftfreq(count, 1 / LISTEN_RATE)
    spectrum[(hz < 2000) | (hz > 6000)] = 0
    hiss = np.fft.irfft(spectrum, count) * (1 + 0.8 * np.sin(2 * np.pi * turns / 4))
    clicks = np.convolve(rng.random(count) < 12 / count, np.exp(-np.arange(200) / 25))[:count]
    whole = 2 * (turns % 1) - 1 + 0.7 * hiss / hiss.std() + 2 * clicks
    return whole.astype(np.float32)


def in_room(sound: Signal, level_dbfs: float = -26.0, room_dbfs: float = -60.0) -> Pcm:
    """A second of the room, then ``sound`` in it."""
    rng = np.random.default_rng(1)
    whole = room_tone(SECOND + len(sound), rng, room_dbfs)
    whole[SECOND:] += gained(sound, level_dbfs - rms_dbfs(sound))
    return to_pcm(whole)


def moves(pcm: Pcm) -> bool:
    found = movement_db(pcm, SECOND)
    assert found is not None
    short = len(pcm) - SECOND < TIMBRE_SHORT_SAMPLES
    return found >= LEAST_MOVEMENT_DB * (TIMBRE_SHORT if short else 1)


@pytest.mark.parametrize("level_dbfs", [-32, -26, -20])
def test_motors_do_not_move(level_dbfs: float) -> None:
    assert not any(moves(in_room(servo(seed), level_dbfs)) for seed in range(20))


@pytest.mark.parametrize("kind", ["pink", "fan", "babble"])
def test_bursts_of_noise_do_not_move(kind: str) -> None:
    rng = np.random.default_rng(2)
    assert not moves(in_room(noise(kind, SECOND, rng)))  # type: ignore[arg-type]


def test_people_move() -> None:
    for recording in real_recordings():
        assert moves(in_room(to_signal(recording.pcm))), recording.name


@pytest.mark.parametrize(
    ("language", "word"),
    [
        ("en", "Stop."),
        ("en", "No."),
        ("de", "Nein."),
        ("fr", "Arrête."),
        ("it", "Sì."),
        ("es", "Para."),
    ],
)
def test_words_move_over_a_motor(language: str, word: str) -> None:
    said = to_signal(spoken_by_pico(word, language))
    motor = servo(3, len(said) / LISTEN_RATE)[: len(said)]
    assert moves(in_room(said))
    assert moves(in_room(said + gained(motor, rms_dbfs(said) - rms_dbfs(motor) - 5.0)))


def test_short_or_drowned_sounds_have_no_verdict() -> None:
    assert movement_db(in_room(servo(1, 0.15)), SECOND) is None
    assert movement_db(in_room(servo(1), -40, -38), SECOND) is None
    assert movement_db(in_room(servo(1))[SECOND:], 0) is None, "the room was not heard"


def test_an_engine_has_its_movement_threshold() -> None:
    assert info_of(Kind.VAD, SileroVad(None)).least_movement_db == LEAST_MOVEMENT_DB


class Sounds:
    """Frames of 32 ms with known moving stretches."""

    def __init__(self, *moving_s: tuple[float, float]) -> None:
        self.motor = Motor(self.moves)
        self.moving_s, self.at = moving_s, 0

    def moves(self, start: int, end: int) -> bool:
        return any(
            start < to_s * SECOND and end > from_s * SECOND for from_s, to_s in self.moving_s
        )

    def hear(self, seconds: float, is_sound: bool = True, turn: bool = False) -> list[bool]:
        begin, found = self.at, []
        for _ in range(round(seconds * SECOND / 512)):
            frame = AudioFrame(np.zeros(512, np.int16), LISTEN_RATE, self.at)
            found.append(self.motor.runs(is_sound, frame, begin if turn else None))
            self.at += 512
        return found


def test_a_motor_that_was_taken_for_a_turn_is_expected_for_30_s() -> None:
    sounds = Sounds()
    assert not any(sounds.hear(1.0)), "none is known yet"
    sounds.hear(1.2, turn=True)
    sounds.hear(25, is_sound=False)
    assert all(sounds.hear(1.2))
    sounds.hear(25, is_sound=False)
    assert all(sounds.hear(1.2)), "each time anew"
    sounds.hear(31, is_sound=False)
    assert not any(sounds.hear(1.2))


def test_a_voice_over_an_expected_motor_is_heard_once_it_moves() -> None:
    sounds = Sounds((6.1, 7.0))
    sounds.hear(1.2, turn=True)
    sounds.hear(3.8, is_sound=False)
    assert all(sounds.hear(1.0))
    assert not any(sounds.hear(1.0)[5:])


def test_after_a_moving_turn_no_motor_is_expected() -> None:
    sounds = Sounds((0.5, 1.0))
    sounds.hear(1.2, turn=True)
    assert not any(sounds.hear(1.2))


def test_a_servo_opens_a_turn_only_once() -> None:
    """Every sound scores as speech."""
    moved = [np.pad(servo(seed), (0, SECOND // 2)) for seed in range(4)]
    said = to_signal(spoken_by_pico("Turn the light on.", "en"))
    pcm = np.concatenate([in_room(np.concatenate(moved)), in_room(said)])
    begun = asyncio.run(starts(pcm, new_listener()))
    assert len(begun) == 2
    assert len(pcm) - len(said) - SECOND // 2 < begun[1] < len(pcm) - len(said) + SECOND // 4


def test_in_a_long_sound_a_voice_is_found_anywhere() -> None:
    """The room before it, and its beginning, are no longer in the history."""
    motor, said = servo(1, 20.0), to_signal(spoken_by_pico("What time is it?", "en"))
    quieter = gained(motor, rms_dbfs(said) - rms_dbfs(motor) - 3.0)
    half = quieter[: len(motor) // 2]
    voices = ([quieter, said], [said, quieter], [half, said, half])
    for sound, is_voice in ((motor, False), *((np.concatenate(each), True) for each in voices)):
        pcm, listener = in_room(sound), new_listener()
        asyncio.run(starts(pcm, listener))
        assert listener.moves(SECOND, len(pcm)) == is_voice


def new_listener() -> Listener:
    vad = LevelVad()
    vad.least_movement_db = LEAST_MOVEMENT_DB
    stages = cast(Stages, SimpleNamespace(vad=vad, turn=SimpleNamespace(history_seconds=8.0)))
    return Listener(stages, ClientHearing(512, Echo()), Endpointing())


async def starts(pcm: Pcm, listener: Listener) -> list[int]:
    found: list[TurnStart] = []
    async for signals in listener.hear(pcm):
        signals += listener.judge(200)
        found += [each for each in signals if isinstance(each, TurnStart)]
    return [each.start for each in found]
