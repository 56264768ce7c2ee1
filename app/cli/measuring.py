"""Measure a server as its users hear it: from the last sample of speech to the first sample of the
answer, in real time, over a real WebSocket."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from app.models.gpu import Gpu, find_gpus
from app.server.discovery import PATH
from app.server.listening import bind
from app.server.process_usage import ProcessUsage, usage
from app.talk.realtime_client import RATE, RealtimeClient, connect, room_tone
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
"""After SIGTERM; then the server is killed."""
POLL_S = 0.1
LOG_BYTES, LOG_TAIL_CHARS = 2**20, 2000


@dataclass(frozen=True, slots=True)
class QuestionClip:
    """One recorded question at ``RATE``."""

    name: str
    pcm: Pcm
    synthetic: bool = False
    """Made by a TTS engine."""


@dataclass(frozen=True, slots=True)
class TurnTiming:
    """One turn: ms per stage after the last speech sample (empty if audio was missing or early),
    and the machine's load average at that time."""

    clip: str
    ms: Mapping[str, float]
    load: float
    cut_off: bool
    """An answer started before the speaker was done."""
    holes_ms: Sequence[float] = ()
    """Silences in the answer because its sound came late."""


@dataclass(frozen=True, slots=True)
class SpawnedServer:
    """A server process that is ready."""

    url: str
    pid: int
    start_seconds: float


@dataclass(slots=True)
class BenchRun:
    """Everything one benchmark measured."""

    turns: list[TurnTiming] = field(default_factory=list)
    start_s: float | None = None
    ready: ProcessUsage | None = None
    after: ProcessUsage | None = None
    """``ready`` and ``after`` (the turns): usage of a server started for it."""
    core_percent: float | None = None
    gpu: str | None = None
    """The first card and its driver."""
    gpu_mb: int | None = None
    """How much more of its memory was in use after the turns than before the start."""
    voice_rtf: float | None = None


# --- the server --------------------------------------------------------------------------------


