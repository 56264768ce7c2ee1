"""The server sends a robot's clients the direction of speech."""

from __future__ import annotations

import asyncio
import math
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from app.server.gate import Access
from app.server.robot_directions import ArraySeen, places_of, robot_directions
from app.server.serving import _array, _Ports, _side_tasks
from hardware.xvf3800.errors import array_error
from pipeline.commands import NoteDirection
from tests.support.beside import beside
from tests.support.scripted_array import ScriptedArray
from tests.talk.test_embodiment import DEFAULT

pytestmark = pytest.mark.quick


class Client:
    def __init__(self) -> None:
        self.told: asyncio.Queue[NoteDirection] = asyncio.Queue()
        self.offer = self.told.put_nowait


def assistant(url: str | None, clients: dict[Any, str]) -> Any:
    ready = asyncio.Event()
    ready.set()
    robot = DEFAULT.robot.model_copy(update={"url": url})
    settings = DEFAULT.model_copy(update={"robot": robot})
    return SimpleNamespace(settings=settings, ready=ready, sessions=clients)


async def told_of(clients: dict[Any, str], url: str, array: ScriptedArray) -> ArraySeen:
    """Run until the first client was told of two directions."""
    seen = ArraySeen(url)
    running = robot_directions(assistant(url, clients), seen, lambda: array)
    async with beside(running), asyncio.timeout(10):
        for _ in range(2):
            await next(iter(clients)).told.get()
    return seen


async def test_only_the_robots_client_is_told() -> None:
    robot, other = Client(), Client()
    array = ScriptedArray()
    await told_of({robot: "10.0.0.7", other: "10.0.0.8"}, "http://10.0.0.7:8000", array)
    assert other.told.empty()
    assert not array.open


async def test_a_robot_on_this_machine() -> None:
    array = ScriptedArray({"DOA_VALUE_RADIANS": (math.radians(30), 1.0)})
    seen = await told_of({Client(): "127.0.0.1"}, "http://localhost:8000", array)
    assert (round(seen.azimuth_deg or 0), seen.speech, seen.problem) == (30, True, None)


async def test_a_robot_may_be_switched_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before that its name has no address."""
    robot = Client()
    openings = [array_error("not found", "it is off"), array_error("not found", "it is off")]
    looked_up: list[str] = []

    def known_now(host: str) -> frozenset[str]:
        looked_up.append(host)
        return frozenset() if openings else frozenset({"10.0.0.7"})

    def opened() -> Any:
        if openings:
            raise openings.pop()
        return ScriptedArray()

    monkeypatch.setattr("app.server.robot_directions.places_of", known_now)
    monkeypatch.setattr("hardware.xvf3800.watch.BACK_OFF_S", (0.0,))
    served = assistant("http://reachy-mini.local:8000", {robot: "10.0.0.7"})
    seen = ArraySeen("http://reachy-mini.local:8000")
    async with beside(robot_directions(served, seen, opened)), asyncio.timeout(10):
        await robot.told.get()
    assert set(looked_up) == {"reachy-mini.local"}


def test_addresses_are_compared_in_the_clients_form(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(0, 0, 0, "", ("fe80::1%eth0", 0, 0, 2)), (0, 0, 0, "", ("::ffff:10.0.0.7", 0, 0, 0))]
    monkeypatch.setattr("socket.getaddrinfo", lambda host, port: found)
    assert places_of("reachy-mini.local") == {"fe80::1", "10.0.0.7"}


@pytest.mark.parametrize(
    ("url", "control", "runs"),
    [(None, "auto", False), ("http://a", "never", False), ("http://a", "auto", True)],
)
def test_a_missing_array_is_reported_where_directions_are_limited(
    url: str | None, control: str, runs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    served = assistant(url, {})
    array = served.settings.array.model_copy(update={"control": control, "accept_deg": 90.0})
    server = served.settings.server.model_copy(update={"announce": False})
    served.settings = served.settings.model_copy(update={"array": array, "server": server})
    with socket.socket() as main:
        ports = _Ports(main, (), None, None)
        tasks = list(_side_tasks(served, _array(served.settings), ports, Access(), None))
    names = [task.cr_code.co_name for task in tasks]
    for task in tasks:
        task.close()
    assert ("robot_directions" in names) == runs
    assert ("everyone is answered" in caplog.text) != runs


def test_an_unknown_name(caplog: pytest.LogCaptureFixture) -> None:
    assert places_of("nobody.invalid") == frozenset()
    assert "is not known" in caplog.text
    assert places_of("127.0.0.1") == {"127.0.0.1", "::1"}
