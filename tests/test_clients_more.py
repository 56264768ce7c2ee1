"""More Python frameworks, unmodified, hold the turns that they can with our server.

Their packages are in an environment of their own. Engines are scripted, everything else is real.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from clients.installed import HERE, MORE_PYTHON_LOCK, NotInstalled, or_skip, python_with_clients
from clients.programs import TURNS, Held, hold_turns
from clients.serving import Served, scripted_server
from clients.turns import check

from app.weights import WeightsCache

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),  # the first time, the clients are installed
]


@dataclass(frozen=True)
class Client:
    program: str
    cannot: Mapping[str, str] = field(default_factory=dict)
    """The turns that its design leaves out, and where its source says so."""
    truncates: bool = True


CLIENTS = {
    "livekit": Client("livekit_realtime.py"),
    "semantic-kernel": Client("semantic_kernel_ws.py"),
    "strands": Client(
        "strands_bidi.py",
        {
            "push_to_talk": "bidi/models/openai/realtime.py, _build_session_config: raises "
            "ValueError without turn detection and create_response"
        },
        truncates=False,
    ),
    "ag2": Client(
        "ag2_live.py",
        {
            "push_to_talk": "live/openai.py, RealTimeConfig.session: sends audio and tool results, "
            "no commit and no response.create of the user's",
            "text": "live/openai.py, RealTimeConfig.session: subscribes to no written words",
        },
        truncates=False,
    ),
}
HELD = [(name, turn) for name in CLIENTS for turn in TURNS if turn not in CLIENTS[name].cannot]


@pytest.fixture(scope="module")
def python(cache: WeightsCache) -> Path:
    """The interpreter that has the frameworks."""
    try:
        return python_with_clients(cache.directory, MORE_PYTHON_LOCK)
    except NotInstalled as error:
        return or_skip(error)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def held(
    request: pytest.FixtureRequest, python: Path
) -> AsyncIterator[tuple[Served, Held]]:
    folder = HERE / "python"
    async with scripted_server() as served:
        command = [python, folder / CLIENTS[request.param].program]
        yield served, await hold_turns(served, command, folder)


@pytest.mark.parametrize(("held", "client", "turn"), [(n, n, t) for n, t in HELD], indirect=["held"])
async def test_it_holds_the_turn(held: tuple[Served, Held], client: str, turn: str) -> None:
    served, turns = held
    check(served, turns, turn, truncates=CLIENTS[client].truncates)
