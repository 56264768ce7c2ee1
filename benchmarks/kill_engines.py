"""Kill engines in the middle of spoken turns: what becomes of the turn, the session, the engine.

    python -m benchmarks.kill_engines [-n KILLS] [--engines vad,turn,stt,llm,tts] [--signal KILL]
                                      [--servers N] [--seed N] [--out FILE]

The real server with the embedded engines, each in a process of its own, and one client in real time
over the WebSocket. Engines are killed in turns, each ``KILLS`` times: while the user speaks, at the
end of the speech, and while the answer is given. The turn after it tells whether all is well again.
``--signal STOP``: the process hangs instead. ``--servers``: so many share the engines and run at
once. In the end servers are ended by SIGTERM and one by SIGKILL, each in the middle of an
answer; whatever they leave is an orphan.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
import psutil

from app.cli.measuring import Spawned, spawned_server
from app.cli.models import open_cache
from app.compose import synthesize_alone
from app.settings.load import load_settings
from app.settings.model import Settings
from app.talk.realtime_client import RATE
from benchmarks.kill_talk import Talk, Turn, talking
from pipeline.audio import Pcm, Resampler
from pipeline.engines.registry import Kind

QUESTIONS = ("What can you do for me?", "Tell me a story.", "Where do you come from?")
KILLS_OF_A_SESSION = 6
"""With two turns each. A new session then; a model reads a long conversation anew after its end."""
READY_WITHIN_S = 120.0
LOOK_EVERY_S = 0.02
GONE_WITHIN_S = 10.0
SOON_S = 2.0
"""An answer that begins later than this after the speech has kept somebody waiting."""

Moment = Literal["listening", "ending", "replying"]
MOMENTS: tuple[Moment, ...] = ("listening", "ending", "replying")


@dataclass(slots=True)
class Kill:
    """One engine's end, and what it did to the turn in which it came and to the one after."""

    engine: str
    moment: Moment
    turn: Turn = field(default_factory=Turn)
    after: Turn = field(default_factory=Turn)
    respawn_s: float | None = None
    start_cpu_s: float | None = None
    """Processor time that the new process had used by then: what a start costs on an idle machine,
    at most."""
    was_unready: bool = False
    reason: str = ""
    """What ``/ready`` said first."""
    closed: str = ""
    """Why the session was lost, if it was."""
    load_1min: float = 0.0

    @property
    def affected(self) -> int:
        return sum(not turn.answered for turn in (self.turn, self.after))


def main() -> None:
    options = _arguments()
    settings = load_settings(None, _in_processes()).settings
    result = asyncio.run(_run(options, settings))
    text = json.dumps(result, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", dest="kills", type=int, default=50)
    parser.add_argument("--engines", default=",".join(Kind))
    parser.add_argument("--signal", choices=("KILL", "STOP"), default="KILL")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def _in_processes() -> list[str]:
    return [f"{kind}.run_in=process" for kind in Kind]


async def _run(options: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    clips = await _clips(settings)
    engines = options.engines.split(",")
    number = getattr(signal, f"SIG{options.signal}")
    load = os.getloadavg()[0]
    arguments = [part for setting in _in_processes() for part in ("--set", setting)]
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                _on_one_server(
                    *(arguments, engines[first :: options.servers], options.kills, number, clips),
                    random.Random(options.seed + first),
                )
            )
            for first in range(options.servers)
        ]
    kills = [kill for task in tasks for kill in task.result()[0]]
    left = {"SIGTERM": sum(task.result()[1] for task in tasks)}
    async with spawned_server(arguments) as server:
        left["SIGKILL"] = await _end(server, signal.SIGKILL, clips)
    return {
        "signal": f"SIG{options.signal}",
        "kills_each": options.kills,
        "seed": options.seed,
        "servers_at_the_same_time": options.servers,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "engines": {
            engine: _figures([k for k in kills if k.engine == engine]) for engine in engines
        },
        "all": _figures(kills),
        "orphans_after_the_servers_end": left,
        "load_average": {
            "before": round(load, 2),
            "median": round(float(np.median([kill.load_1min for kill in kills])), 2),
            "after": round(os.getloadavg()[0], 2),
        },
        "cores": os.cpu_count(),
        "not_well": [_row(kill) for kill in kills if kill.affected or kill.closed],
    }


async def _clips(settings: Settings) -> list[Pcm]:
    """The questions, in the voice of the settings."""
    spoken = await synthesize_alone(settings, open_cache(settings), QUESTIONS)
    clips = []
    for pcm, rate in spoken:
        resampler = Resampler(rate, RATE)
        clips.append(np.concatenate((resampler.feed(pcm), resampler.flush())))
    return clips


# --- killing -----------------------------------------------------------------------------------


async def _on_one_server(
    arguments: Sequence[str],
    engines: Sequence[str],
    kills: int,
    number: signal.Signals,
    clips: Sequence[Pcm],
    rng: random.Random,
) -> tuple[list[Kill], int]:
    """All kills of these engines, and how many processes are left after SIGTERM."""
    async with spawned_server(arguments) as server:
        done = await _kill_all(server, engines, kills, number, clips, rng)
        return done, await _end(server, signal.SIGTERM, clips)


