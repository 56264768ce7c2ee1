"""What each failure of ``pair`` says: what, why, and what to do."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.pairing.steps import PairError, Step
from pipeline.errors import ReachyVoiceError
from tests.support.fake_robot import (
    ADDRESS,
    HOSTED,
    FakeRobot,
    Manner,
    fake_robot,
    free_port,
    refusal,
    unknown_method,
)
from tests.support.pair_scene import QUICK, Scene, scene

AGAIN = f"Start it in the robot's dashboard, or: reachy-voice pair {ADDRESS} --start"
INSTALL = "Install or update the conversation app in the robot's dashboard (0.9 or newer)"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene(tmp_path) as made:
        yield made


async def failure(
    here: Scene, robot: FakeRobot, place: str | None = None, *, start: bool = False, port: int = 0
) -> tuple[str, str, str]:
    """``what, why, fix``; nothing stays changed."""
    with pytest.raises(ReachyVoiceError) as failed:
        await here.pair(robot, place, start=start, port=port, times=QUICK)
    assert isinstance(failed.value, PairError)
    assert await here.allowed() == []
    assert robot.mode == HOSTED
    told = [outcome for outcome in here.outcomes if outcome.state == "failed"]
    assert [(one.what, one.why, one.fix) for one in told] == [failed.value.args]
    what, why, fix = failed.value.args
    return what, why, fix


# --- the app -----------------------------------------------------------------------------------


async def test_the_app_does_not_run(here: Scene) -> None:
    async with fake_robot(app=False) as robot:
        said = await failure(here, robot)
        assert robot.status is None
    assert said == ("The conversation app does not run on the robot", "", AGAIN)


async def test_the_app_has_failed(here: Scene) -> None:
    async with fake_robot(Manner(starts=False), app=False) as robot:
        fix = f"Look at its log in the robot's dashboard, then: reachy-voice pair {ADDRESS} --start"
        what = "The app reachy_mini_conversation_app has failed on the robot"
        assert await failure(here, robot, start=True) == (what, "ImportError: no gi", fix)
        here.outcomes.clear()
        assert await failure(here, robot) == (what, "ImportError: no gi", fix)


async def test_the_app_is_not_installed(here: Scene) -> None:
    async with fake_robot(Manner(installed=("dance_app",)), app=False) as robot:
        assert await failure(here, robot, start=True) == (
            "The conversation app is not installed on the robot",
            "the daemon's list of installed apps has none, or several",
            INSTALL,
        )


async def test_another_app_runs(here: Scene) -> None:
    async with fake_robot(app=False) as robot:
        robot.status = {"info": {"name": "dance_app"}, "state": "running", "error": None}
        for start in (False, True):
            here.outcomes.clear()
            assert await failure(here, robot, start=start) == (
                "The robot runs another app: dance_app",
                "it runs one at a time",
                f"Stop it in the robot's dashboard, then: reachy-voice pair {ADDRESS} --start",
            )


async def test_the_app_is_being_stopped(here: Scene) -> None:
    async with fake_robot(app=False) as robot:
        robot.status = {"info": {"name": "conversation"}, "state": "stopping", "error": None}
        for start in (False, True):
            here.outcomes.clear()
            what, _, fix = await failure(here, robot, start=start)
            assert what == "The app conversation is just being stopped"
            assert fix == f"Wait until it has ended, then: reachy-voice pair {ADDRESS} --start"


async def test_the_app_runs_without_a_page(here: Scene) -> None:
    async with fake_robot(Manner(never_answers=True)) as robot:
        what, why, fix = await failure(here, robot)
    assert what == f"The conversation app runs, but does not answer at port {robot.app_port}"
    assert why == "0.4 s have passed; it may be an older version, or still be loading"
    assert fix == f"Wait and pair again; else i{INSTALL[1:]}"


@pytest.mark.parametrize("status", [404, 403])
async def test_the_app_has_no_rpc(here: Scene, status: int) -> None:
    async with fake_robot(Manner(upgrade=status)) as robot:
        assert await failure(here, robot) == (
            f"The app at {ADDRESS}:{robot.app_port} cannot be set from here",
            f"it has no JSON-RPC at /rpc, as older versions (HTTP {status})",
            f"{INSTALL}, or set it by hand: Settings -> Connection -> Local",
        )


@pytest.mark.parametrize(
    ("mood", "detail"),
    [
        ("garbage", "a frame is not JSON"),
        ("other", "a frame is not JSON-RPC 2.0"),
        ("no result", "the result is no object"),
        ({"result": {"phase": "running"}}, "conversation.status has no backend_connected"),
    ],
)
async def test_the_app_speaks_something_else(here: Scene, mood: object, detail: str) -> None:
    async with fake_robot(Manner(rpc={"*": mood})) as robot:  # type: ignore[dict-item]
        _, why, _ = await failure(here, robot)
    assert why == f"it has no JSON-RPC at /rpc, as older versions ({detail})"


async def test_the_app_hangs_up(here: Scene) -> None:
    async with fake_robot(Manner(rpc={"*": "close"})) as robot:
        assert await failure(here, robot) == (
            "The robot's app closed the connection before it answered",
            "it is ending or starting again",
            "Wait a moment, then pair again",
        )


async def test_the_app_is_another_one(here: Scene) -> None:
    status = unknown_method("conversation.status")
    async with fake_robot(Manner(rpc={"*": status})) as robot:
        assert await failure(here, robot) == (
            f"The app at {ADDRESS}:{robot.app_port} is not a conversation app that can be paired",
            "unknown method: conversation.status",
            INSTALL,
        )


async def test_the_app_fails_inside(here: Scene) -> None:
    error = refusal("internal_error", "KeyError", -32603)
    async with fake_robot(Manner(rpc={"*": error})) as robot:
        what, why, _ = await failure(here, robot)
    assert what == f"The app at {ADDRESS}:{robot.app_port} does not tell its state"
    assert why == "KeyError"


# --- the setting -------------------------------------------------------------------------------


async def test_an_app_without_the_setting(here: Scene) -> None:
    manner = Manner(rpc={"backend.config": unknown_method("backend.config")})
    async with fake_robot(manner) as robot:
        what, why, fix = await failure(here, robot)
    assert what == "This version of the app cannot be pointed at a server from here"
    assert why == "unknown method: backend.config"
    assert fix.endswith(f"Settings -> Connection -> Local, host 127.0.0.1, port {here.port}")


async def test_an_app_with_a_pin(here: Scene) -> None:
    pin = refusal("settings_pin_required", "settings PIN required", -32000)
    async with fake_robot(Manner(rpc={"backend.config": pin})) as robot:
        what, why, _ = await failure(here, robot)
    assert what == "The robot's app asks for a PIN before it is set"
    assert why == "settings PIN required"


async def test_an_app_that_refuses_the_address(here: Scene) -> None:
    error = refusal("invalid_hf_host", "invalid Hugging Face host")
    async with fake_robot(Manner(rpc={"backend.config": error})) as robot:
        what, why, _ = await failure(here, robot)
    assert what == "The robot's app refused the setting"
    assert why == "invalid Hugging Face host"


@pytest.mark.parametrize(
    ("mood", "why"),
    [
        ("silent", "no answer"),
        ("close", "connection lost"),
        ({"result": {"ok": False}}, "backend.config did not say ok"),
    ],
)
async def test_an_app_that_does_not_confirm(here: Scene, mood: object, why: str) -> None:
    async with fake_robot(Manner(rpc={"backend.config": mood})) as robot:  # type: ignore[dict-item]
        what, because, _ = await failure(here, robot)
    assert (what, because) == (
        "The robot's app did not confirm the address of this server",
        why,
    )
    (left,) = [outcome for outcome in here.outcomes if outcome.state == "left"]
    assert left.what == "The app did not get its former connection back"


async def test_a_restart_that_is_not_possible(here: Scene) -> None:
    """The app was started by hand: the daemon knows nothing of it."""
    async with fake_robot(Manner(needs_restart=True)) as robot:
        robot.status = None
        what, why, _ = await failure(here, robot)
    assert what == (
        "The robot's app must be restarted to use the new address, and the daemon cannot do it"
    )
    assert why == "No app is currently running"


# --- the robot ---------------------------------------------------------------------------------


async def test_nothing_answers(here: Scene) -> None:
    async with fake_robot(app=False, daemon=False) as robot:
        what, _, fix = await failure(here, robot)
    assert what == (
        f"No robot answers at {ADDRESS}, "
        f"port {robot.app_port} (app) or {robot.daemon_port} (daemon)"
    )
    assert "reachy-voice pair localhost" in fix


async def test_nothing_answers_on_this_machine(tmp_path: Path) -> None:
    robot_here = fake_robot(app=False, daemon=False, address="127.0.0.1")
    async with scene(tmp_path, loopback=True) as here, robot_here as robot:
        _, _, fix = await failure(here, robot)
    assert fix == (
        "Start the robot's daemon (its desktop app) and the conversation app on this machine"
    )


async def test_the_daemon_does_not_say(here: Scene) -> None:
    async with fake_robot(Manner(daemon=400), app=False) as robot:
        assert await failure(here, robot) == (
            "The conversation app does not answer, and the daemon cannot say why",
            "Untrusted Host header",
            "Start the app in the robot's dashboard, then pair again",
        )


async def test_the_daemon_cannot_start_it(here: Scene) -> None:
    """Seen: 500 without JSON, for an app that it cannot find."""
    async with fake_robot(Manner(found=False), app=False) as robot:
        what, why, _ = await failure(here, robot, start=True)
    assert what == "The robot's daemon could not start the conversation app"
    assert why == "HTTP 500"


# --- this machine ------------------------------------------------------------------------------


async def test_no_server_runs(here: Scene) -> None:
    async with fake_robot() as robot:
        what, why, fix = await failure(here, robot, port=free_port(ADDRESS))
    assert what == "No reachy-voice server runs on this machine"
    assert why.startswith("nothing listens at 127.0.0.1:")
    # This robot comes from this machine.
    assert fix == "Start it with: script/serve (or name its port with --port)"


async def test_the_server_warms_up(tmp_path: Path) -> None:
    async with scene(tmp_path, ready=False) as here, fake_robot() as robot:
        assert await failure(here, robot) == (
            "The server is not ready yet",
            "its engines are being loaded",
            "Wait until it says Ready, then pair again",
        )


async def test_another_program_has_the_port(here: Scene) -> None:
    async with fake_robot(address="127.0.0.1") as other, fake_robot() as robot:
        what, _, fix = await failure(here, robot, port=other.daemon_port)
    assert what == f"Another program than reachy-voice answers at 127.0.0.1:{other.daemon_port}"
    assert fix.startswith("Name the server's port with --port")


# --- the way back ------------------------------------------------------------------------------


async def test_the_server_reads_another_list(tmp_path: Path) -> None:
    async with scene(tmp_path, other_file=True) as here, fake_robot() as robot:
        assert await failure(here, robot) == (
            "The robot reaches this server, which refuses it (401)",
            "the server uses another list of allowed addresses than this command",
            "Give pair the --config and --set with which the server was started",
        )


async def test_the_server_does_not_say_who_came(tmp_path: Path) -> None:
    """An older one: then the app's own words tell."""
    async with scene(tmp_path, other_file=True, callers=False) as here, fake_robot() as robot:
        what, _, _ = await failure(here, robot)
    assert what == "The robot reaches this server, which refuses it (401)"


