"""Lost connections over real sockets: who continues which conversation, and what is freed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from app.access.policy import Rules, parse_network
from app.server import realtime_link, websocket_link
from app.server.gate import Access
from pipeline import events
from pipeline.commands import Command
from tests.support.protocol_client import text_item
from tests.support.scripted_server import (
    ScriptedAssistant,
    Serve,
    Served,
    Talk,
    appear_from,
    talking,
)
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine

TOOLS = [{"type": "function", "name": "dance", "parameters": {"type": "object"}}]


@dataclass
class Home:
    """A server with real sessions, and robots that talk to it."""

    served: Served
    assistant: StagedAssistant

    @contextlib.asynccontextmanager
    async def robot(
        self,
        key: str | None = "mine",
        tools: list[dict[str, Any]] = TOOLS,
        query: str = "",
        **headers: str,
    ) -> AsyncIterator[Talk]:
        """A client like the robot's app: it has a key and sends its tools first."""
        if key:
            headers["Authorization"] = f"Bearer {key}"
        async with talking(self.served, query, additional_headers=headers) as talk:
            session = {"type": "realtime", "output_modalities": ["text"], "tools": tools}
            await talk.send("session.update", session=session)
            await talk.until("session.updated")
            yield talk

    async def loses_ada(self) -> None:
        """A robot is told a name and loses its connection."""
        async with self.robot() as talk:
            await ask(talk, "I am Ada.")
            await abort(talk)

    async def remembers(self, talk: Talk, said: str) -> bool:
        """Whether the model still reads the earlier conversation."""
        await ask(talk, "Well?")
        return any(said in message.content for message in self.assistant.llm.prompts[-1])


@pytest.fixture
async def home(serving: Serve) -> Home:
    return await at_home(serving)


async def at_home(serving: Serve, **options: Any) -> Home:
    assistant = StagedAssistant()
    return Home(await serving(assistant, **options), assistant)


async def ask(talk: Talk, text: str) -> None:
    await talk.ask(text_item(text))


# --- ways to go --------------------------------------------------------------------------------


async def abort(talk: Talk) -> None:
    talk.socket.transport.abort()


async def reset(talk: Talk) -> None:
    """A TCP RST, as from a machine that was power-cycled."""
    connection = talk.socket.transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    talk.socket.transport.abort()


async def half_close(talk: Talk) -> None:
    talk.socket.transport.write_eof()


async def close_without_a_code(talk: Talk) -> None:
    talk.socket.protocol.send_close()
    talk.socket.transport.writelines(talk.socket.protocol.data_to_send())


Leave = Callable[[Talk], Awaitable[None]]


def close(code: int) -> Leave:
    """1000: says goodbye; 1001: navigates away; 1011: as client libraries do without a pong."""
    return lambda talk: talk.socket.close(code)


@pytest.mark.parametrize("leave", [reset, half_close, close(1011)])
async def test_a_client_that_lost_its_connection_continues(home: Home, leave: Leave) -> None:
    async with home.robot() as talk:
        await ask(talk, "I am Ada.")
        await leave(talk)
        async with home.robot() as again:
            assert await home.remembers(again, "I am Ada.")
            assert await home.remembers(again, "Hello there, my friend."), "and its answer"
    assert len(home.assistant.sessions) == 2


@pytest.mark.parametrize(
    ("leave", "query"),
    [
        (close(1000), ""),
        (close(1001), ""),
        (close_without_a_code, ""),
        (abort, "?resume=false"),
    ],
)
async def test_a_client_that_left_or_asks_for_it_starts_anew(
    home: Home, leave: Leave, query: str
) -> None:
    async with home.robot() as talk:
        await ask(talk, "I am Ada.")
        await leave(talk)
        async with home.robot(query=query) as again:
            assert not await home.remembers(again, "I am Ada.")
            assert home.assistant.llm.opened == 1


async def secret_from(home: Home, key: str, **session: Any) -> str:
    """A client secret made by the owner of ``key``."""
    made = await home.served.post(
        "/v1/realtime/client_secrets",
        headers={"Authorization": f"Bearer {key}"},
        json={"session": {"type": "realtime", **session}},
    )
    value: str = made.json()["value"]
    return value


