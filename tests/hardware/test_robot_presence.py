"""Whose robot it is: motors that are off, moves of the daemon, apps; with the real daemon."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import numpy as np
import pytest

from hardware.robot import daemon as daemon_module
from hardware.robot import presence as presence_module
from hardware.robot.daemon import Daemon, MotorMode
from pipeline.events import InputCleared
from tests.support.moving_robot import (
    FOLDED,
    STARTED,
    STOPPED,
    Notices,
    State,
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


async def test_a_robot_without_power_gets_up_and_is_folded_again(
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
    """When the conversation ends in the moment in which the robot wakes."""
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


async def test_it_keeps_still_while_the_motors_are_off(robot: RobotDaemon) -> None:
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
    """They may have it in their hands."""
    monkeypatch.setattr(daemon_module, "ANSWER_S", 0.3)
    monkeypatch.setattr(daemon_module, "PING_S", 0.3)
    notices = Notices()
    async with moving(robot.url, notices) as body:
        body.note(STARTED)
        await robot.reaches(listens)
        await robot.post("motors/set_mode/disabled")
        await notices.until("busy")
        robot.process.send_signal(signal.SIGSTOP)
        await notices.until("lost")
        robot.process.send_signal(signal.SIGCONT)
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
        assert steps.max() < 10  # from where the move has left it, without a jump
    assert notices.problems() == ["busy"]


def install_app(home: Path, name: str) -> None:
    """An app as the daemon finds it; it does nothing, for an hour."""
    (home / f"{name}.py").write_text("import time\n\ntime.sleep(3600)\n")
    about = home / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[reachy_mini_apps]\n{name} = {name}:App\n")


async def test_it_never_fights_an_app(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence_module, "AFTER_APP_S", 0.5)
    monkeypatch.setattr(presence_module, "LOOK_S", 0.1)
    install_app(tmp_path, "dancer")
    notices = Notices()
    async with robot_daemon(python, tmp_path) as robot:
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
        # It was the app's when the conversation ended: it was not led to rest.
        assert listens(await robot.get("state/full"))
        await robot.post("apps/stop-current-app")
    assert notices.problems() == ["busy", "busy"]


async def test_after_an_app_it_waits_until_the_daemon_has_folded_the_robot(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence_module, "LOOK_S", 0.1)
    install_app(tmp_path, "dancer")
    notices = Notices()
    async with robot_daemon(python, tmp_path) as robot:
        await robot.post("apps/start-app/dancer")
        async with moving(robot.url, notices):
            await notices.until("busy")
            await robot.post("apps/stop-current-app")
            # As a daemon with a real robot does seconds later.
            await robot.post("move/goto", FOLDED)
            await robot.reaches(is_folded)
            await robot.post("motors/set_mode/disabled")
            await robot.reaches(is_neutral)
        await robot.reaches(is_folded)
        assert (await robot.get("motors/status"))["mode"] == "disabled"
    assert notices.problems() == ["busy"]
