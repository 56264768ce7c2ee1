"""A fleet under load: what a client costs, and what is lost when a process is killed or drained.

    python -m benchmarks.fleet --minutes 30 --clients 30 --kill --drain [--out FILE]
    python -m benchmarks.fleet --processes 1 --clients 12 --minutes 2    (without a balancer)

Starts reachy-voice processes with ``examples/fleet/fleet.yaml``, HAProxy with
``examples/fleet/haproxy.cfg`` (if there are two or more processes), and one server for the three
engines that answers after 80 (STT), 100 (LLM) and 120 ms (TTS). Each client has an address of its
own (127.0.1.N), sends a person's recording and silence in real time, and asks again ``--silence``
seconds after the answer has been played. After a third of the time one process is killed and
started again; after two thirds another one gets SIGTERM.

A turn is lost if a word of it was said and its answer does not end as ``completed``.
``cpu_s_per_client_s`` is the processor time of the reachy-voice processes per second of a connected
client. It does not depend on what else runs on the machine; latencies do.

Beside it: ``benchmarks.fleet.one_core`` (how many clients one core carries) and
``benchmarks.fleet.replicas`` (recognisers and voices that die in mid-sentence).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.fleet.processes import Voice, engines, fleet_environ, played_sets
from benchmarks.fleet.talkers import percentiles, talkers
from benchmarks.harness.program import arguments, finish, load
from tests.support.far_server import FarServer, free_port, serving
from tests.support.haproxy import behind_haproxy

DELAYS_S = {"stt": 0.08, "llm": 0.1, "tts": 0.12}
BETWEEN_CLIENTS_S = 0.1


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
    environ = fleet_environ()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        urls = given.engine or await stack.enter_async_context(engines())
        sets = [
            *urls,
            *played_sets(folder),
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
            front = await stack.enter_async_context(
                behind_haproxy(ports, environ["REACHY_VOICE_KEY"])
            )
        robots = talkers(f"ws://127.0.0.1:{front}/v1/realtime", range(given.clients), given.silence)
        until, own_s = time.monotonic() + 60 * given.minutes, time.process_time()
        lost_early = 0
        async with asyncio.TaskGroup() as group:
            for robot in robots:
                group.create_task(robot.live(until))
                await asyncio.sleep(BETWEEN_CLIENTS_S)
            if given.kill:
                await asyncio.sleep(60 * given.minutes / 3)
                await voices[0].end(signal.SIGKILL)
                await voices[0].start()
            if given.drain:
                await asyncio.sleep(60 * given.minutes / 3)
                lost_early = sum(robot.counts["lost"] for robot in robots)
                await voices[1].end(signal.SIGTERM)
                await voices[1].start()
            await asyncio.sleep(max(0.0, until - time.monotonic() - 1))
            for voice in voices:
                voice.look()
            for robot in robots:
                robot.look()
            own_s = time.process_time() - own_s
    counts = sum((robot.counts for robot in robots), Counter[str]())
    gaps_ms = [ms for robot in robots for ms in robot.gaps_ms]
    whole = {
        "clients": given.clients,
        "processes": given.processes,
        "minutes": given.minutes,
        "counts": dict(sorted(counts.items())),
        "lost_before_the_drain": lost_early if given.drain else None,
        "most_lost_by_one_client": max(robot.counts["lost"] for robot in robots),
        "turns_of_each": percentiles(
            [float(robot.counts["turns"]) for robot in robots], 0, 50, 100
        ),
        "first_audio_ms": percentiles([ms for r in robots for ms in r.firsts_ms], 50, 95),
        "gaps": {"n": len(gaps_ms), "ms": round(sum(gaps_ms))},
        "cores_of_the_clients": round(own_s / 60 / given.minutes, 2),
    }
    if not (given.kill or given.drain):  # a process that was started again counts from its start
        cpu_s = sum(v.cpu_s - s for v, s in zip(voices, begun_s, strict=True))
        more_mb = sum(v.rss_mb - mb for v, mb in zip(voices, before_mb, strict=True))
        connected_s = sum(robot.connected_s for robot in robots)
        whole["cpu_s_per_client_s"] = round(cpu_s / connected_s, 4)
        whole["turns_per_client_minute"] = round(60 * counts["turns"] / connected_s, 1)
        whole["mb_per_client"] = round(more_mb / given.clients, 1)
        whole["mb_before"] = round(before_mb[0])
    return whole


def main() -> None:
    parser = arguments(__doc__, "benchmarks.fleet")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--silence", type=float, default=0.6, metavar="S", help="between answer and question"
    )
    parser.add_argument("--most", type=int, default=20, help="server.max_sessions of each")
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