@pytest.mark.parametrize(
    ("maker", "session", "goes_on"),
    [
        ("backend", {}, True),
        ("backend", {"instructions": "You talk to Bob."}, False),
        ("another backend", {}, False),
    ],
)
async def test_a_new_secret_of_the_same_key_and_session_continues(
    home: Home, maker: str, session: dict[str, Any], goes_on: bool
) -> None:
    async with home.robot(await secret_from(home, "backend")) as talk:
        await ask(talk, "I am Ada.")
        await abort(talk)
    async with home.robot(await secret_from(home, maker, **session)) as again:
        assert await home.remembers(again, "I am Ada.") is goes_on


async def test_client_secrets_of_one_key_are_separate_clients(home: Home) -> None:
    one, other = [await secret_from(home, "backend") for _ in range(2)]
    async with home.robot(one), home.robot(other), home.robot(one):
        numbers = sorted(link.client for link in home.served.clients.open)
    assert len(set(numbers)) == 2
    assert len(numbers) == 3


async def test_a_client_that_replays_its_history_does_not_double_it(home: Home) -> None:
    async with home.robot() as talk:
        await ask(talk, "I am Ada.")
        items = [e["item"] for e in talk.recorder.events if e["type"] == "conversation.item.done"]
        await abort(talk)
    assert [item["role"] for item in items] == ["user", "assistant"]
    async with home.robot() as again:
        for item in items:
            shown = {"type": "message", "role": item["role"], "content": item["content"]}
            await again.send("conversation.item.create", item=shown)
            await again.until("conversation.item.done")
        assert await home.remembers(again, "I am Ada.")
    said = [message.content for message in home.assistant.llm.prompts[-1]]
    assert len(said) == len(set(said)) == 4


async def test_a_first_update_without_tools_discards_nothing(home: Home) -> None:
    """As with a client secret's session, or clients that send their settings one by one."""
    await home.loses_ada()
    headers = {"Authorization": "Bearer mine"}
    async with talking(home.served, additional_headers=headers) as again:
        await again.send("session.update", session={"type": "realtime", "instructions": "Hi."})
        await again.until("session.updated")
        session = {"type": "realtime", "output_modalities": ["text"], "tools": TOOLS}
        await again.send("session.update", session=session)
        await again.until("session.updated")
        assert await home.remembers(again, "I am Ada.")
        assert "Hi." in home.assistant.llm.prompts[-1][0].content, "with what it asks for now"


async def test_sound_before_the_settings_discards_nothing(home: Home) -> None:
    """As of clients whose microphone is on as soon as they are connected."""
    await home.loses_ada()
    headers = {"Authorization": "Bearer mine"}
    async with talking(home.served, additional_headers=headers) as again:
        await again.send("input_audio_buffer.append", audio="AAAA" * 800)
        session = {"type": "realtime", "output_modalities": ["text"], "tools": TOOLS}
        await again.send("session.update", session=session)
        await again.send("input_audio_buffer.append", audio="AAAA" * 800)
        assert await home.remembers(again, "I am Ada.")


async def test_sound_behind_settings_without_tools_begins_another_conversation(home: Home) -> None:
    """At once, so that nothing of it is lost."""
    await home.loses_ada()
    async with home.robot(tools=[]) as again:
        push_to_talk = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
        await again.send("session.update", session=push_to_talk)
        await again.until("session.updated")
        await again.send("input_audio_buffer.append", audio="AAAA" * 3200)
        await again.send("input_audio_buffer.commit")
        await again.until("input_audio_buffer.committed")
        assert not await home.remembers(again, "I am Ada.")