async def _kill_all(
    server: Spawned,
    engines: Sequence[str],
    kills: int,
    number: signal.Signals,
    clips: Sequence[Pcm],
    rng: random.Random,
) -> list[Kill]:
    done: list[Kill] = []
    plan = [(engine, MOMENTS[n % len(MOMENTS)]) for n in range(kills) for engine in engines]
    while len(done) < len(plan):
        async with talking(server.url) as talk:
            await talk.say(clips[0])
            last = min(len(plan), len(done) + KILLS_OF_A_SESSION)
            while len(done) < last and not talk.closed:
                kill = Kill(*plan[len(done)], load_1min=os.getloadavg()[0])
                await _kill(kill, server, talk, number, rng.choice(clips), rng)
                kill.after = await talk.say(rng.choice(clips))
                kill.closed = talk.closed
                done.append(kill)
                print(len(done), json.dumps(_row(kill)), flush=True)
    return done


async def _kill(
    kill: Kill, server: Spawned, talk: Talk, number: signal.Signals, clip: Pcm, rng: random.Random
) -> None:
    """One turn with a kill in it; returns when the turn is over and the server is ready again."""
    async with asyncio.TaskGroup() as group:
        saying = group.create_task(talk.say(clip))
        match kill.moment:
            case "listening":
                await asyncio.sleep(rng.uniform(0.2, 1.0) * len(clip) / RATE)
            case "ending":
                await asyncio.sleep(len(clip) / RATE + rng.uniform(0.0, 0.6))
            case "replying":
                replied = group.create_task(talk.replying.wait())
                await asyncio.wait({saying, replied}, return_when=asyncio.FIRST_COMPLETED)
                replied.cancel()
                await asyncio.sleep(rng.uniform(0.0, 0.8))
        os.kill(_engines(server.pid)[kill.engine].pid, number)
        await _see_it_back(kill, server)
    kill.turn = saying.result()


async def _see_it_back(kill: Kill, server: Spawned) -> None:
    """Look at ``/ready`` until it has gone away and come back."""
    url = server.url.replace("ws://", "http://").removesuffix("/v1/realtime") + "/ready"
    began = time.monotonic()
    async with httpx.AsyncClient(trust_env=False) as http:
        while (waited_s := time.monotonic() - began) < READY_WITHIN_S:
            answer = await http.get(url)
            if answer.status_code == 503:
                kill.was_unready = True
                kill.reason = kill.reason or answer.json()["reasons"].get(kill.engine, "")
            elif kill.was_unready:
                kill.respawn_s = waited_s
                cpu = _engines(server.pid)[kill.engine].cpu_times()
                kill.start_cpu_s = cpu.user + cpu.system
                return
            await asyncio.sleep(LOOK_EVERY_S)


def _engines(server_pid: int) -> dict[str, psutil.Process]:
    """The server's children by kind; their command lines say which engine they are."""
    kinds = {}
    for child in psutil.Process(server_pid).children():
        command = child.cmdline()
        if len(command) > 5 and command[5].split()[0] in list(Kind):
            kinds[command[5].split()[0]] = child
    return kinds


async def _end(server: Spawned, number: signal.Signals, clips: Sequence[Pcm]) -> int:
    """End the server in the middle of an answer. How many of its processes are left."""
    parent = psutil.Process(server.pid)
    children = parent.children(recursive=True)
    async with talking(server.url) as talk:
        saying = asyncio.create_task(talk.say(clips[1]))
        await talk.replying.wait()
        parent.send_signal(number)
        saying.cancel()
        await asyncio.wait({saying})
    _, left = await asyncio.to_thread(psutil.wait_procs, [parent, *children], GONE_WITHIN_S)
    return len(left)


# --- figures -----------------------------------------------------------------------------------


def _figures(kills: Sequence[Kill]) -> dict[str, Any]:
    respawns = [kill.respawn_s for kill in kills if kill.respawn_s is not None]
    cpu = [kill.start_cpu_s for kill in kills if kill.start_cpu_s is not None]
    first = [kill.turn.first_audio_s for kill in kills if kill.turn.first_audio_s is not None]
    return {
        "kills": len(kills),
        "turns_affected_by_one_kill": dict(sorted(Counter(str(k.affected) for k in kills).items())),
        "sessions_lost": sum(bool(kill.closed) for kill in kills),
        "turn_of_the_kill": dict(Counter(kill.turn.status for kill in kills)),
        "turn_after_it": dict(Counter(kill.after.status for kill in kills)),
        "answers_later_than_2_s": sum(late > SOON_S for late in first),
        "failed_and_said_so": sum(k.turn.status == "failed" and bool(k.turn.words) for k in kills),
        "ready_went_and_came_back": sum(k.was_unready and k.respawn_s is not None for k in kills),
        "respawn_s": _percentiles(respawns),
        "cpu_of_a_start_s": _percentiles(cpu),
    }


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    p50, p95 = np.percentile(values, (50, 95))
    return {"p50": round(p50, 2), "p95": round(p95, 2), "max": round(max(values), 2)}


def _row(kill: Kill) -> dict[str, Any]:
    return {
        "engine": kill.engine,
        "moment": kill.moment,
        "status": kill.turn.status,
        "error": kill.turn.error,
        "after": kill.after.status,
        "first_audio_s": kill.turn.first_audio_s and round(kill.turn.first_audio_s, 2),
        "done_s": kill.turn.done_s and round(kill.turn.done_s, 2),
        "items": len(kill.turn.words),
        "respawn_s": kill.respawn_s and round(kill.respawn_s, 2),
        "start_cpu_s": kill.start_cpu_s and round(kill.start_cpu_s, 2),
        "reason": kill.reason,
        "session_lost": kill.closed,
        "seen": [t.seen for t in (kill.turn, kill.after) if t.status == "none"],
        "load_1min": round(kill.load_1min, 2),
    }


if __name__ == "__main__":
    main()
