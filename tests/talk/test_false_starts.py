"""``devices test``: turns that would begin in a silent room while the robot moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.settings.load import load_settings
from app.talk import devices, false_starts
from app.talk.devices import SILENT_S, run_test, with_false_starts
from app.talk.false_starts import SilentRoom
from benchmarks.harness.acoustics import Signal, to_signal
from hardware.robot.errors import RobotError, robot_error
from hardware.settings import Robot, Sound
from hardware.sound.driver import Latency, Plan
from pipeline.audio import AudioFrame, Pcm
from pipeline.commands import Direction
from pipeline.engines.vad.silero import LEAST_MOVEMENT_DB
from pipeline.errors import WeightsError
from pipeline.settings import Endpointing
from reachy_voice.testing import in_virtual_time, run_virtual
from tests.hearing.test_timbre import in_room, servo
from tests.support.pico import spoken_by_pico
from tests.support.scripted_driver import ARRAY, ScriptedDriver

pytestmark = pytest.mark.engines

SETTINGS = load_settings(None, ["robot.url=127.0.0.1:1"]).settings


def noise(*peaks: float) -> SilentRoom:
    """A quarter of a second at each score, each followed by three seconds of silence."""
    scores = [score for peak in peaks for score in (*[peak] * 8, *[0.0] * 94)]
    silence = np.zeros(512, np.int16)
    return SilentRoom(
        [(each, AudioFrame(silence, 16_000, n * 512)) for n, each in enumerate(scores)]
    )


@pytest.mark.parametrize(
    ("heard", "turns", "threshold"),
    [
        (noise(0.1), 0, 0.6),
        (noise(0.55), 1, 0.6),
        (noise(0.55, 0.55, 0.75), 3, 0.8),
        (noise(0.99), 1, None),
    ],
)
def test_turns_are_counted_and_a_safe_threshold_is_found(
    heard: SilentRoom, turns: int, threshold: float | None
) -> None:
    assert false_starts.false_starts(heard, Endpointing()) == turns
    assert false_starts.quiet_threshold(heard, Endpointing()) == threshold


def moves(*sounds: Signal) -> SilentRoom:
    """Each sound after a second of the room, with the scores of a VAD that takes it for a voice."""
    whole = np.concatenate([*map(in_room, sounds), in_room(sounds[0])[:16_000]])
    frames = [AudioFrame(whole[at : at + 512], 16_000, at) for at in range(0, len(whole), 512)]
    loud = [float(np.abs(frame.pcm.astype(int)).max() > 500) for frame in frames]
    return SilentRoom(list(zip(loud, frames, strict=True)), LEAST_MOVEMENT_DB)


def test_the_robots_own_motors_begin_no_turn() -> None:
    motors = [servo(seed) for seed in range(4)]
    assert false_starts.false_starts(moves(*motors), Endpointing()) == 0
    voice = to_signal(spoken_by_pico("What time is it?", "en"))
    assert false_starts.false_starts(moves(voice, *motors, voice), Endpointing()) == 2


class ScriptedRobot:
    """Turns as told; ``troubles`` happen at once."""

    troubles: Sequence[RobotError] = ()
    looked_deg: list[float]

    def __init__(
        self, robot: Robot, notify: Callable[[RobotError], None], *, array_in_head: bool
    ) -> None:
        self._notify = notify
        type(self).looked_deg = []

    async def run(self) -> None:
        for trouble in self.troubles:
            self._notify(trouble)
        await asyncio.Event().wait()

    def heard(self, direction: Direction) -> None:
        self.looked_deg.append(direction.azimuth_deg)


@pytest.mark.parametrize("there", [True, False])
@in_virtual_time
async def test_the_robot_moves_while_the_room_is_heard(
    there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = robot_error("not found", "127.0.0.1:1", "nothing answers there")
    monkeypatch.setattr(ScriptedRobot, "troubles", () if there else (absent,))
    monkeypatch.setattr(false_starts, "RobotBody", ScriptedRobot)
    tested, silence = await run_test(SETTINGS.sound, SETTINGS.robot, ScriptedDriver(ARRAY))
    assert len(silence) == pytest.approx(SILENT_S * 16_000, abs=400)
    assert set(ScriptedRobot.looked_deg) == set(false_starts.SIDES_DEG)
    assert tested.robot == "moved" if there else "nothing answers there" in tested.robot


def test_turns_follow_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet, silence = run_virtual(run_test(Sound(), Robot(), ScriptedDriver(ARRAY)))
    assert quiet.robot == "none"
    assert quiet.room_dbfs > -60
    monkeypatch.setattr(devices, "score_windows", lambda pcm, settings: noise(0.55))
    tested = with_false_starts(quiet, silence, SETTINGS)
    assert (tested.false_starts, tested.quiet_threshold) == (1, 0.6)


class OffsetDriver(ScriptedDriver):
    """Its microphone adds a constant to noise of -90 dBFS."""

    async def open(self, plan: Plan) -> Latency:
        rng, on_heard = np.random.default_rng(1), plan.on_heard

        def heard(pcm: Pcm, at_s: float, now_s: float, lost: bool) -> None:
            on_heard(rng.normal(2000, 1, len(pcm)).astype(np.int16), at_s, now_s, lost)

        return await super().open(replace(plan, on_heard=heard))


def test_an_offset_is_no_noise() -> None:
    tested, _ = run_virtual(run_test(Sound(), Robot(), OffsetDriver(ARRAY)))
    assert tested.room_dbfs < -85


def test_without_the_vad_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(pcm: Pcm, settings: object) -> SilentRoom:
        raise WeightsError("silero-vad is missing", why="it was not fetched", fix="Fetch it")

    quiet, silence = run_virtual(run_test(Sound(), Robot(), ScriptedDriver(ARRAY)))
    monkeypatch.setattr(devices, "score_windows", missing)
    assert with_false_starts(quiet, silence, SETTINGS) == quiet


def test_the_real_vad_hears_no_turn_in_a_hum(weights: Callable[[str], Path]) -> None:
    weights("silero-vad")
    hum = np.random.default_rng(1).normal(0, 30, 32_000).astype(np.int16)
    windows = false_starts.score_windows(hum, load_settings(None).settings)
    assert false_starts.false_starts(windows, Endpointing()) == 0