async def test_a_client_that_sends_only_settings_is_told_what_is_due(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is muted, or push to talk."""
    monkeypatch.setattr(realtime_link, "SETTLED_S", 0.1)
    await home.loses_ada()
    async with home.robot() as again:
        due = home.assistant.announcer.deliver(lambda: "Tea!", lambda place: True, 60.0)
        telling = asyncio.create_task(due)
        done = await again.until("response.output_text.done")
        assert (done["text"], await telling) == ("Tea!", True)
        assert await home.remembers(again, "I am Ada.")


async def test_shutdown_leaves_nothing_open(home: Home) -> None:
    await home.loses_ada()
    async with home.robot(key="other"):
        assert home.assistant.llm.opened == 2
        os.kill(os.getpid(), signal.SIGTERM)
        await home.served.task
    assert home.assistant.llm.opened == 0


async def test_a_client_that_was_too_slow_continues(home: Home) -> None:
    async with home.robot() as talk:
        await ask(talk, "I am Ada.")
        for _ in range(8_193):
            home.assistant.buses[-1].publish(events.InputCleared())
        with pytest.raises(ConnectionClosed):
            await talk.until("nothing else")
        async with home.robot() as again:
            assert await home.remembers(again, "I am Ada.")


async def test_a_failed_session_is_resumed_only_once(home: Home) -> None:
    async def fail(command: Command) -> None:
        raise RuntimeError("the memory is bad")

    async def fails(talk: Talk) -> None:
        home.assistant.sessions[-1].submit = fail  # type: ignore[method-assign]
        await talk.send("response.create")
        with pytest.raises(ConnectionClosed):
            await talk.until("nothing else")

    async with home.robot() as talk:
        await ask(talk, "I am Ada.")
        await fails(talk)
        async with home.robot() as again:
            assert await home.remembers(again, "I am Ada.")
            await fails(again)
            async with home.robot() as third:
                assert not await home.remembers(third, "I am Ada.")


# --- places ------------------------------------------------------------------------------------


async def refused(served: Served, key: str = "mine") -> bool:
    """Whether a new client is refused because all places are taken."""
    headers = {"Authorization": f"Bearer {key}"}
    async with served.connect(additional_headers=headers) as websocket:
        first = await Talk(websocket).next()
        if first["type"] == "session.created":
            return False
        assert first["error"]["code"] == "session_limit_reached"
        return True


async def test_a_parked_conversation_takes_no_place(serving: Serve) -> None:
    home = await at_home(serving, max_sessions=1)
    await home.loses_ada()
    await home.served.clients.empty()
    async with home.robot(key="other"):
        assert await refused(home.served)
    await home.served.clients.empty()
    async with home.robot() as again:
        assert await home.remembers(again, "I am Ada."), "it came a second time"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_link, "SILENCE_S", 0.05)
    monkeypatch.setattr(websocket_link, "ANSWER_S", 0.05)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("max_sessions", [1, 2])
async def test_a_dead_client_makes_way_for_itself(serving: Serve, max_sessions: int) -> None:
    """Its network is gone: no byte arrives, and nobody was told."""
    home = await at_home(serving, max_sessions=max_sessions)
    async with home.robot() as talk:
        await ask(talk, "I am Ada.")
        talk.socket.transport.pause_reading()
        async with home.robot() as again:
            assert await home.remembers(again, "I am Ada.")
        talk.socket.transport.abort()


@pytest.mark.usefixtures("impatient")
async def test_a_silent_live_client_keeps_its_place(serving: Serve) -> None:
    home = await at_home(serving, max_sessions=1)
    async with home.robot() as talk:
        await ask(talk, "I am Ada.")
        assert await refused(home.served)
        assert await home.remembers(talk, "I am Ada.")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("key", ["mine", None])
async def test_a_dead_client_makes_way_for_others_of_its_address(
    serving: Serve, key: str | None
) -> None:
    home = await at_home(serving, max_sessions=1)
    async with home.robot(key=key) as talk:
        await ask(talk, "I am Ada.")
        talk.socket.transport.pause_reading()
        assert not await refused(home.served, key="other")
        talk.socket.transport.abort()


@pytest.mark.usefixtures("impatient")
async def test_a_dead_client_makes_way_for_no_other_address(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access(Rules(addresses=(parse_network("192.168.1.0/24"),)))
    home = await at_home(serving, max_sessions=1, access=access)
    async with home.robot() as talk:
        await ask(talk, "I am Ada.")
        talk.socket.transport.pause_reading()
        appear_from(monkeypatch, "192.168.1.7")
        assert await refused(home.served)
        talk.socket.transport.abort()


async def test_a_lost_connection_frees_everything_at_once(serving: Serve) -> None:
    """Even during a command that never ends."""
    assistant = ScriptedAssistant()
    served = await serving(assistant, max_sessions=1)
    async with talking(served) as talk:
        session = await served.session_of(talk)
        stuck = asyncio.Event()

        async def never(command: Command) -> None:
            stuck.set()
            await asyncio.Event().wait()

        session.submit = never  # type: ignore[method-assign]
        await talk.send("response.create")
        await stuck.wait()
        await reset(talk)
        await session.ended.wait()
        await served.clients.empty()
        assert not await refused(served)
