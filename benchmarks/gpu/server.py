"""The whole server, and robots that speak to it in real time."""

from __future__ import annotations

import argparse
import asyncio
import base64
import re
from collections.abc import Sequence
from typing import Any

from app.cli.measuring import STAGES, percentile, spawned_server
from app.talk.realtime_client import RATE, RealtimeClient, SpokenTurn, TurnFailed, dial
from benchmarks.fleet.talkers import Player
from benchmarks.gpu.models import settings_file
from benchmarks.gpu.report import Report, gpu_mb
from benchmarks.gpu.speech import recordings
from benchmarks.latency.clips import Take, takes

HOLE_MS = 10.0
"""A shorter one is the client's own clock."""
ANSWER_S, BEFORE_BARGE_IN_S, AFTER_S = 30.0, 0.8, 0.4
READY = r"^  ready (.+?) ([\d.]+) s$"
"""As ``serve`` says it of each engine."""
INSTRUCTIONS = "You are a small friendly robot. " * 40


class Robot(RealtimeClient):
    """Plays at once what it gets. ``events``: the kind, response and time of each event."""

    def __init__(self, socket: Any) -> None:
        super().__init__(socket)
        self.player = Player()
        self.events: list[tuple[str, str, float]] = []

    async def _receive(self) -> dict[str, Any]:
        event = await super()._receive()
        now = asyncio.get_running_loop().time()
        if event["type"] == "response.created":
            self.player = Player()
        if event["type"] == "response.output_audio.delta":
            self.player.take(len(base64.b64decode(event["delta"])) / 2 / RATE)
        response = event.get("response_id") or event.get("response", {}).get("id", "")
        self.events.append((event["type"], response, now))
        return event

    async def ask(self, take: Take) -> tuple[SpokenTurn, list[float]]:
        """The turn, and the holes in its answer in ms; heard to its end."""
        turn = await self.speak(take.pcm, take.end)
        holes = [ms for ms in self.player.gaps_ms if ms > HOLE_MS]
        await asyncio.sleep(self.player.left_s + AFTER_S)
        return turn, holes

    async def interrupt(self, asked: Take, over: Take) -> tuple[float, float | None]:
        """Speak over an answer. From the onset, in ms: to the last sound, and to
        ``speech_started``."""
        loop = asyncio.get_running_loop()
        async with (
            asyncio.timeout(ANSWER_S + 2 * len(asked.pcm) / RATE),
            asyncio.TaskGroup() as group,
        ):
            microphone = group.create_task(self._microphone(asked.pcm, loop.time()))
            await self._until("response.output_audio.delta")
            victim = self.events[-1][1]
            listening = group.create_task(self._until("response.done", victim))
            await asyncio.sleep(BEFORE_BARGE_IN_S)
            microphone.cancel()
            onset = loop.time() + over.said[0][0]
            microphone = group.create_task(self._microphone(over.pcm, loop.time()))
            await listening
            await self._until("input_audio_buffer.speech_started", since=onset)
            microphone.cancel()
        sounds = [
            at
            for kind, id_, at in self.events
            if kind == "response.output_audio.delta" and id_ == victim
        ]
        started = [
            at
            for kind, _, at in self.events
            if kind == "input_audio_buffer.speech_started" and at > onset
        ]
        return 1000 * (sounds[-1] - onset), 1000 * (started[0] - onset) if started else None

    async def _until(self, kind: str, response: str = "", since: float = 0.0) -> None:
        def there() -> bool:
            return any(
                each == kind and response in ("", id_) and at > since
                for each, id_, at in self.events
            )

        while not there():
            await self._receive()


async def _robot(url: str, performed: Sequence[Take]) -> list[tuple[SpokenTurn, list[float]] | str]:
    """What each take got, or why it failed; a failure begins another conversation."""
    found: list[tuple[SpokenTurn, list[float]] | str] = []
    while len(found) < len(performed):
        async with dial(url) as socket:
            robot = Robot(socket)
            await robot.configure({"instructions": INSTRUCTIONS})
            for take in performed[len(found) :]:
                try:
                    found.append(await robot.ask(take))
                except TurnFailed as error:
                    found.append(str(error))
                    break
    return found


