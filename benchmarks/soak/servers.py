"""The servers of a soak: scripted engines in virtual time, and the real server in real time."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from websockets.asyncio import client as websockets

from app.compose import Assistant, new_id
from app.models.weights import WeightsCache
from app.server.server import OpenSockets, build_app
from app.server.serving import local_server
from app.settings.load import load_settings
from benchmarks.soak.engines import Engines
from benchmarks.soak.links import AsgiLink, Link, Report, SocketLink
from benchmarks.soak.talk import MINUTES, Client, Connect, Sound, Voice
from pipeline.audio import LISTEN_RATE, Pcm, pcm_to_bytes
from pipeline.bus import Bus
from pipeline.commands import SessionConfig
from pipeline.conversation.chat import Chat
from pipeline.conversation.memory import LastingConversation, Memory
from pipeline.engines.stages import Stages
from pipeline.realtime.session_config import SessionDefaults
from pipeline.session import Session
from pipeline.settings import SessionSettings
from tests.support.recordings import real_recordings
from tests.support.scripted import Noise

MAX_ITEMS = 200
"""Items of a conversation, so that it reaches full length within the warm-up."""
RECONNECT_S = 120.0
MICROPHONES = ((0.1, LISTEN_RATE), (0.1, LISTEN_RATE), (0.04, 24_000), (0.1, LISTEN_RATE))
"""Each client's: seconds of a frame, and Hz."""
SECONDS: dict[Sound, tuple[float, ...]] = {
    "question": (1.3, 2.5, 4.5),
    "interruption": (0.4, 1.2, 2.2),
    "backchannel": (0.3, 0.7),
    "noise": (0.3,),
}
"""Lengths of sounds in virtual time."""


@dataclass
class Soak:
    """``close``: end the server; returns its leftovers by name."""

    clients: list[Client]
    close: Callable[[], Awaitable[dict[str, int]]]


def _clients(
    count: int, seed: int, voices: Sequence[Voice], connect: Connect, report: Report
) -> list[Client]:
    manners = list(MINUTES)
    return [
        Client(
            f"client-{number}",
            manners[number % len(manners)],
            voices[number % len(voices)],
            connect,
            report,
            random.Random(f"{seed} {number}"),
        )
        for number in range(count)
    ]


def messages(pcm: Pcm, size: int) -> list[str]:
    """Audio as messages of ``size`` samples each."""
    texts = []
    for at in range(0, len(pcm), size):
        audio = base64.b64encode(pcm_to_bytes(pcm[at : at + size])).decode()
        texts.append(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
    return texts


def voice(frame_s: float, rate: int, sounds: Mapping[Sound, Sequence[Pcm]]) -> Voice:
    size = round(frame_s * rate)
    (silence,) = messages(np.zeros(size, np.int16), size)
    said = {kind: [messages(pcm, size) for pcm in each] for kind, each in sounds.items()}
    return Voice(frame_s, rate, silence, said)


# --- in virtual time ---------------------------------------------------------------------------


@dataclass
class SoakAssistant:
    """``app.compose.Assistant`` over scripted engines."""

    stages: Stages
    settings: SessionSettings = field(
        default_factory=lambda: SessionSettings(
            max_items=MAX_ITEMS,
            watched=True,
            apology="Sorry, something went wrong.",
            partials=False,
        )
    )

    def defaults(self) -> SessionDefaults:
        return SessionDefaults("reachy-voice", "joe", ("joe", "amy"), "You are Reachy.")

    def session(
        self, bus: Bus, config: SessionConfig, memory: Memory | None = None, place: str = ""
    ) -> Session:
        return Session(self.stages, config, self.settings, bus, new_id, memory)

    def memory(self, chat: Chat) -> Memory:
        return Memory(chat, LastingConversation(self.stages))

    def readiness(self) -> Mapping[str, str | None]:
        return {"stt": None, "llm": None}

    async def idle(self) -> None:
        pass


@asynccontextmanager
async def virtual_soak(clients: int, seed: int, report: Report) -> AsyncIterator[Soak]:
    """The whole server except uvicorn."""
    engines = Engines(random.Random(seed))
    assistant = SoakAssistant(engines.stages())
    app = build_app(assistant, max_sessions=clients + 2, reconnect_s=RECONNECT_S)
    sockets: OpenSockets = app.state.sockets

    @asynccontextmanager
    async def connected(key: str, query: str, fresh: bool) -> AsyncIterator[Link]:
        link = AsgiLink(report, key, query, fresh=fresh)
        serving = asyncio.create_task(link.serve(app))
        try:
            yield link
        finally:
            await link.cut()
            await serving

    async def close() -> dict[str, int]:
        await sockets.empty()
        report.counts["parked at the end"] = len(sockets.parked)
        sockets.close_all()
        report.counts["engine failures"] = engines.failed
        resumed = sockets.metrics.registry.get_sample_value("reachy_voice_sessions_resumed_total")
        report.counts["came back to their conversation"] = int(resumed or 0)
        return {"open in engines": engines.opened, "parked": len(sockets.parked)}

    noise = Noise(seed)
    voices = [
        voice(
            frame_s,
            rate,
            {k: [noise(3000, round(s * rate)) for s in v] for k, v in SECONDS.items()},
        )
        for frame_s, rate in MICROPHONES
    ]
    yield Soak(_clients(clients, seed, voices, connected, report), close)


# --- in real time ------------------------------------------------------------------------------


def _people() -> Voice:
    """Recordings of people; the first half second of one as a backchannel; a computed noise."""
    spoken = [each.pcm for each in real_recordings() if each.seconds <= 6.0]
    noise = np.random.default_rng(0).normal(0, 3000, LISTEN_RATE // 3).astype(np.int16)
    sounds = {
        "question": spoken,
        "interruption": spoken,
        "backchannel": [pcm[: LISTEN_RATE // 2] for pcm in spoken],
        "noise": [noise],
    }
    return voice(0.02, LISTEN_RATE, cast(Mapping[Sound, Sequence[Pcm]], sounds))


@asynccontextmanager
async def real_soak(clients: int, seed: int, report: Report) -> AsyncIterator[Soak]:
    """The server with its configured engines on a loopback port."""
    settings = load_settings(None, [f"limits.max_items={MAX_ITEMS}"]).settings
    assistant = Assistant(settings, WeightsCache(settings.paths.cache(os.environ)))
    async with local_server(assistant) as url:

        @asynccontextmanager
        async def connected(key: str, query: str, fresh: bool) -> AsyncIterator[Link]:
            headers = {"Authorization": f"Bearer {key}"}
            address = f"{url}?{query}" if query else url
            connecting = websockets.connect(address, additional_headers=headers, max_size=None)
            async with connecting as socket:
                link = SocketLink(report, socket, fresh=fresh)
                reading = asyncio.create_task(link.serve())
                try:
                    yield link
                finally:
                    with contextlib.suppress(Exception):
                        await socket.close()
                    await reading

        async def close() -> dict[str, int]:
            await assistant.idle()
            return {}

        yield Soak(_clients(clients, seed, [_people()], connected, report), close)
