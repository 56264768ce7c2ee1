"""Recognisers and voices that die in mid-sentence: how many answers fail.

    python -m benchmarks.fleet.replicas [--kills 20] [--out FILE]
    python -m benchmarks.fleet.replicas --ray http://127.0.0.1:8000    (while it serves)

A reachy-voice process with ``examples/fleet/fleet.yaml`` asks for speech at one URL, behind which
run three processes of ``examples/audio_server.py`` (Moonshine and Piper), or the replicas of
``examples/fleet/speech.yaml`` on Ray Serve. A process is killed (SIGKILL) when the first sound of a
clause has passed, or when it has got a whole utterance and not said a word of it (on Ray Serve,
when it has worked on it); it is started again before the next one is killed.

``broken``: kills that broke an answer of the process off, or made it an error, before the client
had left (it does when speech resumes). Only those count. ``ok``: of these, the answers that ended
as completed, without an apology, and with all their speech; after a recogniser's death with the
words that were said, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, Literal

import psutil
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.fleet.processes import Voice, fleet_environ
from benchmarks.fleet.talkers import FRAME_S, HEADERS, RATE, SILENT_FRAME, Player, question
from benchmarks.harness.program import arguments, finish, load
from benchmarks.wer import word_errors
from tests.support.far_server import FarServer, free_port, serving
from tests.support.real_servers import RealServer, audio_server
from tests.support.recordings import recording

STORY = (
    "Once upon a time a small robot lived in an old lighthouse beside the wide grey sea. ",
    "Every morning it climbed two hundred steps and polished the great lamp until it shone. ",
)
SERVERS = 3
WHOLE = 0.8
"""Least share of the speech of an undisturbed answer."""
TURN_S = 60.0
RAY_STARTS_S, RAY_LOADS_S = 60.0, 10.0
"""How long Ray Serve may take to start a replica again, and the replica to load its engine."""
WORKS_S, BEGINS_S = 0.02, 2.0
"""Processor time by which the replica is known that works, and how long that may take."""

Kind = Literal["tts", "stt"]
PATHS: dict[Kind, bytes] = {
    "tts": b"/v1/audio/speech HTTP",
    "stt": b"/v1/audio/transcriptions HTTP",
}
END = b"0\r\n\r\n"
"""Of a chunked body."""


class Behind(contextlib.AbstractAsyncContextManager["Behind"]):
    """What is behind the URL, and which of it dies."""

    def open_port(self) -> Sequence[int]:
        """The ports to try, in this order."""
        raise NotImplementedError

    def about_to_work(self) -> None:
        """A request is on its way."""

    async def kill(self, port: int) -> None:
        """End the process that works on it; ``port``: where the request went."""
        raise NotImplementedError

    async def mend(self) -> None:
        """Return when as many run as at first."""
        raise NotImplementedError


class Programs(Behind):
    """Audio servers of this repository."""

    async def __aenter__(self) -> Programs:
        self._servers: dict[int, tuple[RealServer, AsyncExitStack]] = {}
        self._dead: list[int] = []
        for _ in range(SERVERS):
            await self._start(free_port())
        return self

    async def __aexit__(self, *problem: object) -> None:
        for _, stack in self._servers.values():
            await stack.aclose()

    async def _start(self, port: int) -> None:
        stack = AsyncExitStack()
        self._servers[port] = await stack.enter_async_context(audio_server(port)), stack

    def open_port(self) -> Sequence[int]:
        return list(self._servers)

    async def kill(self, port: int) -> None:
        self._servers[port][0].program.process.send_signal(signal.SIGKILL)
        self._dead.append(port)

    async def mend(self) -> None:
        while self._dead:
            port = self._dead.pop()
            await self._servers.pop(port)[1].aclose()
            await self._start(port)


class RayServe(Behind):
    """Replicas on Ray Serve, which starts them again by itself."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._replicas: dict[int, list[psutil.Process]] = {}
        self._before: dict[int, float] = {}

    async def __aenter__(self) -> RayServe:
        self._replicas = _replicas()
        return self

    async def __aexit__(self, *problem: object) -> None:
        pass

    def open_port(self) -> Sequence[int]:
        return [self._port]

    def about_to_work(self) -> None:
        self._before = self._cpu_s()

    async def kill(self, port: int) -> None:
        until = time.monotonic() + BEGINS_S
        while True:
            worked_s = {pid: now - self._before[pid] for pid, now in self._cpu_s().items()}
            busiest = max(worked_s, key=worked_s.__getitem__)
            if worked_s[busiest] >= WORKS_S or time.monotonic() > until:
                break
            await asyncio.sleep(0.005)
        psutil.Process(busiest).kill()

    async def mend(self) -> None:
        began = time.monotonic()
        while len(_replicas()) < len(self._replicas):
            if time.monotonic() - began > RAY_STARTS_S:
                sys.exit(f"Ray Serve has not started a replica again within {RAY_STARTS_S} s")
            await asyncio.sleep(1.0)
        await asyncio.sleep(RAY_LOADS_S)
        self._replicas = _replicas()

    def _cpu_s(self) -> dict[int, float]:
        """Processor time of each replica, its engine's included."""
        return {pid: sum(map(_cpu_s, each)) for pid, each in self._replicas.items()}


