"""More Python frameworks, unmodified, hold the turns that they can with our server.

Their packages are in an environment of their own. Engines are scripted, everything else is real.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from app.models.weights import WeightsCache
from tests.clients.engines import NOON, TIME
from tests.clients.installed import (
    HERE,
    MORE_PYTHON_LOCK,
    NotInstalled,
    or_skip,
    python_with_clients,
)
from tests.clients.programs import TURNS, Held, hold_turns
from tests.clients.serving import Served, Wire, scripted_server
from tests.clients.turns import check

pytestmark = pytest.mark.timeout(600)  # the first time, the clients are installed


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
            "push_to_talk": "bidi/models/openai/realtime.py, _build_session_config: "
            '"OpenAIRealtimeModel requires turn detection with create_response=True"'
        },
        truncates=False,
    ),
    "ag2": Client(
        "ag2_live.py",
        {
            "push_to_talk": "live/openai.py, RealTimeConfig.session: of the user it sends "
            "input_audio_buffer.append and nothing else, so it can commit nothing",
            "text": "live/openai.py, RealTimeConfig.session: the events it takes are "
            "RecordedAudioEvent and ToolResultEvent",
        },
        truncates=False,
    ),
}
Talks = Callable[[str], Awaitable[tuple[Served, Held]]]
HELD = [(name, turn) for name in CLIENTS for turn in TURNS if turn not in CLIENTS[name].cannot]


@pytest.fixture(scope="module")
def python(cache: WeightsCache) -> Path:
    """The interpreter that has the frameworks."""
    try:
        return python_with_clients(cache.directory, MORE_PYTHON_LOCK)
    except NotInstalled as error:
        return or_skip(error)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talks(python: Path) -> Talks:
    """What each client has experienced; it runs when first asked for."""
    kept: dict[str, tuple[Served, Held]] = {}

    async def of(client: str) -> tuple[Served, Held]:
        program, folder = CLIENTS[client].program, HERE / "python"
        if client not in kept:
            async with scripted_server() as served:
                kept[client] = served, await hold_turns(served, [python, folder / program], folder)
        return kept[client]

    return of


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("client", "turn"), HELD)
async def test_it_holds_the_turn(talks: Talks, client: str, turn: str) -> None:
    served, held = await talks(client)
    check(served, held, turn, truncates=CLIENTS[client].truncates)


@pytest.mark.asyncio(loop_scope="module")
async def test_livekit_connects_anew_and_repeats_the_conversation(talks: Talks) -> None:
    served, held = await talks("livekit")
    report = held.report("reconnect")
    assert report.errors == []
    assert report.said == [NOON, NOON]
    served.conformed()
    before, after, *_ = [wire for wire in held.wires if "model=reconnect" in wire.query]
    assert after.count("error") == 0
    # The same items again, with their ids, the first at the root.
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
    """The ids of the items that the server said it has added."""
    events = [event for event in wire.sent if event["type"] == "conversation.item.added"]
    return [event["item"]["id"] for event in events]


def test_the_lock_file_names_no_registry() -> None:
    assert "://" not in MORE_PYTHON_LOCK.read_text()
