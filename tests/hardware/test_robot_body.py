"""The body in a conversation, and control of the robot (motors off, the daemon's moves, apps), with
the real daemon and a mock-up robot that reports its pose."""

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
from hardware.robot import presence as presence_module
from hardware.robot.body import RobotBody
from hardware.robot.daemon import Daemon, MotorMode
from hardware.settings import Robot
from pipeline.commands import Direction
from pipeline.events import InputCleared, ReplyAudio, ReplyFinished
from pipeline.messages import Usage
from reachy_voice.testing import scene
from tests.support.far_server import free_port
from tests.support.moving_robot import (
    FOLDED,
    STARTED,
    STOPPED,
    Notices,
    State,
    antennas,
    is_folded,
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
            if antennas(state) < 0.32:  # it has begun to speak
                pitches.append(math.degrees(state["head_pose"]["pitch"]))
            return bool(pitches) and max(pitches) - min(pitches) > 3

        await robot.reaches(has_nodded)
        body.note(ReplyFinished("reply_1", "cancelled", (), Usage(0, 0, 0, 0)))
        await robot.reaches(is_neutral)


@pytest.mark.parametrize(("azimuth_deg", "looks_deg"), [(40, 50), (130, -40)])
async def test_the_head_turns_to_the_speaker_and_stays_there(
    robot: RobotDaemon, azimuth_deg: float, looks_deg: float
) -> None:
    """As the head turns, its array hears a still person ever nearer to the front. Readings are 200
    ms late and would turn the head too far if followed during the move."""
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


async def test_an_array_outside_the_head_gives_fixed_directions(robot: RobotDaemon) -> None:
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


async def test_a_restarted_daemon_moves_again(python: Path, tmp_path: Path) -> None:
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


async def test_a_hanging_daemon_is_lost_and_found_again(
    robot: RobotDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "ANSWER_S", 0.3)
    monkeypatch.setattr(daemon_module, "PING_S", 0.3)
    notices = Notices()
    async with moving(robot.url, notices) as body:
        await robot.reaches(is_neutral)
        robot.program.process.send_signal(signal.SIGSTOP)
        await notices.until("lost")
        robot.program.process.send_signal(signal.SIGCONT)
        body.note(STARTED)
        await robot.reaches(listens)
    assert notices.problems()[0] == "lost"


async def test_a_wrong_address_is_reported_once_and_the_conversation_goes_on(
    monkeypatch: pytest.MonkeyPatch,
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
    async with moving("http://127.0.0.1:1", notices) as body, asyncio.timeout(10):
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


# --- whose robot it is --------------------------------------------------------------------------


async def test_a_robot_without_power_is_woken_and_folded_again(
    python: Path, tmp_path: Path
) -> None:
    async with robot_daemon(python, tmp_path) as robot:
        await robot.post("motors/set_mode/disabled")
        await robot.reaches(is_folded)
        async with moving(robot.url):
            await robot.reaches(is_neutral)
            assert (await robot.get("motors/status"))["mode"] == "enabled"
        await robot.reaches(is_folded)
        assert (await robot.get("motors/status"))["mode"] == "disabled"


async def test_motors_that_have_just_been_switched_on_are_switched_off_again(
    robot: RobotDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the conversation ends just as the robot wakes."""
    switched = asyncio.Event()
    set_motors = Daemon.set_motors

    async def and_then_nothing(daemon: Daemon, mode: MotorMode) -> None:
        await set_motors(daemon, mode)
        if mode == "enabled":
            switched.set()
            await asyncio.Event().wait()

    await robot.post("motors/set_mode/disabled")
    monkeypatch.setattr(Daemon, "set_motors", and_then_nothing)
    async with moving(robot.url), asyncio.timeout(10):
        await switched.wait()
        assert (await robot.get("motors/status"))["mode"] == "enabled"
    assert (await robot.get("motors/status"))["mode"] == "disabled"
    await robot.post("motors/set_mode/enabled")


async def test_it_stays_still_while_the_motors_are_off(robot: RobotDaemon) -> None:
    notices = Notices()
    async with moving(robot.url, notices) as body:
        body.note(STARTED)
        await robot.reaches(listens)
        await robot.post("motors/set_mode/disabled")
        said = await notices.until("busy")
        assert "motors were switched off" in str(said)
        body.note(STOPPED)
        before = await robot.get("state/full")
        await robot.post("motors/set_mode/enabled")
        await robot.reaches(thinks)
        assert listens(before)
    assert notices.problems() == ["busy"]


async def test_motors_switched_off_stay_off_over_a_lost_connection(
    robot: RobotDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may be holding the robot."""
    monkeypatch.setattr(daemon_module, "ANSWER_S", 0.3)
    monkeypatch.setattr(daemon_module, "PING_S", 0.3)
    notices = Notices()
    async with moving(robot.url, notices) as body:
        body.note(STARTED)
        await robot.reaches(listens)
        await robot.post("motors/set_mode/disabled")
        await notices.until("busy")
        robot.program.process.send_signal(signal.SIGSTOP)
        await notices.until("lost")
        robot.program.process.send_signal(signal.SIGCONT)
        await notices.until("busy", times=2)
        assert (await robot.get("motors/status"))["mode"] == "disabled"
    await robot.post("motors/set_mode/enabled")


async def test_it_does_not_fight_a_move_of_the_daemon(robot: RobotDaemon) -> None:
    notices = Notices()
    async with moving(robot.url, notices) as body:
        body.note(STARTED)
        await robot.reaches(listens)
        body.note(InputCleared())
        pose = {"head_pose": {"yaw": 0.5}, "antennas": [1.5, 1.5], "duration": 2.0}
        await robot.post("move/goto", pose)
        assert "plays a move" in str(await notices.until("busy"))
        await robot.reaches(lambda state: state["head_pose"]["yaw"] > 0.49)
        yaws: list[float] = []

        def is_back(state: State) -> bool:
            yaws.append(yaw_deg(state))
            return is_neutral(state)

        await robot.reaches(is_back)
        steps = np.abs(np.diff(yaws))
        assert steps.max() < 10  # from where the move left it, without a jump
    assert notices.problems() == ["busy"]


async def test_it_never_fights_an_app(robot: RobotDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence_module, "AFTER_APP_S", 0.5)
    monkeypatch.setattr(presence_module, "LOOK_S", 0.1)
    notices = Notices()
    await robot.post("move/goto", FOLDED)
    await robot.reaches(is_folded)
    await robot.post("apps/start-app/dancer")
    async with moving(robot.url, notices) as body:
        assert "an app holds the robot (dancer)" in str(await notices.until("busy"))
        body.note(STARTED)
        assert is_folded(await robot.get("state/full"))
        await robot.post("apps/stop-current-app")
        await robot.reaches(listens)
        await robot.post("apps/start-app/dancer")
        while len(notices.all) < 2:
            notices._new.clear()
            await notices._new.wait()
    # The app had control when the conversation ended, so the body did not move it to rest.
    assert listens(await robot.get("state/full"))
    await robot.post("apps/stop-current-app")
    assert notices.problems() == ["busy", "busy"]


async def test_after_an_app_it_waits_until_the_daemon_has_folded_the_robot(
    robot: RobotDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence_module, "LOOK_S", 0.1)
    notices = Notices()
    await robot.post("apps/start-app/dancer")
    async with moving(robot.url, notices):
        await notices.until("busy")
        await robot.post("apps/stop-current-app")
        # As a daemon with a real robot does some seconds later.
        await robot.post("move/goto", FOLDED)
        await robot.reaches(is_folded)
        await robot.post("motors/set_mode/disabled")
        await robot.reaches(is_neutral)
    await robot.reaches(is_folded)
    assert (await robot.get("motors/status"))["mode"] == "disabled"
    await robot.post("motors/set_mode/enabled")
    assert notices.problems() == ["busy"]