@asynccontextmanager
async def spawned_server(
    arguments: Sequence[str], log: Path | None = None
) -> AsyncIterator[SpawnedServer]:
    """Start a server process and wait until it is ready. ``log``: see ``ready_process``. Raises
    ``ReachyVoiceError``."""
    with bind("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    began = time.monotonic()
    command = (sys.executable, "-m", "app.cli", "serve", "--port", str(port), *arguments)
    async with ready_process(command, log) as process:
        seconds = time.monotonic() - began
        yield SpawnedServer(f"ws://127.0.0.1:{port}{PATH}", process.pid, seconds)


@asynccontextmanager
async def ready_process(
    command: Sequence[str], log: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that has written ``Ready.`` to stderr; SIGTERM ends it with the context. ``log``:
    a file for its stderr, or else a temporary one.

    Raises ``ReachyVoiceError`` with its output if it ends or times out instead.
    """
    with await asyncio.to_thread(_log_file, log) as stderr:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stderr=stderr
        )
        try:
            await _wait_until_ready(process, stderr.fileno())
            yield process
        finally:
            await _end(process)


def _log_file(path: Path | None) -> IO[bytes]:
    return path.open("w+b") if path else tempfile.TemporaryFile()


async def _wait_until_ready(process: asyncio.subprocess.Process, log: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        has_ended = process.returncode is not None
        text = (await asyncio.to_thread(os.pread, log, LOG_BYTES, 0)).decode(errors="replace")
        if "Ready." in text:
            return
        if has_ended or time.monotonic() >= deadline:
            break
        await asyncio.sleep(POLL_S)
    late = f"The server was not ready within {START_TIMEOUT_S:g} s"
    raise ReachyVoiceError(
        "The server did not start" if has_ended else late,
        why=text.strip()[-LOG_TAIL_CHARS:] or "it wrote nothing",
        fix="Run reachy-voice serve with the same settings, or reachy-voice doctor",
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


# --- measuring ---------------------------------------------------------------------------------


async def measure_own_server(
    arguments: Sequence[str], clips: Sequence[QuestionClip], turns: int, advance: Callable[[], None]
) -> BenchRun:
    """Start a server with these ``arguments``; measure it, including memory and processor time."""
    with tempfile.TemporaryDirectory() as folder:
        log, card = Path(folder) / "log", await asyncio.to_thread(find_gpus)
        async with spawned_server(arguments, log) as server:
            ready, began = usage(server.pid), time.monotonic()
            run = await measure_running_server(server.url, clips, turns, advance)
            run.start_s, run.ready, run.after = server.start_seconds, ready, usage(server.pid)
            cpu_s = run.after.cpu_seconds - ready.cpu_seconds
            run.core_percent = cpu_s / (time.monotonic() - began) * 100
            note_gpu(run, card.first, (await asyncio.to_thread(find_gpus)).first)
        run.voice_rtf = voice_rtf(log.read_text(encoding="utf-8", errors="replace"))
    return run


def note_gpu(run: BenchRun, before: Gpu | None, after: Gpu | None) -> None:
    """``before``: the first card before the server started."""
    if before and after:
        run.gpu = f"{before.name}, driver {before.driver}"
        if before.free_mb is not None and after.free_mb is not None:
            run.gpu_mb = before.free_mb - after.free_mb


def voice_rtf(log: str) -> float | None:
    """What a server says of its voice (``pipeline.speaking.notices``)."""
    match = re.search(r"the voice takes ([\d.]+) s for each second of speech", log)
    return float(match[1]) if match else None


async def measure_running_server(
    url: str, clips: Sequence[QuestionClip], turns: int, advance: Callable[[], None]
) -> BenchRun:
    """``turns`` clips in rotation, in conversations of ``TURNS_PER_CONVERSATION``."""
    run = BenchRun()
    endless = itertools.islice(itertools.cycle(clips), turns)
    while part := list(itertools.islice(endless, TURNS_PER_CONVERSATION)):
        async with connect(url) as client:
            await client.configure()
            for clip in part:
                run.turns.append(await _measure(client, clip))
                advance()
    return run


async def _measure(client: RealtimeClient, clip: QuestionClip) -> TurnTiming:
    pause = room_tone(int(PAUSE_SECONDS * RATE))
    pcm = np.concatenate((pause, clip.pcm))
    turn = await client.speak(pcm, len(pause) + speech_end(clip.pcm, RATE))
    ms = {}
    if (latency := turn.voice_to_voice_ms) is not None:
        ms = {stage: turn.stages_ms[stage] for stage in STAGES if stage in turn.stages_ms}
        ms[VOICE_TO_VOICE] = latency
    return TurnTiming(clip.name, ms, os.getloadavg()[0], turn.cut_offs > 0, turn.holes_ms)


# --- statistics --------------------------------------------------------------------------------


def percentile(values: Iterable[float], percent: float) -> float | None:
    """Nearest-rank percentile; ``None`` for no values."""
    numbers = list(values)
    return float(np.percentile(numbers, percent, method="inverted_cdf")) if numbers else None


def summary(run: BenchRun) -> dict[str, Any]:
    """The run as data for JSON.

    ``n`` counts the turns with a latency, ``no_latency`` the others: they had no audio, or were
    ``cut_off``. Values that were not measured are ``None``.
    """
    n = sum(VOICE_TO_VOICE in turn.ms for turn in run.turns)
    loads = [turn.load for turn in run.turns]
    return {
        "n": n,
        "no_latency": len(run.turns) - n,
        "cut_off": sum(turn.cut_off for turn in run.turns),
        "stages_ms": {stage: _stage(run.turns, stage) for stage in (*STAGES, VOICE_TO_VOICE)},
        "start_to_ready_s": run.start_s,
        "rss_mib": {
            "ready": run.ready.rss_mib if run.ready else None,
            "after": run.after.rss_mib if run.after else None,
        },
        "core_percent": run.core_percent,
        "gpu": {"card": run.gpu, "memory_mb": run.gpu_mb},
        "voice_rtf": run.voice_rtf,
        "holes": {
            "n": sum(len(turn.holes_ms) for turn in run.turns),
            "ms": sum(sum(turn.holes_ms) for turn in run.turns),
        },
        "load_average": {"p50": percentile(loads, 50), "max": max(loads, default=None)},
        "turns": [
            {"clip": t.clip, "load": t.load, "cut_off": t.cut_off, **t.ms} for t in run.turns
        ],
    }


def _stage(turns: Sequence[TurnTiming], stage: str) -> dict[str, float | None]:
    values = [turn.ms[stage] for turn in turns if stage in turn.ms]
    percentiles = {f"p{percent}": percentile(values, percent) for percent in (50, 95, 99)}
    return {"n": len(values), **percentiles}
