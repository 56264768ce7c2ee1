"""The rest of the body in a talk: directions are passed on, a chip that sends zeros is
restarted."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.settings.load import load_settings
from app.settings.model import Settings
from app.talk.embodiment import EVERYBODY, Embodiment
from app.talk.state import TalkState
from app.talk.talk_app import TalkApp
from hardware.robot.gaze import unturned
from hardware.settings import Robot
from hardware.sound.alignment import SoundBlock
from hardware.sound.notices import AllZero, DevicesReady
from hardware.xvf3800.errors import array_error
from hardware.xvf3800.watch import ArrayLost, ArrayReading
from pipeline.commands import Direction
from tests.support.beside import beside
from tests.support.scripted_array import ScriptedArray

pytestmark = pytest.mark.quick


def respeaker() -> ScriptedArray:
    return ScriptedArray(board="seeed", firmware="2.0.12")


DEFAULT = load_settings(None, (), {}).settings


def settings(**changed: object) -> Settings:
    """Settings with other options for the array."""
    return DEFAULT.model_copy(update={"array": DEFAULT.array.model_copy(update=changed)})


class Body:
    def __init__(self, array: ScriptedArray | Exception, chosen: Settings) -> None:
        self.state = TalkState()
        self.faced: asyncio.Queue[Direction] = asyncio.Queue()
        self._array = array
        self.body = Embodiment(chosen, self.state, self.faced.put, self._open)

    def _open(self) -> Any:
        if isinstance(self._array, Exception):
            raise self._array
        return self._array

    @property
    def said(self) -> str:
        return "\n".join(line.text for line in self.state.lines)

    async def until_said(self, words: str) -> None:
        async with asyncio.timeout(10):
            while words not in self.said:
                await self.faced.get()


@asynccontextmanager
async def embodied(
    array: ScriptedArray | Exception, chosen: Settings | None = None
) -> AsyncIterator[Body]:
    told = Body(array, chosen or settings())
    async with beside(told.body.run()) as running:
        yield told
    assert running.cancelled()


async def test_directions_are_passed_on() -> None:
    array = respeaker()
    async with embodied(array) as told:
        assert await told.faced.get() == Direction(90.0, True)
        assert "firmware 2.0.12" in told.said
    assert array.writes == []
    assert not array.open


@pytest.mark.parametrize(
    ("error", "changed", "words"),
    [
        (array_error("not found", "none is there"), {"accept_deg": 90.0}, EVERYBODY),
        (array_error("not found", "none"), {"control": "never", "accept_deg": 90.0}, EVERYBODY),
        (array_error("no permission", "errno 13"), {}, "udev"),
    ],
)
async def test_a_missing_array_function_is_reported(
    error: Exception, changed: dict[str, Any], words: str
) -> None:
    said = asyncio.Event()
    async with embodied(error, settings(**changed)) as told:
        told.state.say = lambda text: said.set() if words in text else None  # type: ignore[method-assign]
        async with asyncio.timeout(10):
            await said.wait()


async def test_without_control_nothing_is_opened() -> None:
    array = respeaker()
    async with embodied(array, settings(control="never")) as told:
        told.body.all_zero()
        await asyncio.sleep(0)
    assert array.reads == []
    assert told.said == ""


@pytest.mark.parametrize(("moves", "lines"), [(True, 0), (False, 2)])
async def test_an_absent_robot_is_reported_once(moves: bool, lines: int) -> None:
    """By the body if it should move, otherwise by the array: what failed, and what to do."""
    robot = Robot(url="http://reachy-mini.local:8000", moves=moves)
    told = Body(respeaker(), settings().model_copy(update={"robot": robot}))
    told.body._array_says(
        ArrayLost(array_error("daemon away", "http://reachy-mini.local:8000: refused"))
    )
    assert len(told.state.lines) == lines
    assert ("robot.url" in told.said) == bool(lines)


async def test_zeros_restart_the_chip_once() -> None:
    array = respeaker()
    async with embodied(array) as told:
        await told.faced.get()
        told.body.all_zero()
        await told.until_said("restarting it")
        told.body.all_zero()
        await told.until_said("still delivers zeros after a restart")
    assert [name for name, _ in array.writes].count("REBOOT") == 1


async def test_a_chip_is_not_restarted_if_not_allowed() -> None:
    array = respeaker()
    async with embodied(array, settings(reboot=False)) as told:
        await told.faced.get()
        told.body.all_zero()
        for _ in range(2):
            await told.faced.get()
    assert [name for name, _ in array.writes].count("REBOOT") == 0


class TurnedBody:
    """The body of a robot that looks 60° to its left; its head's array hears all that far to the
    right."""

    def __init__(self) -> None:
        self.looked: list[float] = []

    async def run(self) -> None:
        await asyncio.Event().wait()

    def unturned(self, direction: Direction) -> Direction:
        return unturned(direction, math.radians(60))

    def heard(self, direction: Direction) -> None:
        self.looked.append(round(direction.azimuth_deg))


@pytest.mark.parametrize(
    ("heard_deg", "is_at_deg", "looked_at"), [(150, 90, True), (90, 30, False)]
)
async def test_the_accepted_sector_does_not_turn_with_the_head(
    heard_deg: float, is_at_deg: float, looked_at: bool
) -> None:
    """A head that turned to each speaker would bring every speaker to its front."""
    array = ScriptedArray({"DOA_VALUE_RADIANS": (math.radians(heard_deg), 1.0)})
    body = TurnedBody()
    async with embodied(array, settings(accept_deg=90.0)) as told:
        told.body._body = body  # type: ignore[assignment]
        await told.faced.get()
        assert (await told.faced.get()).azimuth_deg == pytest.approx(is_at_deg, abs=0.1)
    assert set(body.looked) == ({heard_deg} if looked_at else set())


@pytest.mark.parametrize("sounding", [True, False])
async def test_playback_reaches_the_robot(sounding: bool) -> None:
    async with embodied(respeaker()) as told:
        pieces: list[np.ndarray] = []
        told.body._body.played = lambda pcm, rate, at: pieces.append(pcm)
        told.state.sounding = sounding
        told.body.heard(SoundBlock(np.zeros(160, np.int16), np.ones(160, np.int16), 0.0))
        assert len(pieces) == sounding


@pytest.mark.parametrize(
    ("converged", "chip_cancels", "times"),
    [(False, True, 1), (True, True, 0), (None, True, 0), (False, False, 0)],
)
async def test_a_canceller_that_does_not_converge_is_reported_once(
    converged: bool | None, chip_cancels: bool, times: int
) -> None:
    told = Body(respeaker(), settings())
    told.body.chip_cancels = chip_cancels
    told.state.sounding = True
    second = SoundBlock(np.zeros(16_000, np.int16), np.ones(16_000, np.int16), 0.0)
    reading = ArrayReading(Direction(90.0, False), (0.0,) * 4, converged, 0.0)
    for n in range(100):
        if n < 30:
            assert told.said == ""
        told.body.heard(second)
        told.body._array_says(reading)
    assert told.said.count("has not settled") == times


@pytest.mark.parametrize(("microphone", "times"), [("Reachy Mini Audio", 1), ("Webcam", 0)])
async def test_zeros_of_another_microphone_are_no_fault_of_the_array(
    microphone: str, times: int, tmp_path: Path
) -> None:
    app = TalkApp(DEFAULT, TalkState(), None, "ws://127.0.0.1:1", tmp_path)
    blamed: list[bool] = []
    app._body.all_zero = lambda: blamed.append(True)  # type: ignore[method-assign]
    app._sound_says(DevicesReady(microphone, "Reachy Mini Audio", 16_000))
    app._sound_says(AllZero())
    assert len(blamed) == times
