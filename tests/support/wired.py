"""A client of the whole server except its socket: the real protocol and session, scripted engines.

Runs in virtual time. Everything sent either way is kept with its time, and the conformance recorder
checks every server event.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pipeline.audio import AudioFormat
from pipeline.realtime import g711, wire
from pipeline.realtime.protocol import RealtimeConnection
from pipeline.realtime.session_config import SessionDefaults
from pipeline.settings import SessionSettings
from pipeline.tools.contract import ToolServers
from reachy_voice.testing import SPEECH_LEVEL, Act, Cast, Scene, scene
from tests.support.beside import beside
from tests.support.conformance import Recorder
from tests.support.protocol_client import DEFAULTS, receive

APPEND = "input_audio_buffer.append"
FRAME_MS = 20


@dataclass(frozen=True)
class Message:
    """An act: the client sends this message."""

    type: str
    fields: dict[str, Any]


def send(type: str, **fields: Any) -> Message:
    return Message(type, fields)


@dataclass(frozen=True, slots=True)
class Said:
    """One message, and when it was sent, in ms since the connection began."""

    by: Literal["client", "server"]
    at_ms: int
    text: str


class Wired:
    """``send`` messages; read ``log`` and ``recorder``."""

    def __init__(self, played: Scene, protocol: RealtimeConnection) -> None:
        self.scene = played
        self.recorder = Recorder(whole=True)
        self.log: list[Said] = []
        self._protocol = protocol
        self._events = played.bus.subscribe()

    @property
    def now_ms(self) -> int:
        return round((self.scene.loop.time() - self.scene.began) * 1000)

    async def run(self) -> None:
        """Send what happens, until cancelled."""
        self._flush()
        async for _, event in self._events:
            self._protocol.apply(event)
            self._flush()

    async def act(self, *acts: Act | Message) -> None:
        """Perform acts of a scene and of this client, in order."""
        for each in acts:
            if isinstance(each, Message):
                await self.send(each.type, **each.fields)
                await self.settle()
            else:
                await self.scene.act(each)

    async def send(self, type: str, **fields: Any) -> None:
        await self.send_text(json.dumps({"type": type, **fields}))

    async def send_text(self, text: str | bytes, *, kept: bool = True) -> None:
        if isinstance(text, str):
            self.recorder.sent(text)
            if kept:
                self.log.append(Said("client", self.now_ms, text))
        commands = receive(self._protocol, text)
        self._flush()
        for command in commands:
            await self.scene.session.submit(command)

    async def hear(self, milliseconds: int, level: int = 0) -> None:
        """Append audio of one level, in real time and in the session's format.

        The log shows one append, whose audio is ``<speech 1000 ms>`` or ``<silence 60 ms>``.
        """
        what = f"<{'speech' if level else 'silence'} {milliseconds} ms>"
        whole = json.dumps({"type": APPEND, "audio": what})
        self.log.append(Said("client", self.now_ms, whole))
        for _ in range(milliseconds // FRAME_MS):
            await self.append(level)
            await asyncio.sleep(FRAME_MS / 1000)

    async def say(self, milliseconds: int) -> None:
        await self.hear(milliseconds, SPEECH_LEVEL)

    async def append(self, level: int, milliseconds: int = FRAME_MS) -> None:
        """Send one append, without logging it."""
        format = _input_format(self.session)
        pcm = np.full(format.rate * milliseconds // 1000, level, np.int16)
        audio = wire.base64_text(wire.bytes_of(pcm, format))
        await self.send_text(json.dumps({"type": APPEND, "audio": audio}), kept=False)

    async def settle(self) -> None:
        """Run everything that can happen now."""
        await self.scene.settle()

    @property
    def session(self) -> dict[str, Any]:
        """The session as last shown."""
        shown = [event["session"] for event in self.recorder.events if "session" in event]
        return dict(shown[-1])

    def events(self, type: str) -> list[dict[str, Any]]:
        return [event for event in self.recorder.events if event["type"] == type]

    def sent_and_received(self) -> list[dict[str, Any]]:
        """Every message either way, in order, except appended audio."""
        return [json.loads(said.text) for said in self.log]

    def _flush(self) -> None:
        for text in self._protocol.messages_to_send():
            self.recorder.record(text)
            self.log.append(Said("server", self.now_ms, text))


@asynccontextmanager
async def wired(
    cast: Cast | None = None,
    *,
    defaults: SessionDefaults = DEFAULTS,
    settings: SessionSettings | None = None,
    tool_servers: ToolServers | None = None,
) -> AsyncIterator[Wired]:
    """A connection that has received ``session.created``."""
    numbers = itertools.count(10_000)
    protocol = RealtimeConnection(
        defaults, lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1_000.5
    )
    async with scene(
        stages=(cast or Cast()).stages(),
        config=protocol.config,
        settings=settings,
        tool_servers=tool_servers,
    ) as played:
        client = Wired(played, protocol)
        async with beside(client.run()):
            await client.settle()
            yield client


def _input_format(session: dict[str, Any]) -> AudioFormat:
    shown = session["audio"]["input"]["format"]
    return AudioFormat(shown["type"].removeprefix("audio/"), shown.get("rate", g711.RATE))
