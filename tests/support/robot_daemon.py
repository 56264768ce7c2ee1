"""The real daemon of a Reachy Mini with a mock-up robot, in a separate process and environment
(``tests/support/robot_env``)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect

from tests.support.far_server import free_port
from tests.support.programs import Program, running

ENVIRONMENT = Path(__file__).parent / "robot_env"
LOCK = ENVIRONMENT / "requirements.lock"
READY = "Uvicorn running on"


@dataclass
class RobotDaemon:
    """A robot at ``url``; ``http`` queries it for the test."""

    url: str
    program: Program
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
        """The robot's pose, 50 times a second."""
        url = f"ws{self.url.removeprefix('http')}/api/state/ws/full?frequency=50"
        async with connect(url, proxy=None) as socket:
            async for message in socket:
                yield json.loads(message)

    async def reaches(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first state that meets the condition; fails after 10 s without one."""
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
        await self.program.kill()


@asynccontextmanager
async def robot_daemon(
    python: Path, home: Path, port: int | None = None
) -> AsyncIterator[RobotDaemon]:
    """``home``: where it may write. ``port``: restart on the port of a killed daemon."""
    port = port or free_port()
    options = ["--mockup-sim", "--no-media", "--headless", "--no-wake-up-on-start"]
    options += ["--no-goto-sleep-on-stop", "--no-preload-datasets", "--dataset-update-interval=0"]
    program_file = ENVIRONMENT / "mockup_daemon.py"
    command = map(str, (python, program_file, *options, "--fastapi-port", port))
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONPATH": str(home),  # for apps that a test installs
        "PYTHONUNBUFFERED": "1",
    }
    url = f"http://127.0.0.1:{port}"
    async with (
        running(*command, ready=READY, cwd=home, env=environ) as program,
        httpx.AsyncClient(base_url=f"{url}/api/", trust_env=False) as http,
    ):
        yield RobotDaemon(url, program, http)