async def test_the_server_is_full(tmp_path: Path) -> None:
    async with scene(tmp_path, max_sessions=1) as here, here.somebody(), fake_robot() as robot:
        assert await failure(here, robot) == (
            "The robot reached this server, which has no place for it",
            "all conversations are taken (server.max_sessions)",
            "End another conversation, or raise server.max_sessions",
        )


async def test_the_server_ends_meanwhile(here: Scene) -> None:
    """No firewall is to blame."""
    async with fake_robot(Manner(blocked="")) as robot:
        task = asyncio.create_task(here.pair(robot, times=QUICK))
        await here.until(Step.SETTING)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(PairError) as failed:
            await task
        assert robot.mode == HOSTED
    assert failed.value.what == "No reachy-voice server runs on this machine"
    assert failed.value.exit_code == 9


async def test_the_firewall_is_closed(here: Scene) -> None:
    blocked = "TimeoutError: timed out during opening handshake"
    async with fake_robot(Manner(blocked=blocked)) as robot:
        what, why, fix = await failure(here, robot)
    assert what == f"The robot cannot reach this machine at 127.0.0.1:{here.port}"
    assert why == f"nothing arrived here, so a firewall drops it; the app says: {blocked}"
    assert str(here.port) in fix


async def test_the_app_forgets_the_address(here: Scene) -> None:
    async with fake_robot(Manner(keeps_setting=False)) as robot:
        what, why, _ = await failure(here, robot)
    assert what == "The robot's app did not keep the address of this server"
    assert why == "its connection is now: deployed"


async def test_the_app_dies_of_it(here: Scene) -> None:
    async with fake_robot(Manner(dies=True)) as robot:
        with pytest.raises(PairError) as failed:
            await here.pair(robot, times=QUICK)
    assert [outcome.state for outcome in here.outcomes][-2:] == ["left", "undone"]
    assert failed.value.what == (
        "The robot's app stopped answering after it was told of this server"
    )