def _replicas() -> dict[int, list[psutil.Process]]:
    """Ray Serve's replicas, each with what it has started."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        if "".join(process.info["cmdline"] or ()).startswith("ray::ServeReplica"):
            with contextlib.suppress(psutil.NoSuchProcess):
                found[process.pid] = [process, *process.children(recursive=True)]
    return found


def _cpu_s(process: psutil.Process) -> float:
    """Its processor time; 0 if it has ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


@dataclass
class OneUrl:
    """Passes connections on to what is behind it, and looks at what passes. ``kill_at``: the next
    request of this kind, or one after it, costs the process that answers it."""

    behind: Behind
    prefix: dict[Kind, str]
    port: int = 0
    kill_at: Kind | None = None
    spared: int = 0
    """Requests that pass before that."""
    killed: list[Kind] = field(default_factory=list)
    broken: Counter[Kind] = field(default_factory=Counter)

    def url(self, kind: Kind) -> str:
        return f"http://127.0.0.1:{self.port}{self.prefix[kind]}/v1"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[OneUrl]:
        async with await asyncio.start_server(self._connected, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self

    async def _connected(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        for port in self.behind.open_port():
            with contextlib.suppress(OSError):
                far, on = await asyncio.open_connection("127.0.0.1", port)
                await _Passing(self, port, near).both(on, far, back)
                return
        back.close()


class _Passing:
    """One connection."""

    def __init__(self, url: OneUrl, port: int, near: asyncio.StreamReader) -> None:
        self._url = url
        self._port = port
        self._near = near
        self._asked: Kind | None = None
        self._left = 0
        """Bytes of the request still to come."""
        self._answered = b""
        """The end of the answer so far."""
        self._spared = self._dies = False

    async def both(
        self, on: asyncio.StreamWriter, far: asyncio.StreamReader, back: asyncio.StreamWriter
    ) -> None:
        async def answer() -> None:
            await self._pass_on(far, back, self._answer)
            if self._dies and not self._answered.endswith(END):
                self._broken()

        await asyncio.gather(self._pass_on(self._near, on, self._request), answer())

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        look: Callable[[bytes], Awaitable[None]],
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
                await look(piece)
        writer.close()

    async def _request(self, piece: bytes) -> None:
        for kind, path in PATHS.items():
            if path in piece:
                self._asked, self._answered, self._dies = kind, b"", False
                self._spared = self._url.kill_at == kind and self._url.spared > 0
                self._url.spared -= self._spared
                self._url.behind.about_to_work()
                head, _, body = piece[piece.index(path) :].partition(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                self._left = int(length[1]) - len(body) if length else 0
                break
        else:
            self._left -= len(piece)
        if self._asked == "stt" and self._left <= 0:
            await self._maybe_kill("stt")

    async def _answer(self, piece: bytes) -> None:
        self._answered = (self._answered + piece)[-len(END) :]
        if self._dies and piece.startswith(b"HTTP/"):
            self._dies = False
            if b" 200 " not in piece[:16]:
                self._broken()
        body = piece.partition(b"\r\n\r\n")[2] if piece.startswith(b"HTTP/") else piece
        if self._asked == "tts" and body:
            await self._maybe_kill("tts")

    def _broken(self) -> None:
        assert self._asked
        self._url.broken[self._asked] += not self._near.at_eof()

    async def _maybe_kill(self, kind: Kind) -> None:
        if self._url.kill_at == kind and not self._spared:
            self._url.kill_at, self._dies = None, True
            self._url.killed.append(kind)
            await self._url.behind.kill(self._port)


# --- turns -------------------------------------------------------------------------------------


@dataclass
class Answer:
    status: str
    said: str
    heard: str
    """Transcript of the question."""
    speech_s: float
    first_ms: float
    gaps_ms: float


async def answered(socket: ClientConnection, kind: Kind) -> Answer:
    """Ask, aloud for a recogniser, and take the whole answer."""
    sending = asyncio.create_task(ask_aloud(socket) if kind == "stt" else ask(socket))
    said, heard, player, began = "", "", Player(), time.monotonic()
    try:
        async with asyncio.timeout(TURN_S):
            async for text in socket:
                event = json.loads(text)
                match event["type"]:
                    case "response.output_audio.delta":
                        player.take(len(event["delta"]) * 3 / 4 / 2 / RATE)
                    case "response.output_audio_transcript.delta":
                        said += event["delta"]
                    case "conversation.item.input_audio_transcription.completed":
                        heard = event["transcript"]
                    case "response.done":
                        first_ms = 1000 * ((player.first_at or began) - began)
                        status = event["response"]["status"]
                        gaps_ms = sum(player.gaps_ms)
                        return Answer(status, said, heard, player.heard_s, first_ms, gaps_ms)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    raise AssertionError("the server closed the connection")


async def ask(socket: ClientConnection) -> None:
    content = [{"type": "input_text", "text": "Tell me a story."}]
    item = {"type": "message", "role": "user", "content": content}
    await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
    await socket.send(json.dumps({"type": "response.create"}))


async def ask_aloud(socket: ClientConnection) -> None:
    """The question, then silence, in real time."""
    due = time.monotonic()
    for frame in chain(question().frames, repeat(SILENT_FRAME)):
        await socket.send(frame)
        due += FRAME_S
        await asyncio.sleep(due - time.monotonic())


def is_whole(answer: Answer, usual: Answer, kind: Kind) -> bool:
    right = kind == "tts" or word_errors(recording("goforward").text, answer.heard).errors <= 1
    return (
        answer.status == "completed"
        and "Sorry" not in answer.said
        and answer.speech_s > WHOLE * usual.speech_s
        and right
    )


async def measure(url: OneUrl, voice_url: str, kind: Kind, kills: int) -> dict[str, Any]:
    connecting = connect(voice_url, additional_headers=HEADERS, proxy=None)
    async with connecting as socket:
        session = {
            "type": "realtime",
            "audio": {"input": {"transcription": {"model": "whisper-1"}}},
        }
        await socket.send(json.dumps({"type": "session.update", "session": session}))
        usual = await answered(socket, kind)
    ok, tries, bad = 0, 0, []
    while url.broken[kind] < kills and tries < 2 * kills:
        tries += 1
        broken = url.broken[kind]
        async with connecting as socket:  # each in a conversation of its own
            await socket.send(json.dumps({"type": "session.update", "session": session}))
            url.kill_at, url.spared = kind, tries % 2 if kind == "tts" else 0
            answer = await answered(socket, kind)
        url.kill_at = None
        await url.behind.mend()
        if url.broken[kind] > broken:
            whole = is_whole(answer, usual, kind)
            ok += whole
            bad += [] if whole else [vars(answer)]
    killed = url.killed.count(kind)
    return {
        "killed": killed,
        "broken": url.broken[kind],
        "ok": ok,
        "usual": vars(usual),
        "bad": bad,
    }


async def play(given: argparse.Namespace) -> dict[str, Any]:
    behind: Behind = RayServe(int(given.ray.rpartition(":")[2])) if given.ray else Programs()
    prefix: dict[Kind, str] = (
        {"stt": "/stt", "tts": "/tts"} if given.ray else {"stt": "", "tts": ""}
    )
    environ = fleet_environ()
    results: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        brain = FarServer("llama-server", words=STORY)
        await stack.enter_async_context(serving(brain))
        url = OneUrl(await stack.enter_async_context(behind), prefix)
        await stack.enter_async_context(url.open())
        sets = (
            *(f"llm.url={brain.url}", f"stt.url={url.url('stt')}", f"tts.url={url.url('tts')}"),
            *("turn.engine=silence", "server.conversations_dir=null"),
        )
        voice = Voice(free_port(), sets, environ)
        await voice.start()
        stack.push_async_callback(voice.end, signal.SIGKILL)
        for kind in given.only:
            there = f"ws://127.0.0.1:{voice.port}/v1/realtime"
            results[kind] = await measure(url, there, kind, given.kills)
    return results


def main() -> None:
    parser = arguments(__doc__, "benchmarks.fleet.replicas")
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--only", nargs=1, choices=PATHS, default=tuple(PATHS), help="of this kind")
    parser.add_argument("--ray", metavar="URL", help="of Ray Serve's proxy")
    given = parser.parse_args()
    before = load()
    finish(asyncio.run(play(given)), given.out, before)


if __name__ == "__main__":
    main()
