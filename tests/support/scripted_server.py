"""A real server on loopback over a scripted session (commands in, events out), for tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette
from uvicorn.protocols.http import h11_impl
from uvicorn.protocols.websockets import websockets_sansio_impl
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from app.announcing.announcer import Announcer
from app.console.running import ConsoleServer
from app.server.clients import Clients
from app.server.listening import bind
from app.server.server import build_app, serve
from pipeline import commands, events
from pipeline.audio import AudioFormat
from pipeline.bus import Bus
from pipeline.conversation.chat import Chat
from pipeline.conversation.memory import Memory
from pipeline.items import AudioPart, MessageItem
from pipeline.messages import Usage
from reachy_voice.testing import ScriptedLlm
from tests.support.beside import beside
from tests.support.conformance import Recorder
from tests.support.staged_server import StagedAssistant

PCM = np.arange(2_400, dtype=np.int16)
UPGRADE = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
"""A request by hand, without the empty line at its end."""


class ScriptedSession:
    """Answers ``CreateResponse`` with a spoken reply, which waits when asked to."""

    attentive = asleep = False

    def __init__(self, bus: Bus, config: commands.SessionConfig, hold: bool) -> None:
        self.commands: list[commands.Command] = []
        self.config = config
        self.running = asyncio.Event()
        self.ended = asyncio.Event()
        self.replying = asyncio.Event()
        self.at_rest = asyncio.Event()
        self.at_rest.set()
        self.crash: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.bus = bus
        self._hold = hold

    async def run(self) -> None:
        self.running.set()
        try:
            await self.crash
        finally:
            self.ended.set()

    async def submit(self, command: commands.Command) -> None:
        self.commands.append(command)
        match command:
            case commands.AddItem():
                self.bus.publish(events.ItemAdded(command.item, None))
            case commands.CommitAudio():
                item = MessageItem("item_u", "user", (AudioPart(None, 1.0),))
                self.bus.publish(events.InputCommitted("item_u", None))
                self.bus.publish(events.ItemAdded(item, None))
            case commands.CreateResponse():
                self.begin_reply()
                if not self._hold:
                    self.end_reply("completed")
            case commands.CancelResponse() if self.at_rest.is_set():
                code = "response_cancel_not_active"
                self.bus.publish(events.Refused(command.event_id, code, "Cancellation failed"))
            case commands.CancelResponse():
                self.end_reply("cancelled", "client_cancelled")

    def set_player_lag(self, seconds: float) -> None:
        pass

    def release(self) -> Memory:
        return Memory(Chat(), ScriptedLlm().open())

    def begin_reply(self) -> None:
        self.at_rest.clear()
        item = MessageItem("item_a", "assistant", (), "in_progress")
        self.bus.publish(
            events.ReplyStarted("resp_1", "audio", True, "joe", AudioFormat(), None, {"n": "1"})
        )
        self.bus.publish(events.ReplyItemStarted("resp_1", item, 0, None))
        self.bus.publish(events.ReplyText("resp_1", "item_a", 0, "It is noon."))
        self.bus.publish(events.ReplyAudio("resp_1", "item_a", 0, PCM, 24_000))
        self.replying.set()

    def end_reply(self, status: Any, reason: Any = None) -> None:
        item = MessageItem("item_a", "assistant", (AudioPart("It is noon.", 0.1),), "completed")
        self.bus.publish(events.ReplyItemFinished("resp_1", item, 0, None))
        self.bus.publish(events.Timeline("resp_1", first_audio=12.0))
        self.bus.publish(events.ReplyFinished("resp_1", status, (item,), Usage(5, 3, 2, 4), reason))
        self.at_rest.set()

    async def quiet(self) -> None:
        await self.at_rest.wait()


class ScriptedAssistant(StagedAssistant):
    """Its sessions are scripted. ``hold``: their replies wait."""

    def __init__(self, *, hold: bool = False) -> None:
        super().__init__()
        self.hold = hold
        self.sessions: list[Any] = []
        self.opened: asyncio.Queue[ScriptedSession] = asyncio.Queue()
        self.announcer = Announcer(lambda: ())

    def session(self, bus: Bus, config: commands.SessionConfig, *_: object, **__: object) -> Any:
        session = ScriptedSession(bus, config, self.hold)
        self.sessions.append(session)
        self.opened.put_nowait(session)
        return session


@dataclass
class Served:
    """A running server; ``task`` ends when it does."""

    assistant: ScriptedAssistant
    port: int
    task: asyncio.Task[None]
    clients: Clients

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime"

    def connect(self, path: str = "", **options: Any) -> connect:
        return connect(self.url + path, **options)

    async def session_of(self, talk: Talk) -> ScriptedSession:
        """The session: it begins with its client's first message, here one that needs no answer."""
        await talk.send("input_audio_buffer.clear")
        return await self.assistant.opened.get()

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A plain HTTP request. ``options``: as for ``httpx``."""
        url = f"http://127.0.0.1:{self.port}"
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            return await client.request(method, path, **options)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.ask("GET", path, headers=headers)

    async def post(self, path: str, **options: Any) -> httpx.Response:
        return await self.ask("POST", path, **options)


def appear_from(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """From now on the server sees every connection as coming from ``address``."""

    def remote(transport: asyncio.Transport) -> tuple[str, int]:
        return address, transport.get_extra_info("peername")[1]

    for module in (h11_impl, websockets_sansio_impl):
        monkeypatch.setattr(module, "get_remote_addr", remote)


async def refusal(served: Served, path: str = "", **options: Any) -> httpx.Response:
    """The HTTP response that refuses an upgrade."""
    with pytest.raises(InvalidStatus) as refused:
        async with served.connect(path, **options):
            pass
    got = refused.value.response
    return httpx.Response(
        got.status_code, headers=list(got.headers.raw_items()), content=bytes(got.body or b"")
    )


@contextlib.contextmanager
def closed_with(code: int, reason: str | None = None) -> Iterator[None]:
    """Expect the server to close the connection with this code inside the block."""
    with pytest.raises(ConnectionClosed) as closed:
        yield
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code
    assert reason in (None, closed.value.rcvd.reason)


Serve = Callable[..., Awaitable[Served]]

_APP_OPTIONS = ("reconnect_s", "folder", "access", "limits", "console", "turns_kept", "webrtc")
"""Options of ``build_app``; all others are for ``serve``."""


@contextlib.asynccontextmanager
async def running(
    app: Starlette, host: str = "127.0.0.1", *, drain_s: float = 0.0, **options: Any
) -> AsyncIterator[tuple[int, asyncio.Task[None]]]:
    """The server's port and task."""
    listener = bind(host, 0)
    port = listener.getsockname()[1]
    usual: dict[str, Any] = {"max_message_bytes": 32 * 2**20, "handshake_s": 10.0}
    serving = serve(app, listener, drain_s=drain_s, **usual | options)
    async with beside(serving) as task:
        await asyncio.sleep(0)  # it takes signals from here on; the listener holds early clients
        yield port, task


