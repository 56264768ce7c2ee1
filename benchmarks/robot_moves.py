"""How soon the robot's body follows a conversation, and what that costs.

    python -m benchmarks.robot_moves [--times N] [--seconds S] [--out FILE]

Our body and the real daemon of a Reachy Mini (1.13.0) with a mocked-up robot, which is where it is
told to be at the next tick of its 50 Hz loop; over loopback. Its own state, asked for 200 times a
second, tells when something has moved. Motors take longer; this is our part and the daemon's.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import connect

from app.cli.measuring import percentile
from app.models.weights import WeightsCache
from app.settings.load import load_settings
from hardware.robot.body import RobotBody
from hardware.robot.errors import RobotError
from hardware.settings import Robot
from pipeline.commands import Direction
from pipeline.events import Event, InputCleared, ReplyAudio, SpeechStarted

sys.path.append(str(Path(__file__).parents[1] / "script"))

MOVED_RAD = 0.02
"""1.1°, of an antenna or the head: what can be seen. Breathing takes a third of a second for it."""
BETWEEN_S = 1.5
SIDE_DEG = 40
"""Two who sit so are less than 90° apart: a linear array hears one farther off mirrored, and the
head turns in two steps."""
STARTED, CLEARED = SpeechStarted("item_1", 0), InputCleared()
RATE = 24_000
State = dict[str, Any]


class Watch:
    """The daemon's state, as it comes."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self.state: State = {}

    async def follow(self, url: str) -> None:
        address = f"ws{url.removeprefix('http')}/api/state/ws/full?frequency=200"
        async with connect(address, proxy=None) as socket:
            async for message in socket:
                self.state = json.loads(message)
                self._changed.set()

    async def ms_until(self, condition: Callable[[State], bool]) -> float:
        began = time.perf_counter()
        async with asyncio.timeout(10):
            while not self.state or not condition(self.state):
                self._changed.clear()
                await self._changed.wait()
        return (time.perf_counter() - began) * 1000


def antenna(state: State) -> float:
    return float(state["antennas_position"][0])


def yaw_deg(state: State) -> float:
    return math.degrees(state["head_pose"]["yaw"])


def complain(error: RobotError) -> None:
    print(f"robot_moves: {error}", file=sys.stderr)


def antenna_moved_from(was: float) -> Callable[[State], bool]:
    return lambda state: abs(antenna(state) - was) > MOVED_RAD


def turned_from(was_deg: float) -> Callable[[State], bool]:
    return lambda state: abs(yaw_deg(state) - was_deg) > math.degrees(MOVED_RAD)


def looking_at(side_deg: float) -> Callable[[State], bool]:
    return lambda state: abs(yaw_deg(state) - side_deg) < 2


@asynccontextmanager
async def moving(url: str) -> AsyncIterator[RobotBody]:
    body = RobotBody(Robot(url=url), complain)
    running = asyncio.create_task(body.run())
    try:
        yield body
    finally:
        running.cancel()
        await asyncio.wait({running})


async def of_events(body: RobotBody, watch: Watch, times: int) -> list[float]:
    """Ms from an event to a visible movement."""
    found = []
    for n in range(times):
        # Not in step with any loop.
        await asyncio.sleep(BETWEEN_S + 0.02 * ((n * 0.618) % 1))
        before = antenna(watch.state)
        event: Event = STARTED if n % 2 == 0 else CLEARED
        body.note(event)
        found.append(await watch.ms_until(antenna_moved_from(before)))
    return found


async def of_directions(
    body: RobotBody, watch: Watch, times: int
) -> tuple[list[float], list[float]]:
    """Ms from the first of some readings, 100 ms apart, until the head has begun to turn, and
    until it looks at the speaker (to 2°)."""
    begun, there = [], []
    for n in range(times):
        await asyncio.sleep(BETWEEN_S + 0.02 * ((n * 0.618) % 1))
        side = SIDE_DEG if n % 2 == 0 else -SIDE_DEG
        before = yaw_deg(watch.state)

        async def speak(side: int = side) -> None:
            while True:
                body.heard(Direction(90 - side + yaw_deg(watch.state), True))
                await asyncio.sleep(0.1)

        speaking = asyncio.create_task(speak())
        first = await watch.ms_until(turned_from(before))
        rest = await watch.ms_until(looking_at(side))
        speaking.cancel()
        await asyncio.wait({speaking})
        begun.append(first)
        there.append(first + rest)
    return begun, there


async def cpu_percent(seconds: float, play: Callable[[], None]) -> float:
    """Of one core, of this process, which plays all the time."""
    began, worked = time.perf_counter(), time.process_time()
    for _ in range(round(seconds * 50)):
        play()
        await asyncio.sleep(0.02)
    return 100 * (time.process_time() - worked) / (time.perf_counter() - began)


def summary(found: list[float]) -> dict[str, float | None]:
    return {"n": len(found), "p50": percentile(found, 50), "p95": percentile(found, 95)}


async def measure(times: int, seconds: float) -> dict[str, Any]:
    robots = importlib.import_module("tests.support.robot_daemon")
    cache = WeightsCache(load_settings(None).settings.paths.cache(os.environ))
    python = await asyncio.to_thread(robots.python_with_daemon, cache)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as home:
        async with robots.robot_daemon(python, Path(home)) as robot:
            watch = Watch()
            async with moving(robot.url) as body:
                following = asyncio.create_task(watch.follow(robot.url))
                await watch.ms_until(lambda state: abs(antenna(state)) < 0.3)
                events = await of_events(body, watch, times)
                begun, there = await of_directions(body, watch, times)
                following.cancel()
                await asyncio.wait({following})
                voice = np.random.default_rng(1).normal(0, 4000, RATE // 50).astype(np.int16)
                body.note(ReplyAudio("reply_1", "item_1", 0, voice, RATE))
                clock = asyncio.get_running_loop().time
                busy = await cpu_percent(seconds, lambda: body.played(voice, RATE, clock()))
    return {
        "event_to_movement_ms": summary(events),
        "first_reading_to_turn_ms": summary(begun),
        "first_reading_to_looking_there_ms": summary(there),
        "cpu_percent_of_a_core": busy,
        "cpu_percent_without": await cpu_percent(seconds, lambda: None),
        "load": [load, os.getloadavg()[0]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--times", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    text = json.dumps(asyncio.run(measure(args.times, args.seconds)), indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