async def _together(
    url: str, performed: Sequence[Take], robots: int, report: Report
) -> list[float]:
    """The takes, shared among so many robots at once; gives the first audio of each in ms."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_robot(url, performed[n::robots])) for n in range(robots)]
    found = [each for task in tasks for each in task.result()]
    turns = [each for each in found if not isinstance(each, str)]
    name = "1 robot" if robots == 1 else f"{robots} robots at once"
    first = [turn.voice_to_voice_ms for turn, _ in turns]
    report.figure(f"{name}: first audio", "ms", *first)
    for stage in STAGES:
        report.figure(f"{name}: {stage}", "ms", *(turn.stages_ms.get(stage) for turn, _ in turns))
    report.figure(f"{name}: cut off", "", sum(turn.cut_offs for turn, _ in turns))
    holes = [ms for _, gaps in turns for ms in gaps]
    report.figure(f"{name}: holes", "", len(holes))
    report.figure(f"{name}: silence in answers", "ms", sum(holes))
    report.figure(f"{name}: sound", "s", sum(len(turn.pcm) / RATE for turn, _ in turns))
    failures = [each for each in found if isinstance(each, str)]
    heard = next((turn.heard for turn, _ in turns), "")
    answered = next((turn.answered for turn, _ in turns), "")
    report.note(name, f"{len(failures)} failed {failures[:1]}; heard {heard!r}, said {answered!r}")
    return [ms for ms in first if ms is not None]


async def _barge_in(url: str, performed: Sequence[Take], count: int, report: Report) -> None:
    last, started = [], []
    for number in range(count):
        asked, over = performed[2 * number], performed[2 * number + 1]
        async with dial(url) as socket:
            robot = Robot(socket)
            await robot.configure({"instructions": INSTRUCTIONS})
            try:
                sound, event = await robot.interrupt(asked, over)
                last.append(sound)
                started.append(event)
            except* (TimeoutError, TurnFailed) as errors:
                report.note("barge-in", f"no figure: {errors.exceptions[0]!r}")
    report.figure("barge-in: last sound after the onset", "ms", *last)
    report.figure("barge-in: speech_started", "ms", *started)


def server(given: argparse.Namespace, report: Report) -> None:
    asyncio.run(_measure(given, report))


async def _measure(given: argparse.Namespace, report: Report) -> None:
    before, words = gpu_mb(), given.small or given.words
    settings = settings_file(given, words=words)
    log = given.models / "server.log"
    performed = takes(recordings(given.speech, known=words), max(given.turns, 8), seed=1)
    async with spawned_server(["--config", str(settings)], log) as running:
        report.figure("ready", "s", running.start_seconds)
        for what, seconds in re.findall(READY, log.read_text(), re.MULTILINE):
            report.figure(f"ready: {' '.join(what.split())}", "s", float(seconds))
        with report.part("warm-up"):
            await _robot(running.url, performed[:1])
        first: dict[int, list[float]] = {}
        for robots in given.robots:
            with report.part(f"{robots} robots"):
                share = performed[: max(given.turns, robots)]
                first[robots] = await _together(running.url, share, robots, report)
            if robots == given.robots[0]:
                with report.part("barge-in"):
                    await _barge_in(running.url, performed, 1 if given.small else 4, report)
        report.gpu_memory(before)
    for robots in [each for each in first if each > 1 and first.get(1) and first[each]]:
        for percent in (50, 95):
            ratio = _percentile(first[robots], percent) / _percentile(first[1], percent)
            report.figure(f"first audio P{percent}, {robots} robots to 1", "", ratio)


def _percentile(values: Sequence[float], percent: int) -> float:
    return percentile(values, percent) or float("nan")
