"""How many talking clients one core carries: orchestration alone.

    python -m benchmarks.fleet.one_core [--steps 1 6 12 18 22 25 28] [--seconds 60] [--out FILE]

One reachy-voice process with ``examples/fleet/fleet.yaml`` has one core to itself; clients and the
engines (80, 100 and 120 ms, as in ``benchmarks.fleet``) have the others. More clients come at each
step. A step's figures are of its turns alone: first sound, gaps in it, processor time per client
second, and how many clients the process has refused because it was too busy
(``app.server.load``). It ends before the last step if the P95 has grown by more than ``--limit``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.fleet.processes import Voice, engines, fleet_environ, played_sets
from benchmarks.fleet.talkers import Talker, percentiles, talkers
from benchmarks.harness.program import arguments, finish, load
from tests.support.far_server import free_port

SETTLE_S = 5.0
"""After clients have come."""
BETWEEN_CLIENTS_S = 0.5


@dataclass
class Seen:
    """What has happened until now."""

    firsts: list[int]
    gaps: list[int]
    turns: int
    lost: int
    refused: int
    connected_s: float
    cpu_s: float

    @classmethod
    def of(cls, robots: list[Talker], voice: Voice) -> Seen:
        voice.look()
        for robot in robots:
            robot.look()
        counts = [robot.counts for robot in robots]
        return cls(
            [len(robot.firsts_ms) for robot in robots],
            [len(robot.gaps_ms) for robot in robots],
            sum(each["turns"] for each in counts),
            sum(each["lost"] for each in counts),
            sum(n for each in counts for why, n in each.items() if why.startswith("away")),
            sum(robot.connected_s for robot in robots),
            voice.cpu_s,
        )


async def step(robots: list[Talker], voice: Voice, seconds: float) -> dict[str, Any]:
    await asyncio.sleep(SETTLE_S)
    before = Seen.of(robots, voice)
    await asyncio.sleep(seconds)
    after = Seen.of(robots, voice)
    firsts = [ms for r, n in zip(robots, before.firsts, strict=True) for ms in r.firsts_ms[n:]]
    gaps = [ms for r, n in zip(robots, before.gaps, strict=True) for ms in r.gaps_ms[n:]]
    client_s = after.connected_s - before.connected_s
    return {
        "clients": len(robots),
        "connected": round(client_s / seconds, 1),
        "refused": after.refused - before.refused,
        "turns": after.turns - before.turns,
        "lost": after.lost - before.lost,
        "first_audio_ms": percentiles(firsts, 50, 95),
        "gaps": {"n": len(gaps), "ms": round(sum(gaps))},
        "core": round((after.cpu_s - before.cpu_s) / seconds, 3),
        "cpu_s_per_client_s": round((after.cpu_s - before.cpu_s) / client_s, 4),
    }


async def play(given: argparse.Namespace) -> dict[str, Any]:
    mine, *others = sorted(os.sched_getaffinity(0))
    if not others:
        raise SystemExit("This needs two cores: one for the server, one for its clients.")
    psutil.Process().cpu_affinity(others)  # inherited by the engines' program
    environ, steps = fleet_environ(), []
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        urls = await stack.enter_async_context(engines())
        sets = [*urls, *played_sets(folder), f"server.max_sessions={max(given.steps)}"]
        voice = Voice(free_port(), sets, environ, core=mine)
        await voice.start()
        stack.push_async_callback(voice.end, signal.SIGKILL)
        robots: list[Talker] = []
        until = time.monotonic() + len(given.steps) * (given.seconds + 60)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        living: list[asyncio.Task[None]] = []
        stack.callback(_cancel, living)
        for count in given.steps:
            url = f"ws://127.0.0.1:{voice.port}/v1/realtime"
            more = talkers(url, range(len(robots), count), given.silence)
            robots += more
            for robot in more:
                living.append(group.create_task(robot.live(until)))
                await asyncio.sleep(BETWEEN_CLIENTS_S)
            steps.append(await step(robots, voice, given.seconds))
            first_ms, now_ms = (each["first_audio_ms"]["p95"] for each in (steps[0], steps[-1]))
            if now_ms is None or now_ms - first_ms > given.limit:
                break
    return {"seconds": given.seconds, "steps": steps}


def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


def main() -> None:
    parser = arguments(__doc__, "benchmarks.fleet.one_core")
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 6, 12, 18, 22, 25, 28])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each step")
    parser.add_argument("--silence", type=float, default=0.6, metavar="S", help="before a question")
    parser.add_argument("--limit", type=float, default=500.0, metavar="MS")
    given = parser.parse_args()
    before = load()
    finish(asyncio.run(play(given)), given.out, before)


if __name__ == "__main__":
    main()
