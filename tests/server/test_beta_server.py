"""Clients of the beta dialect over loopback: openai's own, and a browser's subprotocol."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from openai import AsyncOpenAI
from openai.resources.beta.realtime.realtime import AsyncRealtimeConnection
from websockets.asyncio.client import connect

from tests.support.conformance import Recorder
from tests.support.scripted_server import Serve, Served
from tests.support.staged_server import StagedAssistant


@contextlib.asynccontextmanager
async def official_client(served: Served) -> AsyncIterator[AsyncRealtimeConnection]:
    base_url = f"ws://127.0.0.1:{served.port}/v1"
    async with (
        AsyncOpenAI(api_key="DUMMY", websocket_base_url=base_url) as client,
        client.beta.realtime.connect(model="gpt-4o-realtime-preview") as connection,
    ):
        yield connection


class Reader:
    """Reads one connection; every event must be strict beta."""

    def __init__(self, connection: AsyncRealtimeConnection) -> None:
        self._connection = connection
        self._recorder = Recorder("beta")

    async def until(self, type: str) -> list[Any]:
        got: list[Any] = []
        while not got or got[-1].type != type:
            raw = await self._connection.recv_bytes()
            self._recorder.record(raw.decode())
            got.append(self._connection.parse_event(raw))
            assert got[-1].type != "error", got[-1]
        return got


async def test_the_official_client_holds_a_text_turn(serving: Serve) -> None:
    served = await serving(StagedAssistant())
    async with official_client(served) as connection:
        reader = Reader(connection)
        await reader.until("conversation.created")
        await connection.session.update(session={"modalities": ["text"], "temperature": 0.7})
        (updated,) = await reader.until("session.updated")
        assert updated.session.modalities == ["text"]
        assert updated.session.temperature == 0.7
        content: Any = [{"type": "input_text", "text": "Hello!"}]
        item: Any = {"type": "message", "role": "user", "content": content}
        await connection.conversation.item.create(item=item)
        (created,) = await reader.until("conversation.item.created")
        assert created.item.content[0].text == "Hello!"
        await connection.response.create()
        got = await reader.until("response.done")
    written = "".join(event.delta for event in got if event.type == "response.text.delta")
    assert written == "Hello there, my friend. How are you?"
    assert got[-1].response.output[0].content[0].text == written


async def test_a_refusal_names_the_event(serving: Serve) -> None:
    served = await serving(StagedAssistant())
    bad = {"type": "session.update", "event_id": "mine", "session": {"modalities": ["smell"]}}
    worse = {"type": "session.update", "event_id": "too", "session": {"voice": 3}}
    large = {**bad, "event_id": "large", "session": {"instructions": "x" * 300_000, "audio": {}}}
    async with official_client(served) as connection:
        refused: list[Any] = []
        for message in (bad, worse, large):
            await connection.send(message)  # type: ignore[arg-type]
        while len(refused) < 3:
            event: Any = json.loads(await connection.recv_bytes())
            if event["type"] == "error":
                refused.append((event["error"]["event_id"], event["error"]["param"]))
    assert refused == [
        ("mine", "session.modalities"),
        ("too", "session.voice"),
        ("large", "session.audio"),
    ]


async def test_a_browser_asks_by_its_subprotocol(serving: Serve) -> None:
    served = await serving(StagedAssistant())
    offered: Any = ["realtime", "openai-insecure-api-key.none", "openai-beta.realtime-v1"]
    async with connect(served.url, subprotocols=offered) as socket:
        assert socket.subprotocol == "realtime"
        recorder = Recorder("beta")
        recorder.record(str(await socket.recv()))
        recorder.record(str(await socket.recv()))
    assert recorder.types == ["session.created", "conversation.created"]
