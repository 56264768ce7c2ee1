"""``pair`` from end to end: a robot with its own address, the real server, the real access list.
Failures are in ``test_pair_failures.py``."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import pytest

from app.access.file import AccessFile, AccessList
from app.pairing.steps import PairError, PairingStep
from pipeline.errors import ConfigError
from tests.support.fake_robot import ADDRESS, HOSTED, FakeRobot, Manner, fake_robot
from tests.support.pair_scene import QUICK, Scene, scene

pytestmark = pytest.mark.machine


async def test_pairing_allows_configures_and_sees_the_robot_arrive(here: Scene) -> None:
    async with fake_robot() as robot:
        paired = await here.pair(robot)
        assert robot.connected
        assert [call for call in robot.calls if call[0] == "backend.config"] == [
            ("backend.config", {"hf_mode": "local", "hf_host": "127.0.0.1", "hf_port": here.port})
        ]
    assert (paired.address, paired.ours, paired.here) == (ADDRESS, "127.0.0.1", False)
    assert await here.allowed() == [f"{ADDRESS}/32"]
    assert [(outcome.step, outcome.state) for outcome in here.outcomes] == [
        (step, "ok") for step in get_args(PairingStep)
    ]
    assert [outcome.what for outcome in here.outcomes] == [
        ADDRESS,
        f"the robot can use 127.0.0.1:{here.port}",
        "the conversation app answers",
        f"{ADDRESS} may connect without a key",
        f"the app is set to 127.0.0.1:{here.port}",
        f"{ADDRESS} is connected to this server",
    ]
    # The app pushes transcripts to each client of its ``/rpc``.
    assert "secret" not in json.dumps([str(outcome) for outcome in here.outcomes])


async def test_a_second_time_changes_nothing(here: Scene) -> None:
    async with fake_robot() as robot:
        await here.pair(robot)
        told = len([call for call in robot.calls if call[0] == "backend.config"])
        here.outcomes.clear()
        await here.pair(robot)
        assert len([call for call in robot.calls if call[0] == "backend.config"]) == told
    said = [outcome.what for outcome in here.outcomes[-2:]]
    assert said == [
        f"{ADDRESS} was allowed already",
        f"{ADDRESS} is connected to this server already",
    ]


async def test_it_waits_for_an_app_that_needs_a_restart(here: Scene) -> None:
    async with fake_robot(Manner(needs_restart=True)) as robot:
        task = asyncio.create_task(here.pair(robot))
        await here.until("setting")
        await robot.restart_app()
        await task
        assert robot.connected
    assert here.said("setting")[0].endswith("; restart it now in the robot's dashboard")


async def test_programs_on_this_machine_need_no_permission(tmp_path: Path) -> None:
    """A Reachy Mini Lite: daemon and app run where the server runs."""
    async with scene(tmp_path, loopback=True) as here, fake_robot(address="127.0.0.1") as robot:
        paired = await here.pair(robot, "localhost")
        assert paired.here
        assert robot.connected
    assert await here.allowed() == []
    assert here.said("access") == ["programs on this machine need no permission"]


async def test_by_ipv6(tmp_path: Path) -> None:
    """The app accepts IPv6 addresses only in brackets."""
    if not _has_ipv6():
        pytest.skip("no IPv6 here")
    serving = scene(tmp_path, host="::1", loopback=True)
    async with serving as here, fake_robot(address="::1") as robot:
        await here.pair(robot, f"[::1]:{robot.app_port}")
        assert robot.ws_url == f"ws://[::1]:{here.port}/v1/realtime"
        assert robot.connected


# --- undoing -----------------------------------------------------------------------------------


async def test_a_failure_undoes_permission_and_setting(here: Scene) -> None:
    async with fake_robot(Manner(blocked="TimeoutError: timed out during opening handshake")) as it:
        with pytest.raises(PairError):
            await here.pair(it, times=QUICK)
        assert (it.mode, it.calls[-1]) == (HOSTED, ("backend.config", {"hf_mode": HOSTED}))
    assert await here.allowed() == []
    assert [(o.step, o.state, o.what) for o in here.outcomes[-2:]] == [
        ("setting", "undone", "The app's former connection is restored"),
        ("access", "undone", f"{ADDRESS} is no longer allowed"),
    ]
    assert here.outcomes[-3].state == "failed"


async def test_the_previous_server_is_restored(here: Scene) -> None:
    async with fake_robot(Manner(blocked="no")) as robot:
        robot.mode, robot.ws_url = "local", "ws://[fd00::9]:9000/v1/realtime"
        with pytest.raises(PairError):
            await here.pair(robot, times=QUICK)
        assert robot.ws_url == "ws://[fd00::9]:9000/v1/realtime"


async def test_an_earlier_permission_stays(here: Scene) -> None:
    await here.allow(ADDRESS)
    async with fake_robot(Manner(blocked="no")) as robot:
        with pytest.raises(PairError):
            await here.pair(robot, times=QUICK)
    assert await here.allowed() == [f"{ADDRESS}/32"]


async def test_settings_that_cannot_be_restored_are_reported(here: Scene) -> None:
    manner = Manner(blocked="no")
    async with fake_robot(manner) as robot:
        robot.mode, robot.ws_url = "unheard of", ""
        with pytest.raises(PairError):
            await here.pair(robot, times=QUICK)
    (left,) = [outcome for outcome in here.outcomes if outcome.state == "left"]
    why = "the former connection is unknown"
    assert left.what == f"The app's former connection could not be restored ({why})"
    assert left.fix == "In the app: Settings -> Connection"


@asynccontextmanager
async def cancelled(
    here: Scene, blocked: str, moment: PairingStep = "setting"
) -> AsyncIterator[FakeRobot]:
    """Pairing, cancelled at the end of the block as ``asyncio.run`` does on Ctrl-C."""
    async with fake_robot(Manner(blocked=blocked)) as robot:
        task = asyncio.create_task(here.pair(robot))
        await here.until(moment)
        yield robot
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_permission_that_cannot_be_undone_is_reported(here: Scene) -> None:
    async with cancelled(here, ""):
        await asyncio.to_thread(here.file.path.write_text, "{")
    left = here.outcomes[-1]
    assert (left.step, left.state) == ("access", "left")
    assert left.what.startswith(f"{ADDRESS} is still allowed to connect (")
    assert left.fix == f"reachy-voice allow --remove {ADDRESS}"


async def test_a_setting_made_meanwhile_stays(here: Scene) -> None:
    """By hand in the app's settings, or by ``pair`` on another machine."""
    async with cancelled(here, "no") as robot:
        robot.ws_url = "ws://192.168.1.9:8765/v1/realtime"
    assert robot.ws_url == "ws://192.168.1.9:8765/v1/realtime"
    assert here.said("setting")[-1] == "The app does not use this server"


