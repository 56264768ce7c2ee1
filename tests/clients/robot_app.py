"""A robot's conversation app as the server sees it, on the official client library.

It behaves as the Reachy Mini app does: ``session.update`` without waiting for anything, 16 kHz by
``rate: null``, a microphone that never stops, tools in the background whose outputs wait for
``response.done``, a player that only ``speech_started`` empties. It never commits, clears, cancels
or truncates.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from websockets.exceptions import ConnectionClosed

from pipeline.audio import Pcm, pcm_to_bytes
from tests.support.protocol_client import text_item

RATE = 16_000
CHUNK_S = 0.01
CHUNK_BYTES = 320
MAX_FRAME_BYTES = 2**20
"""Larger messages end the connection with 1009."""
RETRIES = 5
"""Error code of a ``response.create`` during another response."""

HF_VOICES = (
    "Aiden", "Ryan", "Dylan", "Eric", "Ono_Anna", "Serena", "Sohee", "Uncle_Fu", "Vivian",
)  # fmt: skip

STARTED, STOPPED = "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"
COMPLETED = "conversation.item.input_audio_transcription.completed"
DELTA = "response.output_audio.delta"
CALLED = "response.function_call_arguments.done"

Events = list[dict[str, Any]]


@dataclass(frozen=True)
class RobotTool:
    """A tool of the robot. ``needs_response``: the model comments on its result."""

    name: str
    needs_response: bool = True
    run: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda arguments: {"status": "ok"}
    parameters: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )

    @property
    def declared(self) -> dict[str, Any]:
        return {
            "type": "function",
            "name": self.name,
            "description": f"The robot's {self.name}.",
            "parameters": dict(self.parameters),
        }


class Player:
    """The audio passed to the speaker, and the part not heard yet."""

    def __init__(self) -> None:
        self.pcm_bytes = 0
        self.flushed_s: list[float] = []
        self._ends_at = 0.0

    def play(self, data: bytes) -> None:
        assert len(data) % 2 == 0, "the app drops its session on an odd number of bytes"
        self.pcm_bytes += len(data)
        self._ends_at = max(self._ends_at, self._now()) + len(data) / 2 / RATE

    @property
    def queued_s(self) -> float:
        return max(0.0, self._ends_at - self._now())

    def flush(self) -> None:
        self.flushed_s.append(self.queued_s)
        self._ends_at = self._now()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class RobotApp:
    """One connection of the app. ``events``: everything that the server has sent."""

    def __init__(
        self,
        connection: AsyncRealtimeConnection,
        tools: Sequence[RobotTool],
        image: bytes = b"",
    ) -> None:
        self.connection = connection
        self.events: Events = []
        self.arrived: list[float] = []
        """When each event arrived, in loop time."""
        self.player = Player()
        self.listening = False
        """The pose with the antennas frozen, from ``speech_started`` to ``speech_stopped``."""
        self.close_code: int | None = None
        self.errors: list[str] = []
        self._tools = {tool.name: tool for tool in tools}
        self._image = image
        self._microphone: deque[bytes] = deque()
        self._streaming: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._pending: set[str] = set()
        self._done = asyncio.Event()
        self._done.set()
        self._tasks: asyncio.TaskGroup | None = None

    # -- what a person does

    def hears(self, pcm: Pcm) -> None:
        """A person speaks to the robot: ``pcm`` at 16 kHz, into the room's silence."""
        data = pcm_to_bytes(pcm)
        self._microphone.extend(
            data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)
        )

    async def unplug(self) -> None:
        """The microphone stops sending."""
        assert self._streaming
        self._streaming.cancel()
        await asyncio.wait({self._streaming})

    async def change_voice(self, voice: str) -> None:
        await self.update({"audio": {"output": {"voice": voice}}})

    async def say(self, prompt: str) -> None:
        """The app's greeting and ``say``: a prompt and a response to it."""
        await self.add(text_item(prompt))
        await self.respond()

    # -- what the app sends

    async def update(self, session: Mapping[str, Any]) -> None:
        asked: Any = {"type": "realtime", **session}
        await self.connection.session.update(session=asked)

    async def add(self, item: Any) -> None:
        await self.connection.conversation.item.create(item=item)

    async def respond(self) -> None:
        await self.connection.response.create()

    async def respond_after_done(self) -> None:
        """Send ``response.create``; if a running response blocks it, send it again afterwards."""
        for _ in range(RETRIES):
            await self._done.wait()
            refusals = self.refusals
            created = self.count("response.created")
            await self.respond()
            await self._answered(created, refusals)
            if self.refusals == refusals:
                return

    async def _answered(self, created: int, refusals: int) -> None:
        await self._wait(
            lambda: self.count("response.created") > created or self.refusals > refusals
        )

    @property
    def refusals(self) -> int:
        return self.errors.count("conversation_already_has_active_response")

    # -- what it is told

    def count(self, kind: str) -> int:
        return sum(event["type"] == kind for event in self.events)

    def all(self, kind: str) -> Events:
        return [event for event in self.events if event["type"] == kind]

    async def until(self, happened: Callable[[], bool]) -> None:
        await self._wait(happened)
        assert happened(), f"closed with {self.close_code} after {[e['type'] for e in self.events]}"

    async def _wait(self, happened: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: happened() or self.close_code is not None)

    async def event(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Event number ``count`` of that kind, as soon as it arrives."""
        await self.until(lambda: self.count(kind) >= count)
        return self.all(kind)[count - 1]

    # -- life

    async def run(self, greeting: str | None) -> None:
        """Run until either side closes the connection."""
        async with asyncio.TaskGroup() as self._tasks:
            self._streaming = self._tasks.create_task(self._stream_microphone())
            if greeting is not None:
                await self.say(greeting)
            await self._follow()
            self._streaming.cancel()
            self._done.set()
            async with self._changed:
                self._changed.notify_all()

    async def _follow(self) -> None:
        try:
            while True:
                raw = await self.connection.recv_bytes()
                event: dict[str, Any] = json.loads(raw)
                self.events.append(event)
                self.arrived.append(asyncio.get_running_loop().time())
                await self._handle(event)
                async with self._changed:
                    self._changed.notify_all()
        except ConnectionClosed as closed:
            self.close_code = closed.rcvd.code if closed.rcvd else 1006

    async def _handle(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "input_audio_buffer.speech_started":
                self.player.flush()
                self.listening = True
            case "input_audio_buffer.speech_stopped":
                self.listening = False
            case "conversation.item.input_audio_transcription.completed":
                self._pending.clear()
            case "response.created":
                self._done.clear()
            case "response.output_audio.delta":
                self.player.play(base64.b64decode(event["delta"]))
            case "response.function_call_arguments.done":
                self._pending.add(event["call_id"])
                assert self._tasks
                self._tasks.create_task(self._run_tool(event))
            case "response.done":
                self._done.set()
            case "error":
                assert event["error"]["message"], "the app logs it"
                self.errors.append(event["error"].get("code") or event["error"]["type"])

    async def _stream_microphone(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        try:
            while True:
                chunk = self._microphone.popleft() if self._microphone else bytes(CHUNK_BYTES)
                audio = base64.b64encode(chunk).decode()
                await self.connection.input_audio_buffer.append(audio=audio)
                due = max(due + CHUNK_S, loop.time() - 0.2)  # a stalled app does not catch up
                await asyncio.sleep(due - loop.time())
        except ConnectionClosed:
            pass

    # -- tools

    async def _run_tool(self, call: dict[str, Any]) -> None:
        tool = self._tools[call["name"]]
        output = tool.run(json.loads(call["arguments"]))
        await self._done.wait()
        with contextlib.suppress(ConnectionClosed):
            await self._bring(tool, call, output)

    async def _bring(
        self, tool: RobotTool, call: Mapping[str, Any], output: Mapping[str, Any]
    ) -> None:
        result = {"type": "function_call_output", "call_id": call["call_id"]}
        await self.add({**result, "output": json.dumps(output)})
        if "image_attached" in output:
            await self.add(camera_item(self._image))
        self._pending.discard(call["call_id"])
        if tool.needs_response and not self._pending:
            await self.respond_after_done()


def camera_item(jpeg: bytes) -> dict[str, Any]:
    url = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"
    content = [{"type": "input_image", "image_url": url}]
    return {"type": "message", "role": "user", "content": content}


def jpeg(size_bytes: int) -> bytes:
    """Not a picture but as long as one: it begins and ends like a JPEG."""
    noise = np.random.default_rng(0).bytes(size_bytes - 4)
    return b"\xff\xd8" + noise + b"\xff\xd9"


def session_of(tools: Sequence[RobotTool], instructions: str) -> dict[str, Any]:
    """The app's complete first ``session.update``."""
    native = {"type": "audio/pcm", "rate": None}
    return {
        "instructions": instructions,
        "audio": {
            "input": {
                "format": native,
                "transcription": {"model": "gpt-4o-transcribe", "language": "en"},
                "turn_detection": {"type": "server_vad", "interrupt_response": True},
            },
            "output": {"format": native, "voice": "Aiden"},
        },
        "tools": [tool.declared for tool in tools],
        "tool_choice": "auto",
    }


@asynccontextmanager
async def robot_app(
    url: str,
    *,
    tools: Sequence[RobotTool] = (),
    instructions: str = "You are Reachy Mini.",
    greeting: str | None = None,
    image: bytes = b"",
    session: Mapping[str, Any] | None = None,
    query: Mapping[str, str] | None = None,
) -> AsyncIterator[RobotApp]:
    """The connected app. It sends ``greeting`` right after the first ``session.update``."""
    base = url.removesuffix("/realtime")
    client = AsyncOpenAI(
        api_key="DUMMY", base_url=base.replace("ws://", "http://"), websocket_base_url=base
    )
    # Defaults of the robot's version of the library.
    limits: Any = {"max_size": MAX_FRAME_BYTES, "compression": "deflate"}
    connecting = client.realtime.connect(
        extra_query=dict(query or {}), websocket_connection_options=limits
    )
    async with client, connecting as connection:
        app = RobotApp(connection, tools, image)
        await app.update(session or session_of(tools, instructions))
        running = asyncio.create_task(app.run(greeting))
        try:
            yield app
        finally:
            await connection.close()
            await asyncio.wait({running})
        running.result()


async def lose_connection(app: RobotApp) -> None:
    """Lose the robot's network, without a close frame."""
    app.connection._connection.transport.abort()
    await app.until(lambda: app.close_code is not None)
