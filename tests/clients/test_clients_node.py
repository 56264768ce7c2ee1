"""OpenAI's JavaScript clients, unmodified, hold every kind of turn with our server.

npm ``openai`` (raw events; it insists on TLS) and ``@openai/agents-realtime`` (sessions, agents,
tools). Engines are scripted, everything else is real.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from app.models.weights import WeightsCache
from app.server.tls import tls_generated
from tests.clients.installed import HERE, NotInstalled, node_modules, or_skip
from tests.clients.programs import TURNS, Held, hold_turns
from tests.clients.serving import Served, scripted_server
from tests.clients.turns import check

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),  # the first time, the clients are installed
]
PROGRAMS = {
    "openai": "openai_ws.mjs",
    "openai-without-tls": "openai_ws.mjs",
    "agents-realtime": "agents_realtime.mjs",
}


@pytest.fixture(scope="module")
def folder(cache: WeightsCache, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs beside their packages, where Node looks for them."""
    try:
        packages = node_modules(cache.directory)
    except NotInstalled as error:
        return or_skip(error)
    folder = tmp_path_factory.mktemp("node")
    for program in (HERE / "node").glob("*.mjs"):
        shutil.copy(program, folder)
    (folder / "node_modules").symlink_to(packages)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(PROGRAMS))
async def held(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Served, Held]]:
    tls = None
    if request.param == "openai":
        tls = tls_generated(tmp_path_factory.mktemp("tls"), ["127.0.0.1"])
    async with scripted_server(tls=tls) as served:
        yield served, await hold_turns(served, ["node", PROGRAMS[request.param]], folder)


@pytest.mark.parametrize("turn", TURNS)
async def test_it_holds_the_turn(held: tuple[Served, Held], turn: str) -> None:
    served, turns = held
    check(served, turns, turn)
