"""What each failure of ``pair`` says: what, why, and what to do. Nothing stays changed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

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

AGAIN = f"reachy-voice pair {ADDRESS} --start"
INSTALL = "Install or update the conversation app in the robot's dashboard (0.9 or newer)"
APP = "reachy_mini_conversation_app"
FAILED = (
    f"The app {APP} has failed on the robot",
    "ImportError: no gi",
    f"Look at its log in the robot's dashboard, then: {AGAIN}",
)
FAILING = {"info": {"name": APP}, "state": "error", "error": "x\nImportError: no gi"}
DANCES = {"info": {"name": "dance_app"}, "state": "running", "error": None}
DANCING = (
    "The robot runs another app: dance_app",
    "it can run only one app at a time",
    f"Stop it in the robot's dashboard, then: {AGAIN}",
)
STOPS = {"info": {"name": "conversation"}, "state": "stopping", "error": None}
STOPPING = (
    "The app conversation is being stopped",
    "",
    f"Wait until it has ended, then: {AGAIN}",
)
NO_RPC = "it has no JSON-RPC at /rpc, like older versions ({})"
STRANGE = "The app at {place} cannot be configured from here"
UNCONFIRMED = "The robot's app did not confirm the address of this server"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene(tmp_path) as made:
        yield made


async def failure(
    here: Scene, robot: FakeRobot, *, start: bool = False, port: int = 0
) -> tuple[str, str, str]:
    """``what, why, fix``; nothing stays changed."""
    with pytest.raises(ReachyVoiceError) as failed:
        await here.pair(robot, start=start, port=port, times=QUICK)
    assert isinstance(failed.value, PairError)
    assert await here.allowed() == []
    assert robot.mode == HOSTED
    told = [outcome for outcome in here.outcomes if outcome.state == "failed"]
    assert [(one.what, one.why, one.fix) for one in told] == [failed.value.args]
    what, why, fix = failed.value.args
    return what, why, fix


@pytest.mark.parametrize(
    ("manner", "status", "start", "what", "why", "fix"),
    [
        (
            Manner(),
            None,
            False,
            "The conversation app is not running on the robot",
            "",
            f"Start it in the robot's dashboard, or: {AGAIN}",
        ),
        (Manner(starts=False), None, True, *FAILED),
        (Manner(), FAILING, False, *FAILED),
        (
            Manner(installed=("dance_app",)),
            None,
            True,
            "The conversation app is not installed on the robot",
            "the daemon's list of installed apps has none, or several",
            INSTALL,
        ),
        (Manner(), DANCES, False, *DANCING),
        (Manner(), DANCES, True, *DANCING),
        (Manner(), STOPS, False, *STOPPING),
        (Manner(), STOPS, True, *STOPPING),
        (
            Manner(daemon=400),
            None,
            False,
            "The conversation app does not answer, and the daemon cannot say why",
            "Untrusted Host header",
            "Start the app in the robot's dashboard, then pair again",
        ),
        (  # seen: 500 without JSON, for an app that it cannot find
            Manner(found=False),
            None,
            True,
            "The robot's daemon could not start the conversation app",
            "HTTP 500",
            "Start it in the robot's dashboard, which shows its log; then pair again",
        ),
    ],
)
async def test_the_app_does_not_run(
    here: Scene,
    manner: Manner,
    status: dict[str, Any] | None,
    start: bool,
    what: str,
    why: str,
    fix: str,
) -> None:
    async with fake_robot(manner, app=False) as robot:
        robot.status = status
        assert await failure(here, robot, start=start) == (what, why, fix)


async def test_the_app_runs_without_a_page(here: Scene) -> None:
    async with fake_robot(Manner(never_answers=True)) as robot:
        assert await failure(here, robot) == (
            f"The conversation app runs, but does not answer at port {robot.app_port}",
            "0.4 s have passed; it may be an older version, or still be loading",
            f"Wait and pair again; else i{INSTALL[1:]}",
        )


@pytest.mark.parametrize(
    ("manner", "what", "why"),
    [
        (Manner(upgrade=404), STRANGE, NO_RPC.format("HTTP 404")),
        (Manner(upgrade=403), STRANGE, NO_RPC.format("HTTP 403")),
        (Manner(rpc={"*": "garbage"}), STRANGE, NO_RPC.format("a frame is not JSON")),
        (Manner(rpc={"*": "other"}), STRANGE, NO_RPC.format("a frame is not JSON-RPC 2.0")),
        (Manner(rpc={"*": "no result"}), STRANGE, NO_RPC.format("the result is not an object")),
        (
            Manner(rpc={"*": {"result": {"phase": "running"}}}),
            STRANGE,
            NO_RPC.format("conversation.status has no backend_connected"),
        ),
        (
            Manner(rpc={"*": "close"}),
            "The robot's app closed the connection before it answered",
            "it is stopping or restarting",
        ),
        (
            Manner(rpc={"*": unknown_method("conversation.status")}),
            "The app at {place} is not a conversation app that can be paired",
            "unknown method: conversation.status",
        ),
        (
            Manner(rpc={"*": refusal("internal_error", "KeyError", -32603)}),
            "The app at {place} does not report its state",
            "KeyError",
        ),
    ],
)
async def test_the_app_speaks_something_else(
    here: Scene, manner: Manner, what: str, why: str
) -> None:
    async with fake_robot(manner) as robot:
        said, because, _ = await failure(here, robot)
    assert said == what.format(place=f"{ADDRESS}:{robot.app_port}")
    assert because == why


@pytest.mark.parametrize(
    ("mood", "what", "why"),
    [
        (
            unknown_method("backend.config"),
            "This version of the app cannot be configured from here",
            "unknown method: backend.config",
        ),
        (
            refusal("settings_pin_required", "settings PIN required", -32000),
            "The robot's app asks for a PIN before it accepts a setting",
            "settings PIN required",
        ),
        (
            refusal("invalid_hf_host", "invalid Hugging Face host"),
            "The robot's app refused the setting",
            "invalid Hugging Face host",
        ),
        ("silent", UNCONFIRMED, "no answer"),
        ("close", UNCONFIRMED, "connection lost"),
        ({"result": {"ok": False}}, UNCONFIRMED, "backend.config did not say ok"),
    ],
)
async def test_the_app_does_not_take_the_setting(
    here: Scene, mood: Any, what: str, why: str
) -> None:
    async with fake_robot(Manner(rpc={"backend.config": mood})) as robot:
        said, because, fix = await failure(here, robot)
    assert (said, because) == (what, why)
    by_hand = f"Settings -> Connection -> Local, host 127.0.0.1, port {here.port}"
    assert fix.endswith(by_hand) == (what != UNCONFIRMED)
    (left_over,) = [outcome for outcome in here.outcomes if outcome.state == "left"]
    assert left_over.what == "The app's former connection could not be restored"


async def test_a_restart_that_is_not_possible(here: Scene) -> None:
    """The app was started by hand: the daemon does not know it."""
    async with fake_robot(Manner(needs_restart=True)) as robot:
        robot.status = None
        what, why, _ = await failure(here, robot)
    assert what == (
        "The robot's app must be restarted to use the new address, and the daemon cannot do it"
    )
    assert why == "No app is currently running"


# --- the robot and this machine ----------------------------------------------------------------


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


async def test_no_server_runs(here: Scene) -> None:
    async with fake_robot() as robot:
        what, why, fix = await failure(here, robot, port=free_port(ADDRESS))
    assert what == "No reachy-voice server runs on this machine"
    assert why.startswith("nothing listens at 127.0.0.1:")
    # This robot comes from this machine.
    assert fix == "Start it with: reachy-voice serve (or name its port with --port)"


async def test_another_program_has_the_port(here: Scene) -> None:
    async with fake_robot(address="127.0.0.1") as other, fake_robot() as robot:
        what, _, fix = await failure(here, robot, port=other.daemon_port)
    assert what == f"A program other than reachy-voice answers at 127.0.0.1:{other.daemon_port}"
    assert fix.startswith("Name the server's port with --port")


REFUSED = (
    "The robot reaches this server, which refuses it (401)",
    "the server uses another list of allowed addresses than this command",
    "Give pair the --config and --set with which the server was started",
)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (
            {"ready": False},
            (
                "The server is not ready yet",
                "its engines are being loaded",
                "Wait until it says Ready, then pair again",
            ),
        ),
        ({"other_file": True}, REFUSED),
        # It does not say who came: then the app's own words tell.
        ({"other_file": True, "callers": False}, REFUSED),
        (
            {"max_sessions": 0},
            (
                "The robot reached this server, which is full",
                "the limit of conversations is reached (server.max_sessions)",
                "End another conversation, or raise server.max_sessions",
            ),
        ),
    ],
)
async def test_the_server_does_not_take_the_robot(
    tmp_path: Path, server: Any, said: tuple[str, str, str]
) -> None:
    async with scene(tmp_path, **server) as here, fake_robot() as robot:
        assert await failure(here, robot) == said


async def test_the_server_ends_meanwhile(here: Scene) -> None:
    """The firewall is not blamed."""
    async with fake_robot(Manner(blocked="")) as robot:
        task = asyncio.create_task(here.pair(robot, times=QUICK))
        await here.until(Step.SETTING)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(PairError) as failed:
            await task
        assert robot.mode == HOSTED
    assert failed.value.what == "No reachy-voice server runs on this machine"
    assert failed.value.exit_code == 9


# --- the way back; the other reasons are in test_pair_way_back.py ------------------------------


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


async def test_the_app_crashes_when_it_is_set(here: Scene) -> None:
    async with fake_robot(Manner(dies=True)) as robot:
        with pytest.raises(PairError) as failed:
            await here.pair(robot, times=QUICK)
    assert [outcome.state for outcome in here.outcomes][-2:] == ["left", "undone"]
    assert failed.value.what == ("The robot's app stopped answering after it was configured")


async def test_the_app_s_former_connection_is_not_taken_for_ours(tmp_path: Path) -> None:
    """It lasts a moment longer, and this server does not say who is connected."""
    async with scene(tmp_path, callers=False) as here, fake_robot(Manner(blocked="no")) as robot:
        robot.connected = True
        pairing = asyncio.create_task(here.pair(robot, times=QUICK))
        await here.until(Step.SETTING)
        await asyncio.sleep(0.2)
        robot.connected = False
        with pytest.raises(PairError):
            await pairing
