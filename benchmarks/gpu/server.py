"""The whole server, and robots that speak to it in real time."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Sequence

from app.cli.measuring import STAGES, percentile, spawned_server
from app.talk.realtime_client import RATE, SpokenTurn, TurnFailed, dial
from benchmarks.gpu.models import settings_file
from benchmarks.gpu.report import Report, gpu_mb
from benchmarks.gpu.speech import recordings
from benchmarks.harness.robot import RobotClient
from benchmarks.latency.clips import Take, takes

BEFORE_BARGE_IN_S = 0.8
READY = r"^  ready (.+?) ([\d.]+) s$"
"""As ``serve`` says it of each engine."""
INSTRUCTIONS = "You are a small friendly robot. " * 40


async def _robot(url: str, performed: Sequence[Take]) -> list[tuple[SpokenTurn, list[float]] | str]:
    """What each take got, or why it failed; a failure begins another conversation."""
    found: list[tuple[SpokenTurn, list[float]] | str] = []
    while len(found) < len(performed):
        async with dial(url) as socket:
            robot = RobotClient(socket)
            await robot.configure({"instructions": INSTRUCTIONS})
            for take in performed[len(found) :]:
                try:
                    found.append(await robot.ask(take.pcm, take.end))
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
    last: list[float] = []
    started: list[float | None] = []
    for number in range(count):
        asked, over = performed[2 * number], performed[2 * number + 1]
        async with dial(url) as socket:
            robot = RobotClient(socket)
            await robot.configure({"instructions": INSTRUCTIONS})
            try:
                onset_s = over.said[0][0]
                found = await robot.interrupt(over.pcm, onset_s, BEFORE_BARGE_IN_S, asked.pcm)
                last.append(found.sent_ms)
                started.append(found.told_ms)
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
