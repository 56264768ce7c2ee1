"""Measuring a server as its users hear it: from the last sample of speech to the first sample of
the answer, in real time, over the real WebSocket."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from app.server.listening import bind
from app.server.process_usage import Usage, usage
from app.server.serving import PATH
from app.talk.realtime_client import RATE, RealtimeClient, SpokenTurn, connect, room_tone
from hardware.wav import speech_end
from pipeline.audio import Pcm
from pipeline.errors import ReachyVoiceError

STAGES = ("endpoint", "transcript", "first_token", "first_clause")
VOICE_TO_VOICE = "voice_to_voice"
SHORT_SENTENCES = ("What is the weather like today?", "Turn around and look at me.", "Who are you?")
TURNS_PER_CONVERSATION = 10
PAUSE_SECONDS = 0.5
"""Silence between an answer and the next question."""
START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 60.0
"""After SIGTERM; a server that still runs then is killed."""
LOG_TAIL_CHARS = 2000
_READY = b"Ready."


@dataclass(frozen=True, slots=True)
class Clip:
    """One recorded question at ``RATE``. ``synthetic``: made by a TTS engine."""

    name: str
    pcm: Pcm
    synthetic: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """One turn: ms after the last speech sample per stage (none where no audio came, or it came
    early), and the machine's load average then."""

    clip: str
    first: bool
    ms: Mapping[str, float]
    load: float
    cut_off: bool
    """An answer began before the speaker was done."""

    @property
    def latency_ms(self) -> float | None:
        return self.ms.get(VOICE_TO_VOICE)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    turns: int
    starts: int
    idle_seconds: float


@dataclass(frozen=True, slots=True)
class Spawned:
    """A server process that is ready."""

    url: str
    pid: int
    start_seconds: float


@dataclass(slots=True)
class Run:
    """Everything one benchmark measured."""

    turns: list[Measured] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    ready: Usage | None = None
    after: Usage | None = None
    idle_core_percent: float | None = None
    turns_core_percent: float | None = None


# --- the server --------------------------------------------------------------------------------