async def test_a_setting_pending_until_the_next_start_is_reported(here: Scene) -> None:
    async with cancelled(here, "no") as robot:
        robot.manner.needs_restart = True
    said = "The app's former connection is restored, once it is restarted"
    assert here.said("setting")[-1] == said


@pytest.mark.parametrize("moment", ["robot", "app", "access", "setting"])
async def test_ctrl_c_leaves_nothing_half_done(here: Scene, moment: PairingStep) -> None:
    async with cancelled(here, "", moment) as robot:
        pass
    assert robot.mode == HOSTED
    assert await here.allowed() == []


class SlowFile(AccessFile):
    """A file whose lock another command holds for a while."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.waiting, self.let_go = threading.Event(), threading.Event()

    def change(self, edit: Callable[[AccessList], AccessList]) -> AccessList:
        self.waiting.set()
        self.let_go.wait()
        return super().change(edit)


async def test_cancelled_while_the_list_is_written(here: Scene) -> None:
    """The thread cannot be stopped, so whatever it still writes is undone."""
    here.file = file = SlowFile(here.file.path)
    async with fake_robot() as robot:
        task = asyncio.create_task(here.pair(robot))
        await asyncio.to_thread(file.waiting.wait)
        task.cancel()
        file.let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await here.allowed() == []


async def test_a_list_that_cannot_be_read(here: Scene) -> None:
    await asyncio.to_thread(here.file.path.write_text, "{")
    async with fake_robot() as robot:
        with pytest.raises(ConfigError):
            await here.pair(robot)
        assert robot.mode == HOSTED


async def test_the_settings_may_already_allow_it(here: Scene) -> None:
    here.in_settings = ("127.0.0.0/29",)
    await here.allow("127.0.0.0/29")  # the server's own settings do
    async with fake_robot() as robot:
        await here.pair(robot)
    assert here.said("access") == [f"{ADDRESS} was allowed already"]
    assert await here.allowed() == ["127.0.0.0/29"]


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def test_an_undo_that_fails_does_not_stop_the_others(
    here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.pairing.flow.former", lambda before: 1 / 0)
    async with fake_robot(Manner(blocked="no")) as robot:
        with pytest.raises(ZeroDivisionError):
            await here.pair(robot, times=QUICK)
    assert await here.allowed() == []
