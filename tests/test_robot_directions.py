"""A served robot's clients are told from where somebody speaks to it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_array import ScriptedArray
from test_embodiment import DEFAULT

from app.robot_directions import places_of, robot_directions
from pipeline.commands import NoteDirection


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


async def told_of(clients: dict[Any, str], url: str, array: ScriptedArray) -> None:
    """Until the first client hears of a direction, and one reading more."""
    running = asyncio.create_task(robot_directions(assistant(url, clients), lambda: array))
    async with asyncio.timeout(10):
        for _ in range(2):
            await next(iter(clients)).told.get()
    running.cancel()
    await asyncio.wait({running})


async def test_the_robots_client_is_told_and_nobody_else() -> None:
    robot, other = Client(), Client()
    array = ScriptedArray()
    await told_of({robot: "10.0.0.7", other: "10.0.0.8"}, "http://10.0.0.7:8000", array)
    assert other.told.empty()
    assert not array.open


async def test_a_robot_on_this_machine() -> None:
    await told_of({Client(): "127.0.0.1"}, "http://localhost:8000", ScriptedArray())


async def test_without_a_robot_nothing_runs() -> None:
    def never() -> Any:
        raise AssertionError

    await robot_directions(assistant(None, {}), never)


def test_a_name_that_nobody_knows(caplog: pytest.LogCaptureFixture) -> None:
    assert places_of("nobody.invalid") == frozenset()
    assert "is not known" in caplog.text
    assert places_of("127.0.0.1") == {"127.0.0.1", "::1"}