@contextlib.asynccontextmanager
async def servers() -> AsyncIterator[Serve]:
    """Starts servers on free ports."""

    async def start(
        assistant: ScriptedAssistant | None = None, *, max_sessions: int = 4, **options: Any
    ) -> Served:
        assistant = assistant or ScriptedAssistant()
        app_options: dict[str, Any] = {"console": ConsoleServer(), "turns_kept": 200}
        app_options |= {name: options.pop(name) for name in _APP_OPTIONS if name in options}
        app = build_app(assistant, max_sessions=max_sessions, **app_options)
        port, task = await stack.enter_async_context(running(app, **options))
        return Served(assistant, port, task, app.state.clients)

    async with contextlib.AsyncExitStack() as stack:
        yield start


class Talk:
    """A raw client; the conformance recorder checks every event."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.recorder = Recorder()

    async def next(self) -> dict[str, Any]:
        text = await self.socket.recv()
        assert isinstance(text, str)
        return self.recorder.record(text)

    async def until(self, type: str) -> dict[str, Any]:
        while (event := await self.next())["type"] != type:
            assert event["type"] != "error", event
        return event

    async def send(self, type: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": type, **fields}))

    async def ask(self, *items: dict[str, Any]) -> dict[str, Any]:
        """Add these items; returns the response to them."""
        for item in items:
            await self.send("conversation.item.create", item=item)
        await self.send("response.create")
        response: dict[str, Any] = (await self.until("response.done"))["response"]
        return response


@contextlib.asynccontextmanager
async def talking(served: Served, path: str = "", **options: Any) -> AsyncIterator[Talk]:
    async with served.connect(path, **options) as socket:
        talk = Talk(socket)
        assert (await talk.next())["type"] == "session.created"
        yield talk