@asynccontextmanager
async def spawned_server(arguments: Sequence[str]) -> AsyncIterator[Spawned]:
    """A server process of its own, ready. Raises ``ReachyVoiceError``."""
    with bind("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    began = time.monotonic()
    command = (sys.executable, "-m", "app.cli", "serve", "--port", str(port), *arguments)
    async with ready_process(command) as process:
        seconds = time.monotonic() - began
        await _check_ready(port)
        yield Spawned(f"ws://127.0.0.1:{port}{PATH}", process.pid, seconds)


@asynccontextmanager
async def ready_process(command: Sequence[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that has written ``Ready.`` to stderr; SIGTERM ends it with the context.

    Raises ``ReachyVoiceError`` with what it wrote when it ends or is silent instead.
    """
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr
    log, settled = bytearray(), asyncio.Event()
    reading = asyncio.create_task(_read(process.stderr, log, settled))
    try:
        await _wait_until_ready(log, settled)
        yield process
    finally:
        await _end(process)
        reading.cancel()
        await asyncio.wait({reading})


async def _read(stderr: asyncio.StreamReader, log: bytearray, settled: asyncio.Event) -> None:
    """To the end, so that no full pipe ever stops the process; kept until it is ready."""
    while chunk := await stderr.read(65_536):
        if not settled.is_set():
            log += chunk
            if _READY in log:
                settled.set()
    settled.set()


async def _wait_until_ready(log: bytearray, settled: asyncio.Event) -> None:
    what = "The server did not start"
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            await settled.wait()
    except TimeoutError:
        what = f"The server was not ready within {START_TIMEOUT_S:g} s"
    if _READY not in log:
        why = log.decode(errors="replace").strip()[-LOG_TAIL_CHARS:] or "it wrote nothing"
        fix = "Run reachy-voice serve with the same settings, or reachy-voice doctor"
        raise ReachyVoiceError(what, why=why, fix=fix)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _check_ready(port: int) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.get(f"http://127.0.0.1:{port}/ready")
    if response.status_code != 200:
        raise ReachyVoiceError("The server says that it is not ready", why=response.text)


# --- measuring ---------------------------------------------------------------------------------


async def measure_own_servers(
    arguments: Sequence[str], clips: Sequence[Clip], plan: Plan, advance: Callable[[], None]
) -> Run:
    """Start ``plan.starts`` servers one after the other, each with one first turn; the last one
    gets the warm turns and the silent client."""
    run = Run()
    for start in range(plan.starts):
        async with spawned_server(arguments) as server:
            run.starts_s.append(server.start_seconds)
            run.ready = run.ready or usage(server.pid)
            run.turns += await _conversation(server.url, [clips[start % len(clips)]], True, advance)
            if start + 1 == plan.starts:
                await _measure_warm(run, server, clips, plan, advance)
    return run


async def measure_running_server(
    url: str, clips: Sequence[Clip], plan: Plan, advance: Callable[[], None]
) -> Run:
    """Only the warm turns: when the server began and what it costs is not ours to know."""
    run = Run()
    for part in _conversations(clips, plan.turns):
        run.turns += await _conversation(url, part, False, advance)
    return run


async def _measure_warm(
    run: Run, server: Spawned, clips: Sequence[Clip], plan: Plan, advance: Callable[[], None]
) -> None:
    before, began = usage(server.pid), time.monotonic()
    warm = await measure_running_server(server.url, clips, plan, advance)
    run.turns += warm.turns
    run.after = usage(server.pid)
    spent = run.after.cpu_seconds - before.cpu_seconds
    run.turns_core_percent = spent / (time.monotonic() - began) * 100
    if plan.idle_seconds:
        run.idle_core_percent = await measure_idle(server.url, server.pid, plan.idle_seconds)


def _conversations(clips: Sequence[Clip], turns: int) -> Iterator[list[Clip]]:
    """``turns`` clips in rotation, in conversations of ``TURNS_PER_CONVERSATION``."""
    endless = itertools.islice(itertools.cycle(clips), turns)
    while part := list(itertools.islice(endless, TURNS_PER_CONVERSATION)):
        yield part


async def _conversation(
    url: str, clips: Sequence[Clip], first: bool, advance: Callable[[], None]
) -> list[Measured]:
    measured = []
    async with connect(url) as client:
        await client.configure()
        for clip in clips:
            measured.append(await _measure(client, clip, first))
            advance()
    return measured


async def _measure(client: RealtimeClient, clip: Clip, first: bool) -> Measured:
    pause = room_tone(int(PAUSE_SECONDS * RATE))
    pcm = np.concatenate((pause, clip.pcm))
    turn = await client.speak(pcm, len(pause) + speech_end(clip.pcm, RATE))
    return Measured(clip.name, first, _milliseconds(turn), os.getloadavg()[0], turn.cut_offs > 0)


def _milliseconds(turn: SpokenTurn) -> dict[str, float]:
    if (latency := turn.voice_to_voice_ms) is None:
        return {}
    stages = {stage: ms for stage, ms in turn.stages_ms.items() if stage in STAGES}
    return {**stages, VOICE_TO_VOICE: latency}


async def measure_idle(url: str, pid: int, seconds: float) -> float:
    """Per cent of one core that a connected client costs who streams silence."""
    async with connect(url) as client:
        await client.configure()
        before = usage(pid).cpu_seconds
        await client.stay_silent(seconds)
        return (usage(pid).cpu_seconds - before) / seconds * 100


# --- statistics --------------------------------------------------------------------------------


def percentile(values: Iterable[float], percent: float) -> float | None:
    """Nearest-rank percentile; ``None`` for no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def summary(run: Run) -> dict[str, Any]:
    """The run as data for JSON: the warm turns by stage, the first turns apart.

    ``n`` counts the turns with a latency, ``no_latency`` the others: they had no audio, or were
    ``cut_off``. What was not measured is ``None``.
    """
    warm = [turn for turn in run.turns if not turn.first]
    cold = [turn for turn in run.turns if turn.first]
    warm_p50, cold_p50 = (percentile(_latencies(turns), 50) for turns in (warm, cold))
    return {
        **_counts(warm),
        "stages_ms": {stage: _stage(warm, stage) for stage in (*STAGES, VOICE_TO_VOICE)},
        "first_turn_ms": {**_counts(cold), "p50": cold_p50},
        "first_to_warm_ratio": cold_p50 / warm_p50 if cold_p50 and warm_p50 else None,
        "start_to_ready_s": {"n": len(run.starts_s), "p50": percentile(run.starts_s, 50)},
        "rss_mib": {
            "ready": run.ready.rss_mib if run.ready else None,
            "after": run.after.rss_mib if run.after else None,
        },
        "core_percent": {"silent_client": run.idle_core_percent, "turns": run.turns_core_percent},
        "load_average": {
            "p50": percentile((turn.load for turn in run.turns), 50),
            "max": max((turn.load for turn in run.turns), default=None),
        },
        "turns": [
            {"clip": t.clip, "first": t.first, "load": t.load, "cut_off": t.cut_off, **t.ms}
            for t in run.turns
        ],
    }


def _latencies(turns: Sequence[Measured]) -> list[float]:
    return [turn.latency_ms for turn in turns if turn.latency_ms is not None]


def _counts(turns: Sequence[Measured]) -> dict[str, int]:
    n = len(_latencies(turns))
    cut_off = sum(turn.cut_off for turn in turns)
    return {"n": n, "no_latency": len(turns) - n, "cut_off": cut_off}


def _stage(turns: Sequence[Measured], stage: str) -> dict[str, float | None]:
    values = [turn.ms[stage] for turn in turns if stage in turn.ms]
    return {
        "n": len(values),
        "p50": percentile(values, 50),
        "p95": percentile(values, 95),
        "p99": percentile(values, 99),
    }
