"""The real daemon of a Reachy Mini with a mock-up robot, one per test file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from app.models.weights import WeightsCache
from tests.clients.installed import python_with_clients
from tests.support.robot_daemon import LOCK, RobotDaemon, robot_daemon


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def python(cache: WeightsCache) -> Path:
    """The interpreter with the daemon; its environment is made on first use."""
    return await asyncio.to_thread(python_with_clients, cache.directory, LOCK)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def robot(
    python: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RobotDaemon]:
    home = tmp_path_factory.mktemp("robot")
    install_app(home, "dancer")
    async with robot_daemon(python, home) as robot:
        yield robot


def install_app(home: Path, name: str) -> None:
    """Install an app for the daemon; it does nothing for an hour."""
    (home / f"{name}.py").write_text("import time\n\ntime.sleep(3600)\n")
    about = home / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[reachy_mini_apps]\n{name} = {name}:App\n")
