"""Shared by the Python frameworks: the turns, and a report for each.

A program gets one argument, JSON: {url, levels: {time, weather, story, wait}, limit_s}. It does all
turns at once, each in its own connection, and prints one line of JSON for each. It runs in a
separate environment and imports nothing of ours.
"""

from __future__ import annotations

import array
import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any

RATE = 24_000
CHUNK_S = 0.02


@dataclass
class Plan:
    url: str
    levels: dict[str, int]
    limit_s: float

    def tone(self, phrase: str, seconds: float) -> bytes:
        """Speech of the phrase with that level: 16-bit samples at 24 kHz."""
        return array.array("h", [self.levels[phrase]] * round(RATE * seconds)).tobytes()


def silence(seconds: float) -> bytes:
    return bytes(2 * round(RATE * seconds))


@dataclass
class Report:
    """One turn as the client saw it."""

    turn: str
    events: list[str] = field(default_factory=list)
    heard: str = ""
    said: list[str] = field(default_factory=list)
    audio_bytes: int = 0
    statuses: list[str] = field(default_factory=list)
    tool_calls: list[dict[str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    late_audio_bytes: int = 0
    history: list[dict[str, str]] | None = None
    failure: str | None = None


Turn = Callable[[Report, Plan], Awaitable[None]]


class Moment:
    """Waits for a condition; call ``look`` whenever it may have changed."""

    def __init__(self, happened: Callable[[], bool]) -> None:
        self._happened = happened
        self._reached = asyncio.Event()

    def look(self) -> None:
        if self._happened():
            self._reached.set()

    async def wait(self) -> None:
        await self._reached.wait()


class Watch:
    """The events of a turn, and the conditions that are awaited."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._moments: list[Moment] = []

    def when(self, happened: Callable[[], bool]) -> Moment:
        self._moments.append(Moment(happened))
        return self._moments[-1]

    def event(self, name: str, count: int = 1) -> Moment:
        return self.when(lambda: self.report.events.count(name) >= count)

    def responses(self, count: int) -> Moment:
        """Wait until this many responses are done."""
        return self.when(lambda: len(self.report.statuses) >= count)

    def look(self) -> None:
        for moment in self._moments:
            moment.look()


async def stream(pcm: bytes, send: Callable[[bytes], Awaitable[None]], done: Moment) -> None:
    """Send audio at the speed of a microphone, then silence, until ``done``."""
    loop = asyncio.get_running_loop()
    began, size, chunk = loop.time(), round(RATE * CHUNK_S) * 2, 0
    while not done._reached.is_set():
        piece = pcm[chunk * size : (chunk + 1) * size]
        await send(piece or bytes(size))
        chunk += 1
        await asyncio.sleep(began + chunk * CHUNK_S - loop.time())


def note(report: Report, event: dict[str, Any]) -> None:
    """Note what a raw server event says about the turn."""
    kind = event["type"]
    report.events.append(kind)
    if kind == "conversation.item.input_audio_transcription.completed":
        report.heard += event["transcript"]
    elif kind == "response.output_audio_transcript.done":
        report.said.append(event["transcript"])
    elif kind == "response.done":
        report.statuses.append(event["response"]["status"])


async def _hold(turn: Turn, plan: Plan) -> None:
    report = Report(turn.__name__)
    try:
        async with asyncio.timeout(plan.limit_s):
            await turn(report, plan)
    except BaseException:
        report.failure = traceback.format_exc()
    print(json.dumps(asdict(report)), flush=True)  # noqa: T201


def hold(*turns: Turn) -> None:
    """Do every turn and print its report."""
    plan = Plan(**json.loads(sys.argv[1]))

    async def all_at_once() -> None:
        await asyncio.gather(*(_hold(turn, plan) for turn in turns))

    asyncio.run(all_at_once())
