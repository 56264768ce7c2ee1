"""First audio of a conversation while plain requests run, against the same turns without them.

    python -m benchmarks.latency.beside [--turns 200] [--people FOLDER] [--seed N] [--out FILE]

One server as shipped, in real time. Each take is said twice, up to the first sound of the answer:
alone, and beside two clients that send requests nonstop, for a completion of 2,000 tokens and for
the transcript of a minute of speech. Which comes first alternates. ``moved``: by how much the
percentiles differ, with intervals by recording. ``served``: how many plain requests were answered
meanwhile.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile

from app.cli.measuring import VOICE_TO_VOICE, spawned_server
from app.talk.realtime_client import RATE
from benchmarks.harness.program import arguments, finish, load
from benchmarks.harness.statistics import Bootstrap, interval
from benchmarks.latency.__main__ import Row, play
from benchmarks.latency.clips import Take, labelled_recordings, perform_all, recordings_of_people

ARMS = ("alone", "beside")
SPEECH_S, TOKENS = 60, 2000
PERCENTS = (50, 95)
SETTLE_S = 1.0
SAME_ANSWERS = ("--set", "conversation.sampling.seed=1")
"""So that both arms differ by chance as little as they can."""


async def measure(takes: Sequence[Take], speech: bytes) -> tuple[dict[str, list[Row]], int]:
    """Rows by arm, and how many plain requests were answered."""
    rows: dict[str, list[Row]] = {arm: [] for arm in ARMS}
    served = 0

    def count() -> None:
        nonlocal served
        served += 1

    async def say(take: Take) -> list[Row]:
        return await play(server.url, [take], lambda: None, to_end=False)

    async with spawned_server(SAME_ANSWERS) as server:
        await say(takes[0])
        for number, take in enumerate(takes):
            for arm in sorted(ARMS, reverse=bool(number % 2)):
                if arm == "alone":
                    rows[arm] += await say(take)
                    continue
                async with asking(server.url, speech, count):
                    rows[arm] += await say(take)
    return rows, served


@asynccontextmanager
async def asking(url: str, speech: bytes, count: Callable[[], None]) -> AsyncIterator[None]:
    """Run both clients until the end of the block."""
    api = url.replace("ws:", "http:").removesuffix("/realtime")
    words = [{"role": "user", "content": "Tell me a very long story about a robot."}]
    file = {"file": ("speech.wav", speech)}

    async def on_and_on(ask: Callable[[], Awaitable[httpx.Response]]) -> None:
        while True:
            (await ask()).raise_for_status()
            count()

    async with httpx.AsyncClient(base_url=api, trust_env=False, timeout=None) as client:
        completion = {"messages": words, "max_tokens": TOKENS}
        asks = (
            lambda: client.post("/chat/completions", json=completion),
            lambda: client.post("/audio/transcriptions", files=file),
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(on_and_on(ask)) for ask in asks]
            await asyncio.sleep(SETTLE_S)
            yield
            for task in tasks:
                task.cancel()


def figures(rows: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Figures of the takes that were answered in both arms."""
    both = zip(*(rows[arm] for arm in ARMS), strict=True)
    pairs = [pair for pair in both if None not in [row[VOICE_TO_VOICE] for row in pair]]
    sources = [alone["group"] for alone, _ in pairs]
    bootstrap, report = Bootstrap(sources), {}
    for percent in PERCENTS:
        alone, beside = (
            bootstrap.percentiles([pair[arm][VOICE_TO_VOICE] for pair in pairs], percent, sources)
            for arm in range(len(ARMS))
        )
        difference = interval(beside - alone, len(pairs), len(set(sources)))
        report[f"p{percent}"] = {
            "alone": round(alone[0]),
            "beside": round(beside[0]),
            "moved": asdict(difference),
        }
    return report


def _minute(takes: Sequence[Take]) -> bytes:
    """A minute of the takes' speech as a WAV file."""
    sound = np.concatenate([take.pcm for take in takes])
    sound = np.tile(sound, 1 + SPEECH_S * RATE // len(sound))[: SPEECH_S * RATE]
    file = io.BytesIO()
    soundfile.write(file, sound, RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


def main() -> None:
    parser = arguments(__doc__, "benchmarks.latency.beside")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--people", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    before = load()
    recordings = labelled_recordings(args.people) if args.people else recordings_of_people()
    takes = perform_all(list(recordings), args.turns, args.seed)
    rows, served = asyncio.run(measure(takes, _minute(takes)))
    data = {**figures(rows), "served": served, "turns": rows}
    finish(data, args.out, before, details="turns")


if __name__ == "__main__":
    main()
