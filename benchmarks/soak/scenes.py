"""The scenes of a soak: scripted engines in virtual time, and the real server in real time."""

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
from functools import cache

import numpy as np
from websockets.asyncio import client as websockets

from app.compose import Assistant, new_id
from app.models.weights import WeightsCache
from app.server.server import OpenSockets, build_app
from app.server.serving import local_server
from app.settings.load import load_settings
from benchmarks.soak.engines import (
    BACKCHANNELS,
    INTERRUPTIONS,
    NOISE,
    QUESTIONS,
    Engines,
    Odds,
    level_of,
    seconds_of,
)
from benchmarks.soak.links import AsgiLink, Link, Report, SocketLink
from benchmarks.soak.talk import MANNERS, Client, Connect, Voice
from pipeline.audio import LISTEN_RATE, Pcm, pcm_to_bytes
from pipeline.bus import Bus
from pipeline.commands import SessionConfig
from pipeline.conversation.memory import Memory
from pipeline.engines.stages import Stages
from pipeline.realtime.session_config import SessionDefaults
from pipeline.session import Session
from pipeline.settings import SessionSettings
from tests.support.recordings import real_recordings

MAX_ITEMS = 200
"""Of a conversation, so that it is as long as it gets within the warm-up."""
RECONNECT_S = 120.0
_FRAMES = ((0.1, LISTEN_RATE), (0.1, LISTEN_RATE), (0.04, 24_000), (0.1, LISTEN_RATE))
"""Of each client's microphone: seconds, and Hz."""
APOLOGY = "Sorry, something went wrong."

Left = dict[str, int]
"""What is there after the end that was not there before, by name."""


@dataclass
class Soak:
    """``close``: end the server; what is left of it."""

    clients: list[Client]
    close: Callable[[], Awaitable[Left]]


def _append(pcm: Pcm) -> str:
    audio = base64.b64encode(pcm_to_bytes(pcm)).decode()
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio})


# --- in virtual time ---------------------------------------------------------------------------


@cache
def _level(samples: int, level: int) -> str:
    return _append(np.full(samples, level, np.int16))


@dataclass
class CodedVoice:
    """Says phrases of ``engines`` as levels."""

    frame_s: float
    rate: int

    @property
    def silence(self) -> str:
        return _level(round(self.frame_s * self.rate), 0)

    def question(self, rng: random.Random) -> Sequence[str]:
        return self._said(rng.choice(QUESTIONS))

    def interruption(self, rng: random.Random) -> Sequence[str]:
        first = self._said(rng.choice(INTERRUPTIONS))
        return first if rng.random() < 0.5 else [*first, *self.question(rng)]

    def backchannel(self, rng: random.Random) -> Sequence[str]:
        return self._said(rng.choice(BACKCHANNELS))

    def noise(self, rng: random.Random) -> Sequence[str]:
        return self._said(NOISE)

    def _said(self, phrase: int) -> list[str]:
        frame = _level(round(self.frame_s * self.rate), level_of(phrase))
        return [frame] * max(1, round(seconds_of(phrase) / self.frame_s))


@dataclass
class SoakAssistant:
    """``app.compose.Assistant`` over scripted engines."""

    stages: Stages
    settings: SessionSettings = field(
        default_factory=lambda: SessionSettings(
            max_items=MAX_ITEMS, watched=True, apology=APOLOGY, partials=False
        )
    )

    def defaults(self) -> SessionDefaults:
        return SessionDefaults("reachy-voice", "joe", ("joe", "amy"), "You are Reachy.")

    def session(
        self, bus: Bus, config: SessionConfig, memory: Memory | None = None, place: str = ""
    ) -> Session:
        return Session(self.stages, config, self.settings, bus, new_id, memory)

    def readiness(self) -> Mapping[str, str | None]:
        return {"stt": None, "llm": None}

    async def idle(self) -> None:
        """Nobody waits for it here."""


@asynccontextmanager
async def virtual_soak(clients: int, seed: int, report: Report) -> AsyncIterator[Soak]:
    """The whole server but uvicorn."""
    engines = Engines(Odds(random.Random(seed)))
    app = build_app(
        SoakAssistant(engines.stages()), max_sessions=clients + 2, reconnect_s=RECONNECT_S
    )
    sockets: OpenSockets = app.state.sockets

    @asynccontextmanager
    async def connected(key: str, query: str, beta: bool, fresh: bool) -> AsyncIterator[Link]:
        link = AsgiLink(report, key, query, beta=beta, fresh=fresh)
        serving = asyncio.create_task(link.serve(app))
        try:
            yield link
        finally:
            await link.cut()
            await serving

    async def close() -> Left:
        await sockets.empty()
        report.counts["parked at the end"] = len(sockets.parked)
        sockets.close_all()
        report.counts["engine failures"] = engines.odds.failed
        resumed = sockets.metrics.registry.get_sample_value("reachy_voice_sessions_resumed_total")
        report.counts["came back to their conversation"] = int(resumed or 0)
        return {"open in engines": engines.opened, "parked": len(sockets.parked)}

    voices = [CodedVoice(frame_s, rate) for frame_s, rate in _FRAMES]
    yield Soak(_clients(clients, seed, voices, connected, report), close)


def _clients(
    count: int, seed: int, voices: Sequence[Voice], connect: Connect, report: Report
) -> list[Client]:
    return [
        Client(
            f"client-{number}",
            MANNERS[number % len(MANNERS)],
            voices[number % len(voices)],
            connect,
            report,
            random.Random(f"{seed} {number}"),
        )
        for number in range(count)
    ]


# --- in real time ------------------------------------------------------------------------------


@dataclass
class RecordedVoice:
    """People's recordings, and a computed noise; 16 kHz."""

    recordings: Sequence[Sequence[str]]
    frame_s: float = 0.02
    rate: int = LISTEN_RATE

    @property
    def silence(self) -> str:
        return _level(round(self.frame_s * self.rate), 0)

    def question(self, rng: random.Random) -> Sequence[str]:
        return rng.choice(self.recordings)

    def interruption(self, rng: random.Random) -> Sequence[str]:
        return rng.choice(self.recordings)

    def backchannel(self, rng: random.Random) -> Sequence[str]:
        """The first half second of what somebody says; who knows what it means."""
        return rng.choice(self.recordings)[: round(0.5 / self.frame_s)]

    def noise(self, rng: random.Random) -> Sequence[str]:
        noise = np.random.default_rng(rng.randrange(2**32)).normal(0, 3000, LISTEN_RATE // 3)
        return frames_of(noise.clip(-32768, 32767).astype(np.int16), self.frame_s)


def frames_of(pcm: Pcm, frame_s: float) -> list[str]:
    """16 kHz audio as messages."""
    size = round(frame_s * LISTEN_RATE)
    return [_append(pcm[at : at + size]) for at in range(0, len(pcm), size)]


@asynccontextmanager
async def real_soak(clients: int, seed: int, report: Report) -> AsyncIterator[Soak]:
    """The server with its configured engines on a loopback port."""
    spoken = real_recordings()
    voice = RecordedVoice([frames_of(each.pcm, 0.02) for each in spoken if each.seconds <= 6.0])
    settings = load_settings(None, [f"limits.max_items={MAX_ITEMS}"]).settings
    assistant = Assistant(settings, WeightsCache(settings.paths.cache(os.environ)))
    async with local_server(assistant) as url:

        @asynccontextmanager
        async def connected(key: str, query: str, beta: bool, fresh: bool) -> AsyncIterator[Link]:
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

        async def close() -> Left:
            await assistant.idle()
            return {}

        yield Soak(_clients(clients, seed, [voice], connected, report), close)
