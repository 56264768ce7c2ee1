"""A real server on loopback with real sessions and scripted engines; every frame is kept.

The conformance recorder, between application and socket, checks each event sent to any client.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from app.server.server import build_app
from app.server.tls import ServerTls
from pipeline.settings import Endpointing, SessionSettings, Wake
from reachy_voice.testing import Cast
from tests.clients.engines import phrase_cast
from tests.support.conformance import Recorder
from tests.support.scripted_server import running
from tests.support.staged_server import StagedAssistant

QUICK = Endpointing(clear_wait_ms=128)
"""Turns end a little sooner than usual, to save time."""


@dataclass
class Wire:
    """Everything that one client and the server sent each other."""

    query: str
    headers: dict[str, str]
    recorder: Recorder = field(default_factory=Recorder)
    received: list[dict[str, Any]] = field(default_factory=list)
    """The client's messages, without the audio."""
    frames_in: int = 0
    longest_frame_out: int = 0
    close_code: int | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def sent(self) -> list[dict[str, Any]]:
        return self.recorder.events

    def count(self, kind: str) -> int:
        return self.recorder.types.count(kind)

    def sent_by_server(self, text: str) -> None:
        self.longest_frame_out = max(self.longest_frame_out, len(text))
        try:
            self.recorder.record(text)
        except Exception as error:
            # Kept for the test: raised here, it would end the session and hide the outcome.
            self.problems.append(f"{type(error).__name__}: {error}"[:2000])

    def sent_by_client(self, message: str | bytes) -> None:
        self.frames_in += 1
        try:
            event = json.loads(message)
        except ValueError:
            return
        if isinstance(event, dict) and event.get("type") != "input_audio_buffer.append":
            self.received.append(event)


class Tap:
    """ASGI middleware that keeps the frames of every WebSocket."""

    def __init__(self, app: ASGIApp, wires: list[Wire]) -> None:
        self._app = app
        self._wires = wires

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        wire = Wire(scope["query_string"].decode(), headers)
        self._wires.append(wire)

        async def kept_receive() -> MutableMapping[str, Any]:
            message = await receive()
            if message["type"] == "websocket.receive":
                wire.sent_by_client(message.get("text") or message.get("bytes") or "")
            return message

        async def kept_send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "websocket.send":
                wire.sent_by_server(message["text"])
            elif message["type"] == "websocket.close":
                wire.close_code = message.get("code")
            await send(message)

        await self._app(scope, kept_receive, kept_send)


@dataclass
class Served:
    """A running server and the frames of all its clients, in order of connection."""

    port: int
    cast: Cast
    assistant: StagedAssistant
    wires: list[Wire]

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime"

    def conformed(self) -> None:
        """Fails if any client was sent an event that does not conform to the API."""
        for wire in self.wires:
            assert wire.problems == []
            assert wire.longest_frame_out < 2**20, "default clients refuse it"


@asynccontextmanager
async def scripted_server(
    cast: Cast | None = None,
    *,
    max_sessions: int = 8,
    tls: ServerTls | None = None,
    wake: Wake | None = None,
) -> AsyncIterator[Served]:
    """Serve on a free loopback port."""
    settings = SessionSettings(endpointing=QUICK, wake=wake or Wake())
    assistant = StagedAssistant(cast=cast or phrase_cast(), settings=settings)
    app = build_app(assistant, max_sessions=max_sessions)
    wires: list[Wire] = []
    app.add_middleware(Tap, wires=wires)
    async with running(app, tls=tls.context if tls else None) as (port, _):
        yield Served(port, assistant.cast, assistant, wires)
