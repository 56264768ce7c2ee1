"""What each failure of ``pair`` says: what, why, and what to do. Nothing stays changed."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.pairing.steps import PairError
from pipeline.errors import ReachyVoiceError
from tests.support.fake_robot import (
    ADDRESS,
    HOSTED,
    FakeRobot,
    Manner,
    fake_robot,
    refusal,
    unknown_method,
)
from tests.support.far_server import free_port
from tests.support.pair_scene import QUICK, Scene, scene

pytestmark = pytest.mark.machine

EVENTFUL = replace(QUICK, way_back_s=1.5)
"""Timeouts for failures while it waits for the robot."""


async def failure(here: Scene, robot: FakeRobot, *, port: int = 0) -> tuple[str, str, str]:
    """``what, why, fix`` of the failure; checks that nothing stays changed."""
    with pytest.raises(ReachyVoiceError) as failed:
        await here.pair(robot, port=port, times=QUICK)
    assert isinstance(failed.value, PairError)
    assert await here.allowed() == []
    assert robot.mode == HOSTED
    told = [outcome for outcome in here.outcomes if outcome.state == "failed"]
    assert [one.what for one in told] == [failed.value.what]
    what, why, fix = failed.value.args
    return what, why, fix


@pytest.mark.parametrize(
    ("manner", "why"),
    [
        (Manner(upgrade=404), "HTTP 404"),
        (Manner(upgrade=403), "HTTP 403"),
        (Manner(rpc={"*": "garbage"}), "a frame is not JSON"),
        (Manner(rpc={"*": "other"}), "a frame is not JSON-RPC 2.0"),
        (Manner(rpc={"*": "no result"}), "the result is not an object"),
        (
            Manner(rpc={"*": {"result": {"phase": "running"}}}),
            "conversation.status has no backend_connected",
        ),
        (Manner(rpc={"*": "close"}), "the connection was lost"),
        (
            Manner(rpc={"*": unknown_method("conversation.status")}),
            "unknown method: conversation.status",
        ),
        (Manner(rpc={"*": refusal("internal_error", "KeyError", -32603)}), "KeyError"),
    ],
)
async def test_the_app_speaks_something_else(here: Scene, manner: Manner, why: str) -> None:
    async with fake_robot(manner) as robot:
        what, because, fix = await failure(here, robot)
    assert what == f"The app at {ADDRESS}:{robot.app_port} cannot be configured from here"
    assert because == why
    assert fix.endswith("or configure it by hand. In the app: Settings -> Connection -> Local")


@pytest.mark.parametrize(
    ("mood", "why"),
    [
        (unknown_method("backend.config"), "unknown method: backend.config"),
        (
            refusal("settings_pin_required", "settings PIN required", -32000),
            "settings PIN required",
        ),
        (refusal("invalid_hf_host", "invalid Hugging Face host"), "invalid Hugging Face host"),
        ("silent", "the robot is off, in another network, or behind a firewall"),
        ("close", "the connection was lost"),
        ({"result": {"ok": False}}, "backend.config did not say ok"),
    ],
)
async def test_the_app_refuses_the_setting(here: Scene, mood: Any, why: str) -> None:
    async with fake_robot(Manner(rpc={"backend.config": mood})) as robot:
        what, because, fix = await failure(here, robot)
    assert (what, because) == ("The robot's app did not take the address of this server", why)
    assert fix.endswith(f"Settings -> Connection -> Local, host 127.0.0.1, port {here.port}")
    assert here.said("setting")[-1] == "The app does not use this server"


# --- the robot and this machine ----------------------------------------------------------------


async def test_no_app_answers(here: Scene) -> None:
    async with fake_robot(app=False) as robot:
        what, _, fix = await failure(here, robot)
    assert what == f"No conversation app answers at {ADDRESS}:{robot.app_port}"
    assert fix.startswith("Start it in the robot's dashboard")
    assert "reachy-voice pair localhost" in fix


async def test_no_server_runs(here: Scene) -> None:
    async with fake_robot() as robot:
        what, why, fix = await failure(here, robot, port=free_port(ADDRESS))
    assert what == "No reachy-voice server runs on this machine"
    assert why.startswith("nothing listens at 127.0.0.1:")
    # This robot connects from this machine.
    assert fix == "Start it with: reachy-voice serve (or name its port with --port)"


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
                "The robot reaches this server, which refuses it (503)",
                "an engine is not ready, or the server is full (server.max_sessions)",
                "Look at the server's console; pair again when it says Ready, or a conversation "
                "has ended",
            ),
        ),
        ({"other_file": True}, REFUSED),
    ],
)
async def test_the_server_refuses_the_robot(
    tmp_path: Path, server: Any, said: tuple[str, str, str]
) -> None:
    async with scene(tmp_path, **server) as here, fake_robot() as robot:
        assert await failure(here, robot) == said


async def test_the_server_ends_meanwhile(here: Scene) -> None:
    """The error does not blame the firewall."""
    async with fake_robot(Manner(blocked="")) as robot:
        task = asyncio.create_task(here.pair(robot, times=EVENTFUL))
        await here.until("setting")
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(PairError) as failed:
            await task
        assert robot.mode == HOSTED
    assert failed.value.what == "No reachy-voice server runs on this machine"
    assert failed.value.exit_code == 9


# --- the way back; the other reasons are in test_pair_way_back.py ------------------------------


async def test_the_app_crashes_when_it_is_set(here: Scene) -> None:
    async with fake_robot(Manner(dies=True)) as robot:
        with pytest.raises(PairError) as failed:
            await here.pair(robot, times=QUICK)
    assert [outcome.state for outcome in here.outcomes][-2:] == ["left", "undone"]
    assert failed.value.why == "the app stopped answering after it was configured"


async def test_the_app_s_former_connection_is_not_taken_for_ours(here: Scene) -> None:
    """It lasts a moment longer."""
    async with fake_robot(Manner(blocked="no")) as robot:
        robot.connected = True
        pairing = asyncio.create_task(here.pair(robot, times=EVENTFUL))
        await here.until("setting")
        await asyncio.sleep(0.2)
        robot.connected = False
        with pytest.raises(PairError):
            await pairing
