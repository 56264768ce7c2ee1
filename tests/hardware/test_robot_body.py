"""The body in a conversation, with the real daemon and a mocked-up robot: what the daemon itself
says where the robot is."""

from __future__ import annotations

import asyncio
import math
import signal
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.robot import body as body_module
from hardware.robot import daemon as daemon_module
from hardware.robot.body import RobotBody
from hardware.settings import Robot
from pipeline.commands import Direction
from pipeline.events import ReplyAudio, ReplyFinished
from pipeline.messages import Usage
from reachy_voice.testing import scene
from tests.support.far_server import free_port
from tests.support.moving_robot import (
    STARTED,
    STOPPED,
    Notices,
    State,
    antennas,
    is_neutral,
    listens,
    moving,
    thinks,
    yaw_deg,
)
from tests.support.robot_daemon import RobotDaemon, robot_daemon

pytestmark = [
    pytest.mark.machine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),  # the first time, the daemon is installed
]
RATE = 24_000


async def test_it_listens_thinks_and_comes_back(robot: RobotDaemon) -> None:
    async with moving(robot.url) as body:
        await robot.reaches(is_neutral)
        body.note(STARTED)
        await robot.reaches(listens)
        body.note(STOPPED)
        await robot.reaches(thinks)
        body.note(ReplyFinished("reply_1", "failed", (), Usage(0, 0, 0, 0)))
        await robot.reaches(is_neutral)
        body.note(STARTED)
        await robot.reaches(listens)
    await robot.reaches(is_neutral)
    assert (await robot.get("motors/status"))["mode"] == "enabled"


async def test_it_sways_with_the_voice_and_rests_after_it(robot: RobotDaemon) -> None:
    voice = np.full(8 * RATE, 9000, np.int16)
    async with moving(robot.url) as body:
        body.note(STARTED)
        await robot.reaches(listens)
        body.note(ReplyAudio("reply_1", "item_2", 0, voice, RATE))
        body.played(voice, RATE, asyncio.get_running_loop().time())
        pitches: list[float] = []

        def has_nodded(state: State) -> bool:
            if antennas(state) < 0.32:  # it has come to speak
                pitches.append(math.degrees(state["head_pose"]["pitch"]))
            return bool(pitches) and max(pitches) - min(pitches) > 3

        await robot.reaches(has_nodded)
        body.note(ReplyFinished("reply_1", "cancelled", (), Usage(0, 0, 0, 0)))
        await robot.reaches(is_neutral)


@pytest.mark.parametrize(("azimuth_deg", "looks_deg"), [(40, 50), (130, -40)])
async def test_the_head_turns_to_the_speaker_and_stays_there(
    robot: RobotDaemon, azimuth_deg: float, looks_deg: float
) -> None:
    """An array in the head hears a person who stands still ever more in front; it is 200 ms late,
    and would lead the head too far if it were listened to on the way."""
    async with moving(robot.url) as body:
        body.note(STARTED)
        await robot.reaches(listens)
        yaws = [0.0] * 10
        async with asyncio.timeout(20), aclosing(robot.states()) as states:
            async for state in states:
                body.heard(Direction(azimuth_deg + yaws[-10], True))
                yaws.append(yaw_deg(state))
                if len(yaws) > 150:
                    break
        assert yaws[-1] == pytest.approx(looks_deg, abs=1)
        heard = body.unturned(Direction(azimuth_deg + yaws[-1], True))
        assert heard.azimuth_deg == pytest.approx(azimuth_deg, abs=2)
        assert max(map(abs, yaws)) < abs(looks_deg) + 1
        body.note(STOPPED)
        state = await robot.reaches(thinks)
        assert yaw_deg(state) == pytest.approx(looks_deg, abs=6)
        assert math.copysign(1, state["body_yaw"]) == math.copysign(1, looks_deg)
    await robot.reaches(is_neutral)


async def test_an_array_that_stands_still_is_in_the_same_place_for_it(robot: RobotDaemon) -> None:
    async with moving(robot.url, array_in_head=False) as body:
        await robot.reaches(is_neutral)
        async with asyncio.timeout(10):
            async for state in robot.states():
                body.heard(Direction(60, True))
                if abs(yaw_deg(state) - 30) < 1:
                    break
    await robot.reaches(is_neutral)


async def test_it_follows_a_session(robot: RobotDaemon) -> None:
    """Events of a real session, from its bus."""
    async with moving(robot.url) as body:
        await robot.reaches(is_neutral)
        async with scene() as played, asyncio.TaskGroup() as group:
            played.session._bus.tap(lambda published: body.note(published.event))
            speaking = group.create_task(played.say(1.5))
            await robot.reaches(listens)
            await speaking
            await played.hear(0.6)
            await robot.reaches(lambda state: 0.25 < antennas(state) < 0.4)


async def test_a_daemon_that_is_killed_and_comes_back_moves_again(
    python: Path, tmp_path: Path
) -> None:
    port = free_port()
    notices = Notices()
    async with moving(f"127.0.0.1:{port}", notices) as body:
        assert "nothing answers" in str(await notices.until("not found"))
        async with robot_daemon(python, tmp_path, port) as robot:
            await robot.reaches(is_neutral)
            body.note(STARTED)
            await robot.reaches(listens)
        assert "is gone" in str(await notices.until("lost"))
        async with robot_daemon(python, tmp_path, port) as robot:
            await robot.reaches(listens)
            assert notices.problems() == ["not found", "lost"]


async def test_a_daemon_that_hangs_is_missed_and_found_again(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "ANSWER_S", 0.3)
    monkeypatch.setattr(daemon_module, "PING_S", 0.3)
    notices = Notices()
    async with robot_daemon(python, tmp_path) as robot, moving(robot.url, notices) as body:
        await robot.reaches(is_neutral)
        robot.process.send_signal(signal.SIGSTOP)
        await notices.until("lost")
        robot.process.send_signal(signal.SIGCONT)
        body.note(STARTED)
        await robot.reaches(listens)
    assert notices.problems()[0] == "lost"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1"])
async def test_a_wrong_address_is_reported_once_and_the_conversation_goes_on(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0
    tried_often = asyncio.Event()
    open_daemon = body_module.open_daemon

    def counted(url: str) -> Any:
        nonlocal tries
        tries += 1
        if tries == 5:
            tried_often.set()
        return open_daemon(url)

    monkeypatch.setattr(body_module, "open_daemon", counted)
    monkeypatch.setattr(body_module, "FIRST_WAIT_S", 0.01)
    notices = Notices()
    async with moving(url, notices) as body, asyncio.timeout(10):
        body.note(STARTED)
        body.heard(Direction(40, True))
        body.played(np.zeros(240, np.int16), RATE, 0.0)
        await tried_often.wait()
    assert notices.problems() == ["not found"]


@pytest.mark.parametrize(
    "settings", [Robot(), Robot(url="http://127.0.0.1:1", moves=False)], ids=["no url", "no moves"]
)
async def test_one_switch_turns_it_off(settings: Robot) -> None:
    notices = Notices()
    body = RobotBody(settings, notices)
    body.note(STARTED)
    body.heard(Direction(40, True))
    await body.run()
    assert notices.all == []
