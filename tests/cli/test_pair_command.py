"""The verb ``pair`` as a shell calls it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import app.pairing.flow
import app.pairing.place
from app.cli import pair as command
from app.cli.command_line import cli
from app.cli.pair import PairingInterrupt
from app.pairing.flow import Pairing
from app.pairing.steps import PairError, RobotAddress, StepOutcome, Times

pytestmark = pytest.mark.machine

KITCHEN = RobotAddress("kitchen", "192.168.1.7", "192.168.1.5")
FAILED = PairError("It does not come", why="a wall", fix="Open the door")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("REACHY_VOICE__SERVER__PORT", "8770")
    return lambda *words: CliRunner().invoke(cli, ["pair", *words])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Pairing]:
    """The arguments of pairings, which all succeed."""
    asked: list[Pairing] = []

    async def succeed(self: Pairing) -> RobotAddress:
        asked.append(self)
        self.tell(StepOutcome("robot", "ok", KITCHEN.place))
        self.tell(StepOutcome("way back", "ok", "it is connected"))
        return KITCHEN

    monkeypatch.setattr(Pairing, "run", succeed)
    return asked


async def _fail(self: Pairing) -> RobotAddress:
    self.tell(StepOutcome("way back", "failed", FAILED.what))
    self.tell(StepOutcome("setting", "left", "Not set back", "In the app: Settings"))
    self.tell(StepOutcome("access", "undone", "192.168.1.7 is no longer allowed"))
    raise FAILED


def test_each_step_is_a_line(run: Callable[..., Result], asked: list[Pairing]) -> None:
    result = run("kitchen")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "ok      robot: kitchen (192.168.1.7)",
        "ok      way back: it is connected",
        "Say something to it.",
    ]
    (one,) = asked
    assert (one.target, one.port) == ("kitchen", 8770)
    assert one.loopback


def test_options_and_settings_reach_it(
    run: Callable[..., Result], asked: list[Pairing], tmp_path: Path
) -> None:
    own = tmp_path / "own.json"
    words = ["--port", "9000"]
    sets = [f"paths.access_file={own}", "access.loopback=false", 'access.addresses=["10.0.0.0/8"]']
    for one in sets:
        words += ["--set", one]
    assert run(*words).exit_code == 0
    (one,) = asked
    assert (one.target, one.port) == (None, 9000)
    assert (one.file.path, one.loopback) == (own, False)
    assert one.in_settings == ("10.0.0.0/8",)


def test_a_failure_is_an_error_with_a_next_step(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pairing, "run", _fail)
    result = run("kitchen")
    assert result.exception is FAILED
    assert FAILED.exit_code == 23
    assert result.output.splitlines() == [
        "failed  way back",
        "left    setting: Not set back. In the app: Settings",
        "undone  access: 192.168.1.7 is no longer allowed",
    ]


def test_find_only_lists(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [KITCHEN, RobotAddress("reachy_mini", "127.0.0.1", "127.0.0.1")]

    async def around(times: Times) -> list[RobotAddress]:
        return found

    monkeypatch.setattr(app.pairing.place, "robots_around", around)
    assert run("--find").output.splitlines() == [
        f"{'kitchen':<24} 192.168.1.7",
        f"{'reachy_mini':<24} on this machine",
    ]
    found.clear()
    nothing = "No robot was found. Give its address: reachy-voice pair 192.168.1.7"
    assert run("--find").output.splitlines() == [nothing]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_for_the_undo(
    run: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    """However often the signal comes."""

    async def undo(self: Pairing) -> None:
        for _ in range(3):
            os.kill(os.getpid(), number)
            await asyncio.sleep(0)
        self.tell(StepOutcome("setting", "undone", "what became of it"))

    async def wait(self: Pairing) -> RobotAddress:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            await undo(self)
        raise AssertionError("not reached")

    monkeypatch.setattr(Pairing, "run", wait)
    result = run("kitchen")
    assert isinstance(result.exception, PairingInterrupt)
    assert result.exception.exit_code == 128 + number
    assert result.output == "undone  setting: what became of it\n"


def test_a_signal_ends_the_search(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def around(times: Times) -> list[RobotAddress]:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(app.pairing.place, "robots_around", around)
    stopped = run("--find")
    assert isinstance(stopped.exception, PairingInterrupt)
    assert stopped.exception.exit_code == 130


def test_the_command_loads_nothing_heavy() -> None:
    """It is imported for every verb."""
    assert not {"httpx", "websockets", "zeroconf"} & set(vars(command))
