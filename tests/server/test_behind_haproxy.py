"""Two servers behind a real HAProxy with the configuration of ``examples/fleet``."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.access.client_secrets import ClientSecrets
from app.access.policy import Rules, digest, parse_network
from app.server import load
from app.server.clients import Clients
from app.server.conversation_folder import ConversationFolder
from app.server.gate import Access
from app.server.server import build_app
from tests.server.test_coming_back import TOOLS, abort, ask
from tests.support.haproxy import behind_haproxy, needs_haproxy
from tests.support.scripted_server import Talk, running
from tests.support.staged_server import StagedAssistant

pytestmark = [pytest.mark.machine, needs_haproxy]

KEY, SHARED = "rv_the-key-of-this-fleet", "a key that all servers of a fleet share"
SCHOOL = Rules(
    loopback=False,
    addresses=(parse_network("127.0.1.0/24"),),
    keys=(digest(KEY.encode()),),
    proxies=(parse_network("127.0.0.1"),),
)


@pytest.fixture(autouse=True)
def _busy_servers_take_robots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both servers run on this test's loop, which may be busier than one server's."""
    monkeypatch.setattr(load, "MOST_BUSY", math.inf)


@dataclass
class Fleet:
    """Servers behind a balancer on ``port``."""

    port: int
    assistants: list[StagedAssistant]
    clients: list[Clients]

    @contextlib.asynccontextmanager
    async def robot(
        self, number: int, key: str = "DUMMY", network: str = "127.0.1"
    ) -> AsyncIterator[Talk]:
        """A connected robot with its own address."""
        async with connect(
            f"ws://127.0.0.1:{self.port}/v1/realtime",
            additional_headers={"Authorization": f"Bearer {key}"},
            local_addr=(f"{network}.{number + 2}", 0),
        ) as socket:
            talk = Talk(socket)
            session = {"type": "realtime", "output_modalities": ["text"], "tools": TOOLS}
            await talk.send("session.update", session=session)
            await talk.until("session.updated")
            yield talk

    def server_of(self, number: int) -> int:
        address = f"127.0.1.{number + 2}"
        found = [at for at, own in enumerate(self.clients) if address in _addresses(own)]
        assert len(found) == 1
        return found[0]


def _addresses(clients: Clients) -> set[str]:
    return {link.address for link in clients.open}


@contextlib.asynccontextmanager
async def fleet(max_sessions: int, folder: Path | None = None) -> AsyncIterator[Fleet]:
    assistants = [StagedAssistant() for _ in range(2)]
    apps, ports = [], []
    async with contextlib.AsyncExitStack() as stack:
        for assistant in assistants:
            app = build_app(
                assistant,
                max_sessions=max_sessions,
                folder=ConversationFolder(folder, SHARED, 120) if folder else None,
                access=Access(SCHOOL, secrets=ClientSecrets(SHARED)),
            )
            port, _ = await stack.enter_async_context(running(app))
            apps.append(app)
            ports.append(port)
        front = await stack.enter_async_context(behind_haproxy(ports, KEY))
        yield Fleet(front, assistants, [app.state.clients for app in apps])


async def test_robots_return_to_their_server() -> None:
    async with fleet(max_sessions=20) as school:
        first: list[int] = []
        async with contextlib.AsyncExitStack() as stack:
            for number in range(20):
                talk = await stack.enter_async_context(school.robot(number))
                await ask(talk, f"I am robot {number}.")
                first.append(school.server_of(number))
                stack.push_async_callback(abort, talk)
        assert set(first) == {0, 1}
        for number in range(20):
            async with school.robot(number) as again:
                await ask(again, "Well?")
                server = school.server_of(number)
                assert server == first[number]
                prompt = school.assistants[server].llm.prompts[-1]
                assert any(f"I am robot {number}." in message.content for message in prompt)


async def test_client_secrets_are_valid_at_either_server() -> None:
    async with fleet(max_sessions=50) as school:
        url, headers = f"http://127.0.0.1:{school.port}", {"Authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(base_url=url, headers=headers) as client:
            made = [await client.post("/v1/realtime/client_secrets") for _ in range(50)]
        secrets = [each.json()["value"] for each in made]
        async with contextlib.AsyncExitStack() as stack:
            for number, secret in enumerate(secrets):
                await stack.enter_async_context(school.robot(number, secret, network="127.0.9"))
            assert [len(own) for own in school.clients] == [25, 25]
        with pytest.raises(InvalidStatus) as refused:
            async with school.robot(50, "ek_other", network="127.0.9"):
                pass
        assert refused.value.response.status_code == 401


async def test_nobody_is_refused_while_another_server_has_room() -> None:
    async with fleet(max_sessions=5) as school, contextlib.AsyncExitStack() as stack:
        for number in range(10):
            await stack.enter_async_context(school.robot(number))
        assert [len(own) for own in school.clients] == [5, 5]
        with pytest.raises(InvalidStatus) as refused:
            async with school.robot(10):
                pass
        assert refused.value.response.status_code == 503


async def test_the_robots_of_a_draining_server_continue_at_the_other(tmp_path: Path) -> None:
    async with fleet(max_sessions=20, folder=tmp_path) as school:
        async with contextlib.AsyncExitStack() as stack:
            for number in range(20):
                talk = await stack.enter_async_context(school.robot(number))
                await ask(talk, f"I am robot {number}.")
            moved = [number for number in range(20) if school.server_of(number) == 0]
            assert moved
            school.clients[0].close_all()
            await school.clients[0].empty()
        for number in moved:
            async with school.robot(number) as again:
                await ask(again, "Well?")
                assert school.server_of(number) == 1
                prompt = school.assistants[1].llm.prompts[-1]
                assert any(f"I am robot {number}." in message.content for message in prompt)
