"""Measures the whole server with robots that speak to it in real time."""

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
from benchmarks.latency.clips import Take, perform_all

BEFORE_BARGE_IN_S = 0.8
READY = r"^  ready (.+?) ([\d.]+) s$"
"""The line that ``serve`` prints for each engine."""
INSTRUCTIONS = "You are a small friendly robot. " * 40


async def _robot(url: str, takes: Sequence[Take]) -> list[tuple[SpokenTurn, list[float]] | str]:
    """The turn of each take, or its error; after a failure a new conversation begins."""
    results: list[tuple[SpokenTurn, list[float]] | str] = []
    while len(results) < len(takes):
        async with dial(url) as socket:
            robot = RobotClient(socket)
            await robot.configure({"instructions": INSTRUCTIONS})
            for take in takes[len(results) :]:
                try:
                    results.append(await robot.ask(take.pcm, take.end))
                except TurnFailed as error:
                    results.append(str(error))
                    break
    return results


async def _together(url: str, takes: Sequence[Take], robots: int, report: Report) -> list[float]:
    """Share the takes among ``robots`` robots at once; returns the first audio of each in ms."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_robot(url, takes[n::robots])) for n in range(robots)]
    results = [each for task in tasks for each in task.result()]
    turns = [each for each in results if not isinstance(each, str)]
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
    failures = [each for each in results if isinstance(each, str)]
    heard = next((turn.heard for turn, _ in turns), "")
    answer = next((turn.answered for turn, _ in turns), "")
    report.note(name, f"{len(failures)} failed {failures[:1]}; heard {heard!r}, said {answer!r}")
    return [ms for ms in first if ms is not None]


async def _barge_in(url: str, takes: Sequence[Take], count: int, report: Report) -> None:
    last_ms: list[float] = []
    starts_ms: list[float | None] = []
    for number in range(count):
        question, over = takes[2 * number], takes[2 * number + 1]
        async with dial(url) as socket:
            robot = RobotClient(socket)
            await robot.configure({"instructions": INSTRUCTIONS})
            try:
                onset_s = over.words[0][0]
                times = await robot.interrupt(over.pcm, onset_s, BEFORE_BARGE_IN_S, question.pcm)
                last_ms.append(times.sent_ms)
                starts_ms.append(times.told_ms)
            except* (TimeoutError, TurnFailed) as errors:
                report.note("barge-in", f"no figure: {errors.exceptions[0]!r}")
    report.figure("barge-in: last sound after the onset", "ms", *last_ms)
    report.figure("barge-in: speech_started", "ms", *starts_ms)


def server(args: argparse.Namespace, report: Report) -> None:
    asyncio.run(_measure(args, report))


async def _measure(args: argparse.Namespace, report: Report) -> None:
    before, words = gpu_mb(), args.small or args.words
    settings = settings_file(args, words=words)
    log = args.models / "server.log"
    takes = perform_all(recordings(args.speech, tiny=words), max(args.turns, 8), seed=1)
    async with spawned_server(["--config", str(settings)], log) as running:
        report.figure("ready", "s", running.start_seconds)
        for what, seconds in re.findall(READY, log.read_text(), re.MULTILINE):
            report.figure(f"ready: {' '.join(what.split())}", "s", float(seconds))
        with report.part("warm-up"):
            await _robot(running.url, takes[:1])
        first: dict[int, list[float]] = {}
        for robots in args.robots:
            with report.part(f"{robots} robots"):
                share = takes[: max(args.turns, robots)]
                first[robots] = await _together(running.url, share, robots, report)
            if robots == args.robots[0]:
                with report.part("barge-in"):
                    await _barge_in(running.url, takes, 1 if args.small else 4, report)
        report.gpu_memory(before)
    for robots in [each for each in first if each > 1 and first.get(1) and first[each]]:
        for percent in (50, 95):
            ratio = _percentile(first[robots], percent) / _percentile(first[1], percent)
            report.figure(f"first audio P{percent}, {robots} robots to 1", "", ratio)


def _percentile(values: Sequence[float], percent: int) -> float:
    return percentile(values, percent) or float("nan")
