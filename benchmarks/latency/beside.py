"""First audio of a conversation while plain requests run, against the same turns without them.

    python -m benchmarks.latency.beside [--turns 200] [--people FOLDER] [--seed N] [--out FILE]

One server as shipped, in real time. Each take is said twice, alone and beside two clients that ask
without a pause: for a completion of 2,000 tokens, and for the transcript of a minute of speech.
Which comes first alternates. ``moved``: by how much the percentiles differ, with intervals by
recording. ``served``: how many plain requests were answered meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile

from app.cli.measuring import VOICE_TO_VOICE, spawned_server
from benchmarks.harness.program import arguments, finish, load
from benchmarks.latency.__main__ import Row, play
from benchmarks.latency.clips import Take, labelled_recordings, recordings_of_people, takes

ARMS = ("alone", "beside")
SPEECH_S, TOKENS = 60, 2000
PERCENTS = (50, 95)
SETTLE_S = 1.0
RESAMPLES = 2000


async def measure(performed: Sequence[Take], speech: bytes) -> tuple[dict[str, list[Row]], int]:
    """Rows by arm, and how many plain requests were answered."""
    rows: dict[str, list[Row]] = {arm: [] for arm in ARMS}
    served = 0

    def count() -> None:
        nonlocal served
        served += 1

    async with spawned_server(()) as server:
        await play(server.url, performed[:1], lambda: None, first=True)
        for number, take in enumerate(performed):
            for arm in sorted(ARMS, reverse=bool(number % 2)):
                if arm == "alone":
                    rows[arm] += await play(server.url, [take], lambda: None)
                    continue
                async with asking(server.url, speech, count):
                    rows[arm] += await play(server.url, [take], lambda: None)
    return rows, served


@asynccontextmanager
async def asking(url: str, speech: bytes, count: Callable[[], None]) -> AsyncIterator[None]:
    """Both clients, until the end of the block."""
    api = url.replace("ws:", "http:").removesuffix("/realtime")
    words = [{"role": "user", "content": "Tell me a very long story about a robot."}]
    file = {"file": ("speech.wav", speech)}

    async def on_and_on(ask: Callable[[], Awaitable[httpx.Response]]) -> None:
        while True:
            (await ask()).raise_for_status()
            count()

    async with httpx.AsyncClient(base_url=api, trust_env=False, timeout=None) as client:
        wanted = {"messages": words, "max_tokens": TOKENS}
        asks = (
            lambda: client.post("/chat/completions", json=wanted),
            lambda: client.post("/audio/transcriptions", files=file),
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(on_and_on(ask)) for ask in asks]
            await asyncio.sleep(SETTLE_S)
            yield
            for task in tasks:
                task.cancel()


def figures(rows: dict[str, list[Row]], seed: int) -> dict[str, Any]:
    pairs = [
        (row["group"], row[VOICE_TO_VOICE], other[VOICE_TO_VOICE])
        for row, other in zip(*(rows[arm] for arm in ARMS), strict=True)
        if None not in (row[VOICE_TO_VOICE], other[VOICE_TO_VOICE])
    ]
    groups = sorted({group for group, *_ in pairs})
    by_group = [np.array([pair[1:] for pair in pairs if pair[0] == group]) for group in groups]
    rng, drawn = np.random.default_rng(seed), []
    for _ in range(RESAMPLES):
        chosen = rng.integers(0, len(by_group), len(by_group))
        sample = np.concatenate([by_group[at] for at in chosen])
        drawn.append(np.diff(np.percentile(sample, PERCENTS, axis=0), axis=1)[:, 0])
    whole = np.percentile(np.array([pair[1:] for pair in pairs]), PERCENTS, axis=0)
    bounds = np.percentile(np.array(drawn), (2.5, 97.5), axis=0)
    return {
        "n": len(pairs),
        **{
            f"p{percent}": {
                **dict(zip(ARMS, np.round(whole[at]).tolist(), strict=True)),
                "moved": round(float(whole[at][1] - whole[at][0])),
                "interval": np.round(bounds[:, at]).tolist(),
            }
            for at, percent in enumerate(PERCENTS)
        },
    }


def _minute(performed: Sequence[Take]) -> bytes:
    """A minute of the takes' speech as a WAV file, at the rate of the engines."""
    rate = 24_000  # of a take
    sound = np.concatenate([take.pcm for take in performed])
    sound = np.tile(sound, 1 + SPEECH_S * rate // len(sound))[: SPEECH_S * rate]
    file = io.BytesIO()
    soundfile.write(file, sound, rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


def main() -> None:
    parser: argparse.ArgumentParser = arguments(__doc__, "benchmarks.latency.beside")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--people", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    before = load()
    found = labelled_recordings(given.people) if given.people else recordings_of_people()
    performed = takes(list(found), given.turns, given.seed)
    rows, served = asyncio.run(measure(performed, _minute(performed)))
    data = {**figures(rows, given.seed), "served": served, "turns": rows}
    finish(data, given.out, before, details="turns")


if __name__ == "__main__":
    main()
