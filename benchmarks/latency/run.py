"""Playing takes to a server process in real time, and watching the machine meanwhile."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import websockets.asyncio.client

from app.cli.measuring import TURNS_PER_CONVERSATION, Spawned, ready_process
from app.server.process_usage import usage
from app.server.server import bind
from app.server.serving import PATH
from app.talk.realtime_client import RATE, RealtimeClient, SpokenTurn, TurnFailed, realtime_url
from benchmarks.harness.scripted_engines import Said, write_cue
from benchmarks.latency.clips import Take
from benchmarks.latency.trace import Moments, Sent
from pipeline.speaking.playback import PlaybackClock

BYTES_PER_SAMPLE = 2


# --- a client that takes notes -----------------------------------------------------------------


class NotedClient(RealtimeClient):
    """The real client; also notes when it sent what, and what it heard of which answer."""

    def __init__(self, socket: websockets.asyncio.client.ClientConnection) -> None:
        super().__init__(socket)
        self.sent_at: list[float] = []
        self.sent_samples: list[int] = []
        self.heard_s: dict[str, float] = {}
        """Answer -> seconds of it that a player has played when it ended or was cut off."""
        self._players: dict[str, PlaybackClock] = {}

    @property
    def sent(self) -> Sent:
        return Sent(self.sent_at, self.sent_samples, RATE)

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "input_audio_buffer.append":
            before = self.sent_samples[-1] if self.sent_samples else 0
            self.sent_at.append(time.monotonic())
            self.sent_samples.append(before + _decoded_bytes(message["audio"]) // BYTES_PER_SAMPLE)
        await super()._send(message)

    async def _receive(self) -> dict[str, Any]:
        event = await super()._receive()
        now = time.monotonic()
        match event["type"]:
            case "response.output_audio.delta":
                player = self._players.setdefault(event["response_id"], PlaybackClock())
                player.send(_decoded_bytes(event["delta"]) / BYTES_PER_SAMPLE / RATE, now)
            case "response.done":
                answer = event["response"]
                player = self._players.get(answer["id"], PlaybackClock())
                whole = answer["status"] == "completed"
                heard = player.sent_seconds if whole else player.heard_seconds(now)
                self.heard_s[answer["id"]] = heard
        return event


def _decoded_bytes(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[NotedClient]:
    address = f"{realtime_url(url)}?timings=true"
    async with websockets.asyncio.client.connect(address, max_size=None, proxy=None) as socket:
        yield NotedClient(socket)


# --- the machine -------------------------------------------------------------------------------


@dataclass(slots=True)
class Machine:
    """How busy the machine was. ``core_percent``: of one core, by whom."""

    load: list[float] = field(default_factory=list)
    """Load averages over a minute: before, after each turn, at the end."""
    core_percent: dict[str, float] = field(default_factory=dict)

    def look(self) -> float:
        self.load.append(os.getloadavg()[0])
        return self.load[-1]


@asynccontextmanager
async def neighbour(count: int) -> AsyncIterator[list[int]]:
    """``count`` busy processes of one thread each; their ids."""
    command = (sys.executable, "-m", "benchmarks.latency.neighbour")
    busy = [await asyncio.create_subprocess_exec(*command) for _ in range(count)]
    try:
        yield [process.pid for process in busy]
    finally:
        for process in busy:
            if process.returncode is None:
                process.terminate()
            await process.wait()


class _CpuMeter:
    """CPU seconds of some processes, and of everybody, since it was made."""

    def __init__(self, pids: dict[str, list[int]]) -> None:
        self._pids = pids
        self._began = time.monotonic()
        self._before = self._read()

    def core_percent(self) -> dict[str, float]:
        seconds = time.monotonic() - self._began
        now = self._read()
        return {name: (now[name] - self._before[name]) / seconds * 100 for name in now}

    def _read(self) -> dict[str, float]:
        times = psutil.cpu_times()
        everybody = sum(times) - times.idle - times.iowait - times.guest - times.guest_nice
        named = {
            name: sum(usage(pid).cpu_seconds for pid in pids) for name, pids in self._pids.items()
        }
        own = psutil.Process().cpu_times()
        return {**named, "client": own.user + own.system, "everybody": everybody}


# --- turns -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Played:
    """One take and what came of it. ``first``: the server had just become ready. ``heard_s``: how
    much of each answer to it was heard, in their order. ``failure``: why nothing came of it."""

    take: Take
    turn: SpokenTurn
    began_at: float
    sent: Sent
    load: float
    first: bool
    heard_s: tuple[float, ...]
    failure: str = ""

    @property
    def moments(self) -> Moments | None:
        """``None`` if there was no audio after the end of speech."""
        received = self.turn.first_audio_at
        if received is None or self.turn.voice_to_voice_ms is None:
            return None
        return Moments(self.began_at, self.turn.speech_end_at, received, self.sent)


Advance = Callable[[], None]


async def play(
    url: str,
    takes: Sequence[Take],
    machine: Machine,
    advance: Advance,
    *,
    first: bool = False,
    cue: Path | None = None,
) -> list[Played]:
    """Say each take in conversations of ``TURNS_PER_CONVERSATION``; ``cue``: for a recogniser that
    must be told what it hears. A turn that fails is one without a latency. Raises ``NoServer``."""
    played: list[Played] = []
    rest = deque(takes)
    while rest:
        async with connect(url) as client:
            await client.configure()
            for _ in range(min(TURNS_PER_CONVERSATION, len(rest))):
                played.append(await _play(client, rest.popleft(), machine, first, cue))
                advance()
                if played[-1].failure:
                    break  # go on in a new conversation
    return played


async def _play(
    client: NotedClient, take: Take, machine: Machine, first: bool, cue: Path | None
) -> Played:
    began_at = time.monotonic()
    if cue:
        said = [Said(began_at + begins, began_at + ends, text) for begins, ends, text in take.said]
        write_cue(cue, said)
    before = len(client.heard_s)
    failure = ""
    try:
        turn = await client.speak(take.pcm, take.end)
    except TurnFailed as error:
        turn, failure = SpokenTurn(speech_end_at=began_at + take.end / RATE), str(error)
    heard = tuple(client.heard_s.values())[before:]
    return Played(take, turn, began_at, client.sent, machine.look(), first, heard, failure)


# --- servers -----------------------------------------------------------------------------------


@asynccontextmanager
async def traced_server(arguments: Sequence[str], trace: Path) -> AsyncIterator[Spawned]:
    """``benchmarks.latency.server`` as a process of its own; ``trace`` is there after it ended.

    Raises ``ReachyVoiceError``.
    """
    with bind("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    began = time.monotonic()
    module = (sys.executable, "-m", "benchmarks.latency.server")
    command = (*module, "--port", str(port), "--trace", str(trace), *arguments)
    async with ready_process(command) as process:
        url = f"ws://127.0.0.1:{port}{PATH}"
        yield Spawned(url, process.pid, time.monotonic() - began)


@asynccontextmanager
async def watched(machine: Machine, server: Spawned, neighbours: int) -> AsyncIterator[None]:
    """Notes how busy the machine is, with ``neighbours`` busy processes beside the server."""
    async with neighbour(neighbours) as pids:
        machine.look()
        meter = _CpuMeter({"server": [server.pid], "neighbour": pids})
        yield
        machine.core_percent = meter.core_percent()
        machine.look()
