"""A server per test, as ``pair`` and the robot's app see it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clients.serving import Served, scripted_server
from tests.support.pair_scene import Scene, scene


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene(tmp_path) as made:
        yield made


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with scripted_server() as served:
        yield served
        served.conformed()
