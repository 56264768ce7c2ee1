"""Clients that talk all the time: what one costs, how many fit, and what is lost at a failure.

    python -m benchmarks.fleet --clients 30 --minutes 30 --silence 5 --kill --drain
    python -m benchmarks.fleet --processes 1 --one-core --clients 1 6 12 18 20
    python -m benchmarks.fleet --processes 1 --config default --clients 3 3 3 3 3 3 --minutes 5

The first decides whether a fleet loses turns (HAProxy in front of two processes), the second how
many clients a process may let in (``server.max_sessions`` of ``examples/fleet/fleet.yaml``; to try
more, ``--set`` it), the third whether memory grows with the engines of a profile.

One program plays the engines of ``fleet.yaml``: it answers after 80 (STT), 100 (LLM) and 120 ms
(TTS). Each client has its own address (127.0.1.N), sends a person's recording and silence in real
time, and asks again ``--silence`` seconds after the answer has been played. ``--clients``: how many
talk in each step of ``--minutes``. In the last step ``--kill`` kills one process after a third of
the time and restarts it; ``--drain`` sends SIGTERM to another one after two thirds.

A turn is lost if a word of it was said and its answer does not end as ``completed``. Processor time
does not depend on what else runs on the machine; latencies do. Exit code 1: a turn was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import psutil

from benchmarks.fleet.processes import FLEET, ServerProcess, engines, fleet_environ
from benchmarks.fleet.talkers import FleetRobot, percentiles, talkers
from benchmarks.harness.program import arguments, finish, load
from tests.support.far_server import FarServer, free_port, serving
from tests.support.haproxy import behind_haproxy

DELAYS_S = {"stt": 0.08, "llm": 0.1, "tts": 0.12}
BETWEEN_CLIENTS_S = 0.1
SETTLE_S = 5.0
"""Wait after clients have connected."""


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


class LoadInterval:
    """Figures of the time since this object was made."""

    def __init__(self, robots: Sequence[FleetRobot], voices: Sequence[ServerProcess]) -> None:
        self._robots, self._voices = robots, voices
        self._began = time.monotonic()
        self._firsts = [len(robot.firsts_ms) for robot in robots]
        self._gaps = [len(robot.gaps_ms) for robot in robots]
        self._counts, self._connected_s, self._cpu_s = self._now()

    def _now(self) -> tuple[Counter[str], float, float]:
        for robot in self._robots:
            robot.look()
        for voice in self._voices:
            voice.look()
        counts = sum((robot.counts for robot in self._robots), Counter[str]())
        connected_s = sum(robot.connected_s for robot in self._robots)
        return counts, connected_s, sum(voice.cpu_s for voice in self._voices)

    def figures(self) -> dict[str, Any]:
        counts, connected_s, cpu_s = self._now()
        seconds = time.monotonic() - self._began
        client_s = connected_s - self._connected_s
        firsts, gaps = (zip(self._robots, n, strict=True) for n in (self._firsts, self._gaps))
        gaps_ms = [ms for robot, n in gaps for ms in robot.gaps_ms[n:]]
        cpu_s -= self._cpu_s
        return {
            "clients": len(self._robots),
            "connected": round(client_s / seconds, 1),
            "counts": dict(sorted((counts - self._counts).items())),
            "first_audio_ms": percentiles([m for r, n in firsts for m in r.firsts_ms[n:]], 50, 95),
            "gaps": {"n": len(gaps_ms), "ms": round(sum(gaps_ms))},
            # The count of a restarted process begins anew.
            "cores": round(cpu_s / seconds, 3) if cpu_s > 0 else None,
            "cpu_s_per_client_s": round(cpu_s / client_s, 4) if cpu_s > 0 else None,
            "rss_mb": [round(voice.rss_mb) for voice in self._voices],
        }


async def fail(voice: ServerProcess, number: signal.Signals, after_s: float) -> None:
    """Send the process a signal after some time, then restart it."""
    await asyncio.sleep(after_s)
    await voice.end(number)
    await voice.start()


async def play(args: argparse.Namespace) -> dict[str, Any]:
    environ, cores = fleet_environ(), sorted(os.sched_getaffinity(0))
    seconds, steps = 60 * args.minutes, []
    if args.one_core:
        if len(cores) < 2:
            raise SystemExit("--one-core needs two cores: one is the server's.")
        psutil.Process().cpu_affinity(cores[1:])  # inherited by the engines' program
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        sets = [*args.sets, "access.addresses=[127.0.1.0/24]", "access.loopback=false"]
        sets.append(f"server.conversations_dir={folder}")
        if args.config == str(FLEET):  # its voice is not speech, and its robots wait for silence
            sets += ["turn.engine=silence", "playback.watch_voice=false"]
            sets += await stack.enter_async_context(engines())
        core = cores[0] if args.one_core else None
        voices = [
            ServerProcess(free_port(), args.config, sets, environ, core)
            for _ in range(args.processes)
        ]
        for voice in voices:
            await voice.start()
            stack.push_async_callback(voice.end, signal.SIGKILL)
        front = voices[0].port
        if len(voices) > 1:
            ports = [voice.port for voice in voices]
            proxy = behind_haproxy(ports, environ["REACHY_VOICE_KEY"])
            front = await stack.enter_async_context(proxy)
        robots = talkers(f"ws://127.0.0.1:{front}/v1/realtime", max(args.clients), args.silence)
        tasks: list[asyncio.Task[None]] = []
        group = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(lambda: [task.cancel() for task in tasks])
        for number, count in enumerate(args.clients, 1):
            for robot in robots[len(tasks) : count]:
                tasks.append(group.create_task(robot.live()))
                await asyncio.sleep(BETWEEN_CLIENTS_S)
            await asyncio.sleep(SETTLE_S)
            step = LoadInterval(robots[: len(tasks)], voices)
            if number == len(args.clients):
                if args.kill:
                    tasks.append(group.create_task(fail(voices[0], signal.SIGKILL, seconds / 3)))
                if args.drain:
                    last = fail(voices[-1], signal.SIGTERM, 2 * seconds / 3)
                    tasks.append(group.create_task(last))
            await asyncio.sleep(seconds)
            steps.append(step.figures())
    return {"processes": args.processes, "minutes": args.minutes, "steps": steps}


def main() -> None:
    parser = arguments(__doc__, "benchmarks.fleet", settings=True)
    parser.set_defaults(config=str(FLEET))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--clients", type=int, nargs="+", default=[30], help="in each step")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each step")
    parser.add_argument("--silence", type=float, default=0.6, metavar="S", help="before a question")
    parser.add_argument("--one-core", action="store_true", help="one core for the process alone")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--drain", action="store_true")
    parser.add_argument("--engines", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engines:
        asyncio.run(play_engines())
        return
    before = load()
    result = asyncio.run(play(args))
    finish(result, args.out, before)
    sys.exit(any(step["counts"].get("lost") for step in result["steps"]))


if __name__ == "__main__":
    main()
