"""A fleet under load: what a client costs, and what is lost when a process is killed or drained.

    python -m benchmarks.fleet --minutes 30 --clients 30 --kill --drain [--out FILE]
    python -m benchmarks.fleet --processes 1 --clients 12 --minutes 2    (without a balancer)

Starts reachy-voice processes with ``examples/fleet/fleet.yaml``, HAProxy with
``examples/fleet/haproxy.cfg`` (if there are two or more processes), and one server for the three
engines that answers after 80 (STT), 100 (LLM) and 120 ms (TTS). Each client has an address of its
own (127.0.1.N), sends a person's recording and silence in real time, and asks again when the answer
has been played. After a third of the time one process is killed and started again; after two thirds
another one gets SIGTERM.

A turn is lost if its answer does not end as ``completed``. ``cpu_s_per_client_s`` is the processor
time of the reachy-voice processes per second of a connected client. It does not depend on what else
runs on the machine; latencies do.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from benchmarks.harness.program import arguments, finish, load
from pipeline.audio import LISTEN_RATE, Pcm, Resampler
from tests.support.far_server import FarServer, free_port, serving
from tests.support.recordings import recording

FLEET = Path("examples/fleet")
DELAYS_S = {"stt": 0.08, "llm": 0.1, "tts": 0.12}
FRAME_S, RATE = 0.02, 24_000
SILENCE_S = 0.6
"""Least silence before the next question."""
AGAIN_S = 1.0
"""Between two attempts to connect."""
TURN_S = 30.0
"""A turn that takes longer is lost."""


@dataclass
class Talker:
    """One robot. ``pcm``: its question, at ``RATE``."""

    url: str
    address: str
    pcm: Pcm
    firsts_ms: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    connected_s: float = 0.0
    _at: int = 0
    """Samples of the question that are sent."""
    _said_at: float = 0.0
    """When the last of them was."""
    _asking: bool = False

    async def live(self, until: float) -> None:
        headers = {"Authorization": "Bearer DUMMY"}
        while time.monotonic() < until:
            try:
                async with connect(
                    self.url,
                    additional_headers=headers,
                    proxy=None,
                    local_addr=(self.address, 0),
                ) as socket:
                    await self._talk(socket, until)
            except (ConnectionClosed, InvalidHandshake, OSError, TimeoutError) as error:
                status = getattr(getattr(error, "response", None), "status_code", None)
                self.counts[f"away: {status or type(error).__name__}"] += 1
                self.counts["lost"] += self._asking
                self._asking = False
                await asyncio.sleep(AGAIN_S)

    async def _talk(self, socket: ClientConnection, until: float) -> None:
        began = time.monotonic()
        self._at = len(self.pcm)
        await socket.send(json.dumps({"type": "session.update", "session": {"type": "realtime"}}))
        sending = asyncio.create_task(self._send(socket))
        try:
            while time.monotonic() < until:
                await self._ask(socket)
        finally:
            self.connected_s += time.monotonic() - began
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, socket: ClientConnection) -> None:
        """The question, and silence before and after it, in real time."""
        due, frame = time.monotonic(), int(FRAME_S * RATE)
        while True:
            piece = self.pcm[self._at : self._at + frame]
            sound = np.pad(piece, (0, frame - len(piece))).tobytes()
            audio = base64.b64encode(sound).decode()
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            if len(piece):
                self._at += len(piece)
                self._said_at = time.monotonic()
            due += FRAME_S
            await asyncio.sleep(due - time.monotonic())

    async def _ask(self, socket: ClientConnection) -> None:
        self._at, self._asking = 0, True
        first_at, heard_s = None, 0.0
        async with asyncio.timeout(TURN_S):
            async for text in socket:
                event = json.loads(text)
                if event["type"] == "response.created":
                    first_at, heard_s = None, 0.0
                elif event["type"] == "response.output_audio.delta":
                    first_at = first_at or time.monotonic()
                    heard_s += len(event["delta"]) * 3 / 4 / 2 / RATE
                elif event["type"] == "error":
                    self.counts[f"error: {event['error']['code']}"] += 1
                elif event["type"] == "response.done" and self._at == len(self.pcm):
                    self._note(event["response"]["status"], first_at)
                    break
            else:
                raise ConnectionClosed(None, None)
        await asyncio.sleep(heard_s / 4 + SILENCE_S)

    def _note(self, status: str, first_at: float | None) -> None:
        self.counts["turns"] += 1
        self.counts["lost"] += status != "completed"
        self._asking = False
        if first_at:
            self.firsts_ms.append(1000 * (first_at - self._said_at))


# --- the processes -----------------------------------------------------------------------------


@dataclass
class Voice:
    """One reachy-voice process, started again when it has ended."""

    port: int
    sets: list[str]
    environ: dict[str, str]
    cpu_s: float = 0.0
    rss_mb: float = 0.0
    _process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        sets = [f"--set={each}" for each in (*self.sets, f"server.port={self.port}")]
        command = [sys.executable, "-m", "app.cli", "serve", "--config", str(FLEET / "fleet.yaml")]
        self._process = await asyncio.create_subprocess_exec(
            *command, *sets, env=self.environ, stderr=asyncio.subprocess.DEVNULL
        )
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}") as client:
            headers = {"Authorization": f"Bearer {self.environ['REACHY_VOICE_KEY']}"}
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get("/ready", headers=headers)).status_code == 200:
                        return
                await asyncio.sleep(0.25)

    def look(self) -> None:
        """Its processor time, in all its lives, and its memory."""
        assert self._process
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            times = process.cpu_times()
            self.cpu_s = times.user + times.system
            self.rss_mb = process.memory_info().rss / 1e6

    async def end(self, number: signal.Signals) -> None:
        assert self._process
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        await self._process.wait()


@asynccontextmanager
async def balancer(ports: list[int], environ: dict[str, str]) -> AsyncIterator[int]:
    """HAProxy with the example's file and other ports."""
    program = shutil.which("haproxy")
    if program is None:
        sys.exit("haproxy is not installed (Debian: apt install haproxy)")
    text, front = (FLEET / "haproxy.cfg").read_text(), free_port()
    for before, after in ((8765, front), (8771, ports[0]), (8772, ports[1])):
        text = text.replace(f":{before}", f":{after}")
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
        file.write(text)
        file.flush()
        process = await asyncio.create_subprocess_exec(
            program, "-q", "-f", file.name, env=environ, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            yield front
        finally:
            process.terminate()
            await process.wait()


@asynccontextmanager
async def engines() -> AsyncIterator[list[str]]:
    """Settings for a program of its own that plays the three engines."""
    command = [sys.executable, "-m", "benchmarks.fleet", "--engines"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    urls = json.loads(await process.stdout.readline())
    try:
        yield [f"{kind}.url={url}" for kind, url in urls.items()]
    finally:
        process.terminate()
        await process.wait()


async def play_engines() -> None:
    urls = {}
    async with AsyncExitStack() as stack:
        for kind, delay_s in DELAYS_S.items():
            far = FarServer("speech" if kind != "llm" else "llama-server", first_s=delay_s)
            far.forgets = True
            await stack.enter_async_context(serving(far))
            urls[kind] = far.url
        print(json.dumps(urls), flush=True)
        await asyncio.Event().wait()


async def play(given: argparse.Namespace) -> dict[str, Any]:
    question = recording("goforward")
    resampler = Resampler(LISTEN_RATE, RATE)
    pcm = np.concatenate((resampler.feed(question.pcm), resampler.flush()))
    key = secrets.token_urlsafe(32)
    environ = {
        **os.environ,
        "REACHY_VOICE_KEY": key,
        "REACHY_VOICE__ACCESS__KEYS": key,
        "REACHY_VOICE__ACCESS__SHARED_KEY": secrets.token_urlsafe(32),
    }
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        urls = given.engine or await stack.enter_async_context(engines())
        sets = [
            *urls,
            *("turn.engine=silence", "playback.watch_voice=false", "access.loopback=false"),
            *("access.addresses=[127.0.1.0/24]", f"server.conversations_dir={folder}"),
            *(f"server.max_sessions={given.most}", f"server.finish_s={given.finish_s}"),
        ]
        voices = [Voice(free_port(), sets, environ) for _ in range(given.processes)]
        for voice in voices:
            await voice.start()
            stack.push_async_callback(voice.end, signal.SIGKILL)
            voice.look()
        before_mb, begun_s = [v.rss_mb for v in voices], [v.cpu_s for v in voices]
        ports = [voice.port for voice in voices]
        front = ports[0]
        if len(ports) > 1:
            front = await stack.enter_async_context(balancer(ports, environ))
        url = f"ws://127.0.0.1:{front}/v1/realtime"
        talkers = [Talker(url, f"127.0.1.{n + 2}", pcm) for n in range(given.clients)]
        until = time.monotonic() + 60 * given.minutes
        async with asyncio.TaskGroup() as group:
            for talker in talkers:
                group.create_task(talker.live(until))
                await asyncio.sleep(0.1)
            if given.kill:
                await asyncio.sleep(60 * given.minutes / 3)
                await voices[0].end(signal.SIGKILL)
                await voices[0].start()
            if given.drain:
                await asyncio.sleep(60 * given.minutes / 3)
                await voices[1].end(signal.SIGTERM)
                await voices[1].start()
            await asyncio.sleep(max(0.0, until - time.monotonic() - 1))
            for voice in voices:
                voice.look()
    firsts = np.array([ms for talker in talkers for ms in talker.firsts_ms])
    counts = sum((talker.counts for talker in talkers), Counter[str]())
    whole = {
        "clients": given.clients,
        "processes": given.processes,
        "minutes": given.minutes,
        "counts": dict(sorted(counts.items())),
        "most_lost_by_one_client": max(talker.counts["lost"] for talker in talkers),
        "first_audio_ms": {f"p{p}": round(float(np.percentile(firsts, p))) for p in (50, 95)},
    }
    if not (given.kill or given.drain):  # a process that was started again counts from its start
        cpu_s = sum(v.cpu_s - s for v, s in zip(voices, begun_s, strict=True))
        more_mb = sum(v.rss_mb - mb for v, mb in zip(voices, before_mb, strict=True))
        whole["cpu_s_per_client_s"] = round(cpu_s / sum(t.connected_s for t in talkers), 4)
        whole["mb_per_client"] = round(more_mb / given.clients, 1)
        whole["mb_before"] = round(before_mb[0])
    return whole


def main() -> None:
    parser = arguments(__doc__, "benchmarks.fleet")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--most", type=int, default=30, help="server.max_sessions of each")
    parser.add_argument("--finish_s", type=float, default=5.0, help="server.finish_s")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--drain", action="store_true")
    parser.add_argument(
        "--engine", action="append", metavar="K=V", help="settings of engines that run already"
    )
    parser.add_argument("--engines", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engines:
        asyncio.run(play_engines())
        return
    before = load()
    finish(asyncio.run(play(given)), given.out, before)


if __name__ == "__main__":
    main()
