"""Python clients, unmodified, hold every kind of turn with our server over a loopback socket.

The official ``openai`` client is in our own environment; ``openai-agents`` and ``pipecat-ai`` live
in one of their own. Engines are scripted, everything else is real.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from app.models.weights import WeightsCache
from tests.clients.installed import HERE, NotInstalled, or_skip, python_with_clients
from tests.clients.programs import TURNS, Held, hold_turns
from tests.clients.serving import Served, scripted_server
from tests.clients.turns import check

pytestmark = pytest.mark.timeout(600)  # the first time, the clients are installed
PROGRAMS = {
    "openai": "openai_ws.py",
    "openai-agents": "openai_agents.py",
    "pipecat": "pipecat_llm.py",
}
Python = Callable[[], Path]


@pytest.fixture(scope="module")
def frameworks(cache: WeightsCache) -> Python:
    """The interpreter that has the frameworks, made when first asked for."""

    def python() -> Path:
        try:
            return python_with_clients(cache.directory)
        except NotInstalled as error:
            return or_skip(error)

    return python


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(PROGRAMS))
async def held(
    request: pytest.FixtureRequest, frameworks: Python
) -> AsyncIterator[tuple[Served, Held]]:
    python = Path(sys.executable) if request.param == "openai" else frameworks()
    folder = HERE / "python"
    async with scripted_server() as served:
        yield served, await hold_turns(served, [python, folder / PROGRAMS[request.param]], folder)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("turn", TURNS)
async def test_it_holds_the_turn(held: tuple[Served, Held], turn: str) -> None:
    served, turns = held
    check(served, turns, turn)


def test_the_lock_files_name_no_registry_but_the_public_one() -> None:
    """Who installs from them asks the registry that this machine is set up for."""
    assert "://" not in (HERE / "python" / "requirements.lock").read_text()
    packages = json.loads((HERE / "node" / "package-lock.json").read_text())["packages"]
    for package in packages.values():
        resolved = package.get("resolved", "https://registry.npmjs.org/")
        assert resolved.startswith("https://registry.npmjs.org/")
