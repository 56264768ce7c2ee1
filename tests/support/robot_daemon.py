"""The real daemon of a Reachy Mini, with a mocked-up robot, in a process and an environment of
its own (``tests/support/robot_env``)."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect

from app.models.weights import WeightsCache
from tests.clients.installed import NotInstalled, or_skip, python_with_clients

ENVIRONMENT = Path(__file__).parent / "robot_env"
LOCK = ENVIRONMENT / "requirements.lock"
START_LIMIT_S = 40.0
READY = "Uvicorn running on"


def python_with_daemon(cache: WeightsCache) -> Path:
    """The interpreter that has the daemon; made when first asked for. Skips the test where there
    is no network to make it from."""
    try:
        return python_with_clients(cache.directory, LOCK)
    except NotInstalled as error:
        or_skip(error)


@dataclass
class RobotDaemon:
    """A robot on ``url``; ``http`` asks it what a test wants to know."""

    url: str
    process: Process
    http: httpx.AsyncClient

    async def get(self, path: str) -> Any:
        response = await self.http.get(path)
        response.raise_for_status()
        return response.json()

    async def post(self, path: str, content: Any = None) -> Any:
        response = await self.http.post(path, json=content)
        response.raise_for_status()
        return response.json()

    async def states(self) -> AsyncGenerator[dict[str, Any], None]:
        """Where the robot is, 50 times a second."""
        url = f"ws{self.url.removeprefix('http')}/api/state/ws/full?frequency=50"
        async with connect(url, proxy=None) as socket:
            async for message in socket:
                yield json.loads(message)

    async def reaches(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first state that fulfils the condition; fails when none does for 10 s."""
        state: dict[str, Any] = {}
        try:
            async with asyncio.timeout(10), aclosing(self.states()) as states:
                async for state in states:
                    if condition(state):
                        return state
        except TimeoutError:
            pass
        raise AssertionError(f"the robot is at {state}")

    async def kill(self) -> None:
        """At once, as by a power cut."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def robot_daemon(
    python: Path, home: Path, port: int | None = None
) -> AsyncIterator[RobotDaemon]:
    """``home``: where it may write. With ``port`` it comes back where one was killed."""
    port = port or free_port()
    options = ["--mockup-sim", "--no-media", "--headless", "--no-wake-up-on-start"]
    options += [
        "--no-goto-sleep-on-stop",
        "--no-preload-datasets",
        "--dataset-update-interval",
        "0",
    ]
    process = await asyncio.create_subprocess_exec(
        python,
        ENVIRONMENT / "mockup_daemon.py",
        *options,
        *("--fastapi-port", str(port)),
        cwd=home,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "HF_HUB_OFFLINE": "1",
            "DO_NOT_TRACK": "1",
            "PYTHONPATH": str(home),  # for apps that a test puts there
            "PYTHONUNBUFFERED": "1",
        },
    )
    output = process.stdout
    assert output is not None
    said: list[str] = []

    async def until_ready() -> None:
        while (line := (await output.readline()).decode(errors="replace")) != "":
            said.append(line)
            if READY in line:
                return
        raise AssertionError("the daemon ended:\n" + "".join(said))

    async def drain() -> None:
        while await output.read(65536):
            pass

    url = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(START_LIMIT_S):
            await until_ready()
        async with (
            asyncio.TaskGroup() as group,
            httpx.AsyncClient(base_url=f"{url}/api/", trust_env=False) as http,
        ):
            group.create_task(drain())
            daemon = RobotDaemon(url, process, http)
            try:
                yield daemon
            finally:
                await daemon.kill()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
