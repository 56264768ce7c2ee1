"""Unmodified Python clients do every kind of turn with our server over a loopback socket.

The official ``openai`` client is in our own environment, the frameworks in a separate one. Engines
are scripted; everything else is real.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from app.models.weights import WeightsCache
from tests.clients.engines import NOON, TIME
from tests.clients.installed import HERE, python_with_clients
from tests.clients.programs import TURNS, Held, hold_turns
from tests.clients.serving import Served, Wire, scripted_server
from tests.clients.turns import check

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(600),
]  # the first time, the clients are installed
PROGRAMS = {
    "openai": "openai_ws.py",
    "openai-agents": "openai_agents.py",
    "pipecat": "pipecat_llm.py",
    "livekit": "livekit_realtime.py",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(PROGRAMS))
async def held(
    request: pytest.FixtureRequest, cache: WeightsCache
) -> AsyncIterator[tuple[Served, Held]]:
    own = request.param == "openai"
    python = Path(sys.executable) if own else python_with_clients(cache.directory)
    folder = HERE / "python"
    async with scripted_server() as served:
        yield served, await hold_turns(served, [python, folder / PROGRAMS[request.param]], folder)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("turn", TURNS)
async def test_the_client_completes_the_turn(held: tuple[Served, Held], turn: str) -> None:
    served, turns = held
    check(served, turns, turn)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("held", ["livekit"], indirect=True, scope="module")
async def test_livekit_reconnects_and_resends_the_conversation(
    held: tuple[Served, Held],
) -> None:
    served, turns = held
    report = turns.report("reconnect")
    assert report.errors == []
    assert report.said == [NOON, NOON]
    served.conformed()
    before, after, *_ = [wire for wire in turns.wires if "model=reconnect" in wire.query]
    assert after.count("error") == 0
    # The same items again with their ids, the first one at the root.
    asked, answered = added(before)
    assert added(after)[:2] == [asked, answered]
    first, second, third = [
        event for event in after.received if event["type"] == "conversation.item.create"
    ]
    assert (first["item"]["id"], first["previous_item_id"]) == (asked, "root")
    assert (second["item"]["id"], second["previous_item_id"]) == (answered, asked)
    assert third["previous_item_id"] == answered
    (prompt,) = [p for p in served.cast.llm.prompts if p[-1].content == "Tell me the time again."]
    told = [(message.role, message.content) for message in prompt[-3:-1]]
    assert told == [("user", TIME), ("assistant", NOON)]


def added(wire: Wire) -> list[str]:
    """The ids of the items that the server reported as added."""
    events = [event for event in wire.sent if event["type"] == "conversation.item.added"]
    return [event["item"]["id"] for event in events]


def test_the_lock_files_name_only_the_public_registry() -> None:
    """An install then uses the registry configured on this machine."""
    assert "://" not in (HERE / "python" / "requirements.lock").read_text()
    packages = json.loads((HERE / "node" / "package-lock.json").read_text())["packages"]
    for package in packages.values():
        resolved = package.get("resolved", "https://registry.npmjs.org/")
        assert resolved.startswith("https://registry.npmjs.org/")
