"""Interrupting the first answer of a session: over the WebSocket, in real time, without an echo.

    python -m benchmarks.interruptions.first_answer CORPUS [--part tuning|frozen] [-n 60]
        [--seed N] [--out FILE]

Two servers run side by side, one as shipped and one with ``echo.cancel: never``, and take turns:
this shows whether looking for an echo costs anything where there is none. Each session asks for
one answer and speaks over it, 1.1 to 2 s after its first sample, with a question or a command of
``benchmarks.interruptions.scenes``. Everything runs as shipped except the language model, which is
scripted (``benchmarks.harness.scripted_engines``) so that each answer is long enough.

- **silent**: from the onset until the client has played everything it received, or was told
  (``speech_started``) to drop the rest. Its output adds no latency.
- **told**: from the onset until ``speech_started``.
- **missed**: the answer was not cancelled.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from app.cli.measuring import spawned_server
from app.talk.realtime_client import RATE, dial
from benchmarks.harness.heard_speech import Voices
from benchmarks.harness.program import arguments, finish, load, weights
from benchmarks.harness.robot import InterruptionTimes, RobotClient
from benchmarks.harness.scripted_engines import NAME, install
from benchmarks.interruptions.scenes import scenes
from pipeline.audio import LISTEN_RATE, Pcm, Resampler

SPEAKS_AFTER_S = (1.1, 2.0)
SENTENCES = 4
"""Sentences in an answer, about 12 s. Speech over its last half second would be the next turn."""
PERCENTILES = (50, 95, 99)
SETS: Mapping[str, Sequence[str]] = {"default": (), "never": ("--set", "echo.cancel=never")}


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[dict[str, str]]:
    """Run both servers; yields their addresses by name."""
    install(directory / "plugin")
    tree = {"extends": "default", "llm": {"engine": NAME, "sentences": SENTENCES}}
    (directory / "long.yaml").write_text(json.dumps(tree))  # which is YAML, too
    config = ("--config", str(directory / "long.yaml"))
    async with AsyncExitStack() as stack:
        yield {
            name: (await stack.enter_async_context(spawned_server((*config, *sets)))).url
            for name, sets in SETS.items()
        }


async def measure(clips: Sequence[Pcm], seed: int) -> list[tuple[str, InterruptionTimes]]:
    """The times of all interruptions, each with the name of its server."""
    rng, times = np.random.default_rng(seed), []
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder)) as urls:
            for number, pcm in enumerate(clips):
                after_s = float(rng.uniform(*SPEAKS_AFTER_S))
                for name in sorted(urls, reverse=bool(number % 2)):
                    async with dial(urls[name]) as socket:
                        robot = RobotClient(socket)
                        await robot.configure()
                        times.append((name, await robot.interrupt(pcm, 0.0, after_s)))
    return times


def figures(results: Sequence[tuple[str, InterruptionTimes]]) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for server in SETS:
        of = [each for name, each in results if name == server]
        moments = {
            "silent_ms": [each.silent_ms for each in of if not each.missed],
            "told_ms": [each.told_ms for each in of if each.told_ms is not None],
        }
        report[server] = {"n": len(of), "missed": sum(each.missed for each in of)}
        for name, ms in moments.items():
            report[server][name] = [round(float(np.percentile(ms, p))) for p in PERCENTILES if ms]
    return report


def main() -> None:
    parser = arguments(__doc__, "benchmarks.interruptions.first_answer")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--part", choices=("tuning", "frozen"), default="tuning")
    parser.add_argument("-n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    before = load()
    voices = Voices(weights("piper-joe"))
    interruptions = [
        each for each in scenes(args.part, args.corpus, voices, args.seed) if each.interrupts
    ]
    order = np.random.default_rng(args.seed).permutation(len(interruptions))
    clips = []
    for number in range(args.n):
        scene = interruptions[int(order[number % len(interruptions)])]
        resampler = Resampler(LISTEN_RATE, RATE)
        pcm = resampler.feed(scene.pcm[scene.onset : scene.end])
        clips.append(np.concatenate((pcm, resampler.flush())))
    times = asyncio.run(measure(clips, args.seed))
    rows = [{"server": name, **asdict(each)} for name, each in times]
    finish({**figures(times), "rows": rows}, args.out, before, details="rows")


if __name__ == "__main__":
    main()
