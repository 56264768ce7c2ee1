"""One Realtime client that talks on, whatever becomes of the engines behind its server."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import websockets.asyncio.client
from websockets.exceptions import ConnectionClosed

from app.talk.realtime_client import CHUNK_MS, RATE, ROOM_TONE_S, room_tone
from pipeline.audio import Pcm, pcm_to_bytes

PATIENCE_S = 20.0
"""A turn that is not over so long after its last sample was never answered."""
HEARD_OUT_S = 0.8
"""An answer that was sent is still played; who speaks into its end may be taken for a listener."""
MOST_TOKENS = 14
"""Of an answer: long enough to be in the middle of it."""


@dataclass(slots=True)
class Turn:
    """What became of one spoken turn; times in seconds after its last sample."""

    heard: bool = False
    status: str = "none"
    """Of its last response; none: there was none."""
    error: str = ""
    words: list[str] = field(default_factory=list)
    """Of each item of the answer."""
    first_audio_s: float | None = None
    done_s: float | None = None
    seen: list[str] = field(default_factory=list)
    """The events of it, but for those that come in numbers."""

    @property
    def answered(self) -> bool:
        return self.status in ("completed", "incomplete")  # the latter by MOST_TOKENS


class Talk:
    """A connection with a microphone that is always open."""

    def __init__(self, socket: websockets.asyncio.client.ClientConnection) -> None:
        self.replying = asyncio.Event()
        """Set with the first ``response.created`` of a turn."""
        self.closed = ""
        """Why the connection has ended, if it has: code, reason, and by whom."""
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._clip: Pcm = np.zeros(0, np.int16)
        self._said = asyncio.Event()
        self._over = asyncio.Event()
        self._turn = Turn()
        self._ended_at = 0.0
        self._active = False

    async def configure(self) -> None:
        session = {
            "type": "realtime",
            "instructions": "Answer in one sentence.",
            "max_output_tokens": MOST_TOKENS,
            "audio": {"input": {"transcription": {"model": "default"}}},
        }
        await self._socket.send(json.dumps({"type": "session.update", "session": session}))

    async def say(self, clip: Pcm) -> Turn:
        """Say it (int16 at ``RATE``) in real time, and wait until it was answered, or never is."""
        self._turn = Turn()
        self.replying.clear()
        self._over.clear()
        self._said.clear()
        self._clip = clip
        try:
            async with asyncio.timeout(len(clip) / RATE + PATIENCE_S):
                await self._said.wait()
                await self._over.wait()
                await asyncio.sleep(HEARD_OUT_S)
        except TimeoutError:
            pass
        return self._turn

    async def speak(self) -> None:
        """The microphone: what is to be said, else a quiet room."""
        size = RATE * CHUNK_MS // 1000
        room = itertools.cycle(room_tone(ROOM_TONE_S * RATE).reshape(-1, size))
        began, sent = self._loop.time(), 0
        while True:
            chunk = next(room)
            if len(self._clip):
                chunk = np.concatenate((self._clip[:size], chunk))[:size]
                self._clip = self._clip[size:]
                if not len(self._clip):
                    self._ended_at = self._loop.time()
                    self._said.set()
            audio = base64.b64encode(pcm_to_bytes(chunk)).decode()
            await self._socket.send(
                json.dumps({"type": "input_audio_buffer.append", "audio": audio})
            )
            sent += 1
            await asyncio.sleep(began + sent * CHUNK_MS / 1000 - self._loop.time())

    async def listen(self) -> None:
        async for message in self._socket:
            self._note(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        turn, after_s = self._turn, self._loop.time() - self._ended_at
        if not event["type"].endswith((".delta", ".added", ".done")):
            turn.seen.append(event["type"])
        match event["type"]:
            case "conversation.item.input_audio_transcription.completed":
                turn.heard = bool(event["transcript"])
            case "response.created":
                self._active = True
                self.replying.set()
            case "response.output_audio.delta":
                turn.first_audio_s = turn.first_audio_s or after_s
            case "response.output_audio_transcript.done":
                turn.words.append(event["transcript"])
            case "response.done":
                self._active = False
                self._end(turn, event["response"], after_s)

    def _end(self, turn: Turn, response: dict[str, Any], after_s: float) -> None:
        if response["status"] == "cancelled" and not self._said.is_set():
            return  # it went on
        turn.status, turn.done_s = response["status"], after_s
        error = (response.get("status_details") or {}).get("error") or {}
        turn.error = str(error.get("message", ""))
        if self._said.is_set():
            self._over.set()


@asynccontextmanager
async def talking(url: str) -> AsyncIterator[Talk]:
    """A session that is configured."""
    async with websockets.asyncio.client.connect(url, max_size=None, proxy=None) as socket:
        talk = Talk(socket)
        await talk.configure()

        async def guarded(work: Any) -> None:
            with suppress(ConnectionClosed):
                await work
            by = "us" if socket.protocol.close_rcvd is None else "the server"
            talk.closed = f"{socket.close_code} {socket.close_reason or ''}, by {by}"

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(guarded(work)) for work in (talk.speak(), talk.listen())]
            yield talk
            for task in tasks:
                task.cancel()
