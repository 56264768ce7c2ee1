"""Clients that vanish or do not read."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from reachy_voice.testing import ScriptedTts
from tests.support.protocol_client import text_item
from tests.support.scripted_server import Serve, Served, closed_with, servers, talking
from tests.support.staged_server import StagedAssistant, quick_llm

pytestmark = pytest.mark.machine

PLACES = 4
"""Concurrent conversations. The server may not have noticed a few vanished clients yet."""

LONGEST_S = 0.06
"""A whole reply fits in this time: each stage takes a few ms, then its audio is paced."""

SPEECH = np.tile(np.array([3000, -3000], np.int16), 2400)
"""200 ms at 24 kHz that the scripted VAD takes for speech."""


class Vanishing:
    """One server, and clients that come and vanish one by one."""

    def __init__(self, served: Served, assistant: StagedAssistant, seed: int) -> None:
        self.served = served
        self.assistant = assistant
        self.moments: Counter[str] = Counter()
        """Each client's last event."""
        self._random = random.Random(seed)
        self._tasks = asyncio.all_tasks()
        self._threads = set(threading.enumerate())

    async def vanish(self, number: int) -> None:
        """One client. Each key is used twice, so every second client reconnects."""
        key = {"Authorization": f"Bearer robot-{number // 2}"} if number % 3 else {}
        uri = f"ws://127.0.0.1:{self.served.port}/v1/realtime"
        socket = await connect(uri, additional_headers=key).__aenter__()
        self._last_seen = "nothing"
        with contextlib.suppress(TimeoutError, ConnectionClosed):
            async with asyncio.timeout(self._random.uniform(0.0, LONGEST_S)):
                await self._ask(socket)
                await self._listen(socket)
        self.moments[self._last_seen] += 1
        self._cut(socket)
        await socket.wait_closed()
        self.assistant.forget()

    async def _ask(self, socket: ClientConnection) -> None:
        """Ask by speech or by text."""
        detection = self._random.choice([None, {"type": "server_vad"}])
        audio = {"input": {"turn_detection": detection}}
        await _send(socket, "session.update", session={"type": "realtime", "audio": audio})
        if self._random.random() < 0.5:
            speech = base64.b64encode(SPEECH.tobytes()).decode()
            for _ in range(3):
                await _send(socket, "input_audio_buffer.append", audio=speech)
            await _send(socket, "input_audio_buffer.commit")
        else:
            await _send(socket, "conversation.item.create", item=text_item())
        await _send(socket, "response.create")

    async def _listen(self, socket: ClientConnection) -> None:
        while True:
            self._last_seen = json.loads(await socket.recv())["type"]

    def _cut(self, client: ClientConnection) -> None:
        if self._random.random() < 0.5:  # with a RST, like a machine that lost power
            connection: socket.socket = client.transport.get_extra_info("socket")
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        client.transport.abort()

    async def left(self) -> dict[str, int]:
        """Resources beyond those of an idle server, once it has noticed that all clients are gone
        for good."""
        await self.served.clients.empty()
        self.served.clients.parked.close()
        places = await self._places_taken()
        if ending := asyncio.all_tasks() - self._tasks:
            await asyncio.wait(ending, timeout=1.0)
        return {
            "tasks": len(asyncio.all_tasks() - self._tasks),
            "threads": len(set(threading.enumerate()) - self._threads),
            "places": places,
            "llm conversations": self.assistant.llm.opened,
            "utterances": self.assistant.stt.opened,
        }

    async def _places_taken(self) -> int:
        """How many of the server's places are taken."""
        async with contextlib.AsyncExitStack() as stack:
            greetings = []
            for _ in range(PLACES):
                newcomer = await stack.enter_async_context(self.served.connect())
                greetings.append(json.loads(await newcomer.recv())["type"])
        await self.served.clients.empty()
        return PLACES - greetings.count("session.created")


async def _send(socket: ClientConnection, kind: str, **fields: object) -> None:
    await socket.send(json.dumps({"type": kind, **fields}))


@contextlib.asynccontextmanager
async def vanishing(seed: int) -> AsyncIterator[Vanishing]:
    """A server whose engines take a few milliseconds for each stage."""
    llm = quick_llm(first_s=0.006, per_token_s=0.004)
    assistant = StagedAssistant(llm, ScriptedTts(first_s=0.006, seconds_per_word=0.1))
    async with servers() as start:
        served = await start(assistant, max_sessions=PLACES)
        first = Vanishing(served, assistant, seed)
        await first.vanish(0)  # everything made once for all clients exists now
        await served.clients.empty()
        yield Vanishing(served, assistant, seed)


TIMES = 30


async def test_vanished_clients_leave_no_resources() -> None:
    async with vanishing(seed=1) as clients:
        for number in range(TIMES):
            await clients.vanish(number)
        left = await clients.left()
        assert not any(left.values()), left
        assert len(clients.moments) > 3, clients.moments


MINUTES = tuple(f"word{number}. " for number in range(90))
"""Each word takes 5 s: 7 minutes and 30 MB on the wire, more than sockets and bus hold."""


async def burst(talk: Any) -> None:
    """Request an answer that is sent as fast as it is made."""
    session = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
    await talk.send("session.update", session=session)
    await talk.until("session.updated")
    await talk.send("response.create")


async def test_a_client_that_stops_reading_does_not_delay_others(serving: Serve) -> None:
    tts = ScriptedTts(first_s=0.0, seconds_per_word=5.0)
    llm = quick_llm()
    llm.answers = [MINUTES, ("Just this. ",) * 4]
    served = await serving(StagedAssistant(llm, tts))
    async with talking(served, max_queue=1, ping_interval=None) as slow, talking(served) as quick:
        await burst(slow)
        await slow.until("response.created")
        # It stops reading: its queue and the sockets are full.
        await burst(quick)
        done = await quick.until("response.done")
        assert done["response"]["status"] == "completed"
        # No minutes of audio are kept for the slow client.
        with closed_with(1008, "client too slow"):
            await slow.until("response.done")
