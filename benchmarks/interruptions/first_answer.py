"""Interrupting the first answer of a session: over the WebSocket, in real time, without an echo.

    python -m benchmarks.interruptions.first_answer CORPUS [--part tuning|frozen] [-n 60]
        [--seed N] [--out FILE]

Two servers run side by side, one as shipped and one with ``echo.cancel: never``, and take turns.
Each session asks for one answer and speaks over it, 1.1 to 2 s after its first sample, with a
question or a command of ``benchmarks.interruptions.scenes``. Clients take turns, too: 24 and 16 kHz
PCM, G.711, and the openai package. Everything runs as shipped except the language
model, which is scripted (``benchmarks.harness.scripted_engines``) so that each answer is long
enough.

- **silent**: from the onset until the client has played everything it received, or was told
  (``speech_started``) to drop the rest. Its output adds no latency.
- **told**: from the onset until ``speech_started``.
- **missed**: the answer was not cancelled.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openai
import websockets.asyncio.client

from app.cli.measuring import spawned_server
from app.talk.realtime_client import room_tone
from benchmarks.harness.heard_speech import Voices
from benchmarks.harness.program import arguments, finish, load, weights
from benchmarks.harness.scripted_engines import NAME, installed
from benchmarks.interruptions.scenes import scenes
from pipeline.audio import LISTEN_RATE, Pcm, Resampler, pcm_to_bytes
from pipeline.realtime.g711 import encode
from pipeline.speaking.playback import PlaybackClock

SPEAKS_AFTER_S = (1.1, 2.0)
MISSED_AFTER_S = 3.0
CHUNK_MS = 20
SENTENCES = 4
"""Words of an answer: about 12 s. Speech over its last half second is the next turn."""
PERCENTILES = (50, 95, 99)
SETS = {"default": [], "never": ["--set", "echo.cancel=never"]}

Json = dict[str, Any]


@dataclass(frozen=True)
class Dialect:
    """How one kind of client speaks. ``seconds_per_byte``: of audio, both ways."""

    name: str
    rate: int
    session: Json
    encode: Callable[[Pcm], bytes] = pcm_to_bytes
    bytes_per_sample: int = 2
    package: bool = False

    @property
    def seconds_per_byte(self) -> float:
        return 1 / (self.rate * self.bytes_per_sample)


def _ga(**format: Any) -> Json:
    sides = {"input": {"format": format}, "output": {"format": format}}
    return {"type": "realtime", "audio": sides}


DIALECTS = (
    Dialect("pcm 24k", 24_000, _ga(type="audio/pcm", rate=24_000)),
    Dialect("pcm 16k", 16_000, _ga(type="audio/pcm", rate=16_000)),
    Dialect("g711", 8_000, _ga(type="audio/pcmu"), lambda pcm: encode(pcm, "pcmu"), 1),
    Dialect("openai package", 24_000, _ga(type="audio/pcm", rate=24_000), package=True),
)


@dataclass(frozen=True, slots=True)
class Interruption:
    """Times in ms from the onset; ``None``: it did not happen."""

    server: str
    client: str
    said: str
    silent_ms: float | None
    told_ms: float | None
    missed: bool
    load: float


# --- a client ----------------------------------------------------------------------------------

Send = Callable[[Json], Awaitable[None]]
Receive = Callable[[], Awaitable[Json]]


@asynccontextmanager
async def connected(dialect: Dialect, url: str) -> AsyncIterator[tuple[Send, Receive]]:
    if dialect.package:
        base = url.removesuffix("/realtime").replace("ws:", "http:")
        async with (
            openai.AsyncOpenAI(base_url=base, api_key="unused") as client,
            client.realtime.connect(model="reachy-voice") as connection,
        ):

            async def receive_event() -> Json:
                return (await connection.recv()).to_dict()

            async def send_event(message: Json) -> None:
                await connection.send(message)  # type: ignore[arg-type]

            yield send_event, receive_event
        return
    async with websockets.asyncio.client.connect(url, max_size=None, proxy=None) as socket:

        async def receive() -> Json:
            message: Json = json.loads(await socket.recv())
            return message

        async def send(message: Json) -> None:
            await socket.send(json.dumps(message))

        yield send, receive


class Session:
    """One client that asks for one answer and interrupts it."""

    def __init__(self, dialect: Dialect, send: Send, receive: Receive, said: Pcm) -> None:
        """``said``: 16 kHz, int16; speech begins with its first sample."""
        resampler = Resampler(LISTEN_RATE, dialect.rate)
        self._dialect = dialect
        self._send, self._receive = send, receive
        self._said = np.concatenate((resampler.feed(said), resampler.flush()))
        self._player = PlaybackClock()
        self._first_audio = asyncio.Event()
        self.onset_at = 0.0
        self.silent_at: float | None = None
        self.told_at: float | None = None
        self.missed = True

    async def run(self, speaks_after_s: float) -> None:
        await self._send({"type": "session.update", "session": self._dialect.session})
        await self._send({"type": "response.create"})
        async with asyncio.TaskGroup() as group:
            microphone = group.create_task(self._microphone(speaks_after_s))
            await self._listen()
            microphone.cancel()

    async def _microphone(self, speaks_after_s: float) -> None:
        """Room tone; from ``speaks_after_s`` after the first audio on, the speech."""
        loop, rate = asyncio.get_running_loop(), self._dialect.rate
        size = rate * CHUNK_MS // 1000
        room = itertools.cycle(room_tone(rate).reshape(-1, size))
        began, sent, said = loop.time(), 0, self._said
        speaks_at = float("inf")
        while True:
            if speaks_at == float("inf") and self._first_audio.is_set():
                speaks_at = loop.time() + speaks_after_s
            chunk = next(room)
            if began + sent / rate >= speaks_at and len(said):
                self.onset_at = self.onset_at or began + sent / rate
                chunk, said = chunk + np.pad(said[:size], (0, size - len(said[:size]))), said[size:]
            sent += size
            await asyncio.sleep(began + sent / rate - loop.time())
            audio = base64.b64encode(self._dialect.encode(chunk)).decode()
            await self._send({"type": "input_audio_buffer.append", "audio": audio})

    async def _listen(self) -> None:
        """Wait until the answer has been cancelled, or the speech had no effect."""
        now = asyncio.get_running_loop().time
        while not self.onset_at or now() < self.onset_at + MISSED_AFTER_S:
            try:
                async with asyncio.timeout(MISSED_AFTER_S):
                    event = await self._receive()
            except TimeoutError:
                break
            match event["type"]:
                case "response.output_audio.delta" | "response.audio.delta":
                    encoded = len(base64.b64decode(event["delta"]))
                    self._player.send(encoded * self._dialect.seconds_per_byte, now())
                    self._first_audio.set()
                case "input_audio_buffer.speech_started":
                    self.told_at = now()
                    self.silent_at = min(now(), self._player.plays_until)
                case "response.done":
                    self.missed = event["response"]["status"] != "cancelled"
                    return
                case "error":
                    raise RuntimeError(event["error"]["message"])


# --- the servers -------------------------------------------------------------------------------


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[dict[str, str]]:
    """Both servers; their addresses."""
    installed(directory / "plugin")
    tree = {"extends": "default", "llm": {"engine": NAME, "sentences": SENTENCES}}
    (directory / "long.yaml").write_text(json.dumps(tree))  # which is YAML, too
    config = ("--config", str(directory / "long.yaml"))
    async with AsyncExitStack() as stack:
        yield {
            name: (await stack.enter_async_context(spawned_server((*config, *sets)))).url
            for name, sets in SETS.items()
        }


async def measure(said: Sequence[tuple[str, Pcm]], seed: int) -> list[Interruption]:
    rng, found = np.random.default_rng(seed), list[Interruption]()
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder)) as urls:
            for number, (text, pcm) in enumerate(said):
                dialect = DIALECTS[number % len(DIALECTS)]
                after_s = float(rng.uniform(*SPEAKS_AFTER_S))
                for name in sorted(urls, reverse=bool(number % 2)):
                    async with connected(dialect, urls[name]) as (send, receive):
                        session = Session(dialect, send, receive, pcm)
                        await session.run(after_s)
                    found.append(_interruption(name, dialect, text, session))
    return found


def _interruption(server: str, dialect: Dialect, said: str, session: Session) -> Interruption:
    def since(at: float | None) -> float | None:
        return None if at is None else round((at - session.onset_at) * 1000, 1)

    missed = session.missed or session.told_at is None
    silent, told = since(session.silent_at), since(session.told_at)
    return Interruption(server, dialect.name, said, silent, told, missed, load())


# --- figures -----------------------------------------------------------------------------------


def figures(found: Sequence[Interruption]) -> Json:
    report: Json = {"load": float(np.median([each.load for each in found]))}
    for server in SETS:
        of = [each for each in found if each.server == server]
        report[server] = {"n": len(of), "missed": sum(each.missed for each in of)}
        for name in ("silent_ms", "told_ms"):
            times = [t for each in of if (t := getattr(each, name)) is not None]
            report[server][name] = [round(float(np.percentile(times, p))) for p in PERCENTILES]
    return report


def main() -> None:
    parser = arguments(__doc__, "benchmarks.interruptions.first_answer")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--part", choices=("tuning", "frozen"), default="tuning")
    parser.add_argument("-n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    before = load()
    voices = Voices(weights("piper-joe"), "Hello.")
    meant = [
        each for each in scenes(given.part, given.corpus, voices, given.seed) if each.interrupts
    ]
    order = np.random.default_rng(given.seed).permutation(len(meant))
    chosen = [meant[int(order[number % len(meant)])] for number in range(given.n)]
    said = [(each.said, each.pcm[each.onset : each.end]) for each in chosen]
    found = asyncio.run(measure(said, given.seed))
    report = {**figures(found), "interruptions": [asdict(each) for each in found]}
    finish(report, given.out, before, details="interruptions")


if __name__ == "__main__":
    main()
