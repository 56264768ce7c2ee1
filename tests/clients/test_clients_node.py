"""OpenAI's JavaScript client, unmodified, does every kind of turn with our server.

npm ``@openai/agents-realtime`` (sessions, agents, tools). Engines are scripted; all else is real.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from app.models.weights import WeightsCache
from tests.clients.installed import HERE, node_modules
from tests.clients.programs import TURNS, Held, hold_turns
from tests.clients.serving import Served, scripted_server
from tests.clients.turns import check

pytestmark = [
    pytest.mark.clients,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),  # the first time, the clients are installed
]


@pytest.fixture(scope="module")
def folder(cache: WeightsCache, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs next to their packages, where Node looks for them."""
    folder = tmp_path_factory.mktemp("node")
    for program in (HERE / "node").glob("*.mjs"):
        shutil.copy(program, folder)
    (folder / "node_modules").symlink_to(node_modules(cache.directory))
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def held(folder: Path) -> AsyncIterator[tuple[Served, Held]]:
    async with scripted_server() as served:
        yield served, await hold_turns(served, ["node", "agents_realtime.mjs"], folder)


@pytest.mark.parametrize("turn", TURNS)
async def test_the_client_completes_the_turn(held: tuple[Served, Held], turn: str) -> None:
    served, turns = held
    check(served, turns, turn)
