"""``array.accept_deg`` from end to end, in virtual time.

A fake array below the real pyusb, its watch, a talk and a session; only sound and engines are
scripted, and the sound does not depend on its direction.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from app.server.robot_directions import ArraySeen, robot_directions
from app.settings.load import load_settings
from app.settings.model import Settings
from app.talk.embodiment import Embodiment
from hardware.settings import Robot
from hardware.xvf3800.device import UsbArray
from pipeline.events import ReplyFinished, SpeechStarted, SpeechStopped
from pipeline.settings import Sector, SessionSettings
from reachy_voice.testing import Scene, ScriptedLlm, in_virtual_time, scene
from tests.support.beside import beside
from tests.support.fake_usb import REACHY, SEEED, FakeBus, FakeXvf, floats
from tests.support.scripted_array import ScriptedArray
from tests.talk.test_embodiment import settings
from tests.talk.test_talking import STORY, Talk, talk

pytestmark = pytest.mark.quick

ROBOT = "http://127.0.0.1:8000"
SIDE_DEG = 170.0
FRONT = settings(accept_deg=90.0)


@dataclass
class Room:
    """``device``: the array that hears every speaker."""

    told: Talk
    device: FakeXvf

    async def say(self, seconds: float, azimuth_deg: float) -> None:
        self._array_hears(azimuth_deg, speech=True)
        await self.told.card.say(seconds)
        self._array_hears(azimuth_deg, speech=False)

    async def quiet(self, seconds: float) -> None:
        await self.told.card.hear(seconds)

    def answered(self) -> list[str]:
        return [reply.status for reply in self.told.played.events(ReplyFinished)]

    def directions(self) -> list[float | None]:
        ended = self.told.played.events(SpeechStopped)
        return [None if e.direction_deg is None else round(e.direction_deg) for e in ended]

    def _array_hears(self, azimuth_deg: float, *, speech: bool) -> None:
        if self.device.ids == REACHY:
            heard = floats(math.radians(azimuth_deg), float(speech))
            self.device.registers[(20, 19)] = heard
        else:
            degrees = round(azimuth_deg).to_bytes(2, "little")
            self.device.registers[(20, 18)] = degrees + bytes([speech, 0])


@asynccontextmanager
async def room(
    chosen: Settings = FRONT, ids: tuple[int, int] = REACHY, **given: Any
) -> AsyncIterator[Room]:
    loop = asyncio.get_running_loop()
    loop.run_in_executor = _at_once  # type: ignore[method-assign]
    device = FakeXvf(ids)
    bus = FakeBus(device)
    given["settings"] = SessionSettings(accept=chosen.array.accepted)
    async with talk(**given) as told:
        there = Room(told, device)
        there._array_hears(90.0, speech=False)
        body = Embodiment(
            chosen,
            told.state,
            told.talking.face,
            lambda: UsbArray(bus, bus.clock, bus.clock.pause),
        )
        async with beside(body.run()):
            await there.quiet(0.3)
            yield there
    assert bus.open_handles == 0


def _at_once(executor: object, function: Callable[..., Any], *arguments: Any) -> Any:
    """No threads in virtual time."""
    future = asyncio.get_running_loop().create_future()
    try:
        future.set_result(function(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future


def test_whoever_accepts_the_front_accepts_60_degrees_before_the_robot() -> None:
    for sets, sector in (
        ([], None),
        (["people.accept=front"], Sector(90.0, 60.0)),
        (["people.accept=front", "array.accept_deg=20"], Sector(20.0, 60.0)),
    ):
        assert load_settings(None, sets, {}).settings.accepted == sector


@pytest.mark.parametrize("ids", [REACHY, SEEED])
@in_virtual_time
async def test_only_speech_from_the_front_is_answered(
    ids: tuple[int, int],
) -> None:
    async with room(ids=ids) as there:
        await there.say(1.0, SIDE_DEG)
        await there.quiet(4.0)
        assert there.answered() == []
        await there.say(1.0, 75.0)
        await there.quiet(6.0)
        await there.say(1.0, SIDE_DEG)
        await there.quiet(4.0)
    assert there.answered() == ["completed"]
    assert there.directions() == [75]


@in_virtual_time
async def test_speech_from_elsewhere_is_not_part_of_the_question() -> None:
    async with room() as there:
        await there.say(1.0, SIDE_DEG)
        await there.say(1.0, 90.0)
        await there.quiet(6.0)
    (started,) = there.told.played.events(SpeechStarted)
    # It began after 1.3 s; 300 ms before an onset are included.
    assert started.audio_ms == pytest.approx(1000, abs=110)
    assert there.answered() == ["completed"]


@in_virtual_time
async def test_a_late_array_loses_no_syllable() -> None:
    async with room() as there:
        await there.told.card.say(0.4)
        await there.say(1.0, 90.0)
        await there.quiet(6.0)
    (started,) = there.told.played.events(SpeechStarted)
    assert started.audio_ms == pytest.approx(0, abs=40)


@in_virtual_time
async def test_without_the_setting_all_speech_is_answered() -> None:
    async with room(settings()) as there:
        await there.say(1.0, SIDE_DEG)
        await there.quiet(6.0)
    assert (there.answered(), there.directions()) == (["completed"], [170])


@in_virtual_time
async def test_speech_from_the_side_interrupts_nothing() -> None:
    async with room(llm=ScriptedLlm(deltas=STORY)) as there:
        await there.say(1.0, 90.0)
        await there.quiet(2.0)
        assert there.told.card.playing
        await there.say(2.0, SIDE_DEG)
        await there.quiet(20.0)
    assert there.answered() == ["completed"]
    assert there.told.card.done == []


@in_virtual_time
async def test_after_unplugging_the_array_all_speech_counts() -> None:
    async with room() as there:
        there.device.plugged = False
        await there.quiet(1.5)
        await there.say(1.0, SIDE_DEG)
        await there.quiet(6.0)
        assert any("speech from all directions" in line.text for line in there.told.state.lines)
    assert (there.answered(), there.directions()) == (["completed"], [None])


@in_virtual_time
async def test_a_served_robot_answers_only_speech_from_the_front() -> None:
    """The array's directions come from its daemon, the sound from the robot's app."""
    array = ScriptedArray(via="daemon")

    async def say(played: Scene, azimuth_deg: float) -> None:
        array.answers["DOA_VALUE_RADIANS"] = (math.radians(azimuth_deg), 1.0)
        await played.say(1.0)
        array.answers["DOA_VALUE_RADIANS"] = (math.radians(azimuth_deg), 0.0)
        await played.hear(5.0)

    asyncio.get_running_loop().run_in_executor = _at_once  # type: ignore[method-assign]
    ready = asyncio.Event()
    ready.set()
    chosen = FRONT.model_copy(update={"robot": Robot(url=ROBOT)})
    async with scene(settings=SessionSettings(accept=FRONT.array.accepted)) as played:
        sessions = {played.session: "127.0.0.1"}
        serving: Any = SimpleNamespace(settings=chosen, ready=ready, sessions=sessions)
        async with beside(robot_directions(serving, ArraySeen(ROBOT), lambda: array)):
            for azimuth_deg in (SIDE_DEG, 80.0, 10.0):
                await say(played, azimuth_deg)
    assert [round(e.direction_deg or 0) for e in played.events(SpeechStopped)] == [80]
    assert len(played.events(ReplyFinished)) == 1
