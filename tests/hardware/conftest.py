"""The real daemon of a Reachy Mini with a mocked-up robot, one for each file of tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from app.models.weights import WeightsCache
from tests.support.robot_daemon import RobotDaemon, python_with_daemon, robot_daemon


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def python(cache: WeightsCache) -> Path:
    return await asyncio.to_thread(python_with_daemon, cache)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def robot(
    python: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RobotDaemon]:
    async with robot_daemon(python, tmp_path_factory.mktemp("robot")) as robot:
        yield robot
