"""From the last sample of speech to the first sample of the answer, in real time.

    python -m benchmarks.latency embedded [--turns 200] [--starts 5] [--neighbour 0|1] [--stages]
    python -m benchmarks.latency scripted [--turns 100] [--pauses 60] [--pairs 20]
    both: [--corpus DIR] [--seed N] [--set K=V] [--config F] [--out FILE]

A server process of its own, the real client over a loopback WebSocket, and recordings of people,
each turn with its own speed, level, room, noise and place within the VAD's windows
(``benchmarks.latency.clips``). Intervals are bootstrapped by recording. Leave the machine alone
while it runs; load and CPU shares are in the result.

``embedded``: the configured engines. ``--neighbour 1``: with a busy process beside. ``--stages``: a
server that also notes where the time of a turn goes. The bars on latency are for an untraced one.

``scripted``: VAD, turn detector, audio, socket and clock are real; recogniser, language model and
voice take as long as an RTX 4090's (``benchmarks.harness.scripted_engines``). Three parts:
recordings that plainly end (latency, and our overhead over the engines' critical path:
``benchmarks.latency.trace``), turns with inner pauses (wasted engine time), two sentences of one
speaker (answered as one?).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from app.cli.measuring import Spawned, spawned_server
from app.settings.load import load_settings
from benchmarks.harness.scripted_engines import NAME, installed, write_opinions
from benchmarks.latency import report
from benchmarks.latency.clips import (
    Recorded,
    Take,
    perform,
    recordings_of_corpus,
    recordings_of_people,
    scenes_of_two_sentences,
    scenes_with_pauses,
    speaker,
    takes,
    two_sentences,
    with_inner_pause,
)
from benchmarks.latency.opinions import opinions
from benchmarks.latency.run import Advance, Machine, Played, play, traced_server, watched
from benchmarks.latency.trace import TraceLog
from benchmarks.latency.waste import engine_time
from benchmarks.turns.score import ears_of, opened_memo
from pipeline.errors import ReachyVoiceError

QUIET_BARS: report.Bars = {
    "ms_after_last_speech_sample.voice_to_voice.p50": 400,
    "ms_after_last_speech_sample.voice_to_voice.p95": 650,
    "first_to_warm_ratio": 1.3,
}
BUSY_BARS: report.Bars = {
    "ms_after_last_speech_sample.voice_to_voice.p50": 600,
    "ms_after_last_speech_sample.voice_to_voice.p95": 800,
}
SCRIPTED_BARS: report.Bars = {
    "clean.ms_after_last_speech_sample.voice_to_voice.p50": 250,
    "clean.ms_after_last_speech_sample.voice_to_voice.p95": 500,
    "clean.overhead_ms.p50": 15,
    "clean.overhead_ms.p95": 40,
    "pauses.engine_time.share": 0.3,
    "pairs.not_as_one.share": 0.05,
}
"""Issue 4, "Numbers"."""

OPINIONS = "opinions.json"


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    turns: int
    starts: int
    neighbours: int
    stages: bool
    pauses: int
    pairs: int
    seed: int
    corpus: Path | None
    config: str | None
    sets: tuple[str, ...]

    @property
    def server_arguments(self) -> list[str]:
        config = ["--config", self.config] if self.config else []
        return [*config, *(flag for each in self.sets for flag in ("--set", each))]

    def recordings(self) -> list[Recorded]:
        """Raises ``FileNotFoundError`` if there is no such corpus."""
        found = list(recordings_of_people())
        return [*found, *recordings_of_corpus(self.corpus)] if self.corpus else found


# --- the configured engines --------------------------------------------------------------------


async def embedded(options: Options, directory: Path, advance: Advance) -> dict[str, Any]:
    """Some starts with one first turn each; the last server gets the warm turns."""
    performed = takes(options.recordings(), options.turns, options.seed)
    played: list[Played] = []
    machine, trace = Machine(), directory / "trace.jsonl"
    starts_s = []
    for start in range(options.starts):
        machine = Machine()
        server: AbstractAsyncContextManager[Spawned]
        if options.stages:
            server = traced_server(options.server_arguments, trace)
        else:
            server = spawned_server(options.server_arguments)
        async with server as spawned, watched(machine, spawned, options.neighbours):
            starts_s.append(round(spawned.start_seconds, 2))
            opening = [performed[start % len(performed)]]
            played += await play(spawned.url, opening, machine, advance, first=True)
            if start + 1 == options.starts:
                played += await play(spawned.url, performed, machine, advance)
    if options.stages:
        # Only of the last server; first turns of the others are not in its trace.
        log = TraceLog.read(trace)
        rows = [report.traced_row(each, log) for each in played]
    else:
        rows = [report.turn_row(each) for each in played]
    data = {**report.summary(rows), "starts_s": starts_s, **_about(options, machine)}
    bars = BUSY_BARS if options.neighbours else QUIET_BARS
    return {**data, "bars": report.judged(data, bars), "turns": rows}


def _about(options: Options, machine: Machine) -> dict[str, Any]:
    return {
        "machine": {"cores": os.cpu_count(), **report.machine_data(machine)},
        "neighbours": options.neighbours,
        "seed": options.seed,
        "config": options.config,
        "set": list(options.sets),
    }


# --- scripted engines --------------------------------------------------------------------------


async def scripted(options: Options, directory: Path, advance: Advance) -> dict[str, Any]:
    """Three parts, each with a server of its own."""
    installed(directory / "plugin")
    root = str(Path(__file__).parents[1])
    before = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(directory / "plugin"), root, *before])
    sys.path.append(str(directory / "plugin"))
    recordings = options.recordings()
    clean = [each for each in recordings if each.ends_plainly]
    parts = {
        "clean": takes(clean, options.turns, options.seed),
        "pauses": _with_pauses(options, recordings),
        "pairs": _pairs(options, clean),
    }
    data: dict[str, Any] = {}
    for name, part in parts.items():
        if part:
            data[name] = await _part(options, directory / name, part, advance)
    shown = [bar for bar in SCRIPTED_BARS if bar.partition(".")[0] in data]
    bars = report.judged(data, {bar: SCRIPTED_BARS[bar] for bar in shown})
    return {**data, "bars": bars}


async def _part(
    options: Options, directory: Path, part: Sequence[Take], advance: Advance
) -> dict[str, Any]:
    cue, engines, trace = (
        directory / name for name in ("cue.json", "engines.jsonl", "trace.jsonl")
    )
    config = _scripted_config(directory, options, cue, engines)
    _write_opinions(directory, part)
    sets = [flag for each in options.sets for flag in ("--set", each)]
    machine = Machine()
    async with (
        traced_server(["--config", config, *sets], trace) as server,
        watched(machine, server, options.neighbours),
    ):
        opening = await play(server.url, part[:1], machine, advance, first=True, cue=cue)
        played = await play(server.url, part, machine, advance, cue=cue)
    log = TraceLog.read(trace, engines)
    rows = [report.traced_row(each, log) for each in (*opening, *played)]
    for row, each in zip(rows[1:], played, strict=True):
        row["not_as_one"] = not report.answered_as_one(each, log)
        row["first_answer_heard_s"] = round(sum(each.heard_s[:-1]), 3)
    warm = rows[1:]
    heard = [row["first_answer_heard_s"] for row in warm]
    return {
        **report.summary(rows),
        "engine_time": report.waste_data(engine_time(log)),
        "not_as_one": report.share(warm, "not_as_one"),
        "first_answer_heard_s": {"max": max(heard), "turns": sum(each > 0 for each in heard)},
        **_about(options, machine),
        "turns": rows,
    }


def _scripted_config(directory: Path, options: Options, cue: Path, engines: Path) -> str:
    engine = {"engine": NAME, "log": str(engines), "cue": str(cue), "seed": options.seed}
    engine["opinions"] = str(directory / OPINIONS)
    directory.mkdir()
    path = directory / "scripted.yaml"
    base = Path(options.config).resolve() if options.config else "default"
    tree = {"extends": str(base), "stt": engine, "llm": engine, "tts": engine}
    # Its voice hums, and an apology would be one of its calls.
    tree |= {"playback": {"watch_voice": False}, "conversation": {"apology": ""}}
    path.write_text(json.dumps(tree))  # which is YAML, too
    return str(path)


def _write_opinions(directory: Path, part: Sequence[Take]) -> None:
    """Of the embedded language model, however the scripted one is configured."""
    settings = load_settings("default").settings
    with opened_memo(settings) as memo:
        write_opinions(directory / OPINIONS, opinions(part, ears_of(settings, memo), settings))


def _with_pauses(options: Options, recordings: Sequence[Recorded]) -> list[Take]:
    """Of the corpus, or else recordings with a pause cut in."""
    if not options.pauses:
        return []
    rng = np.random.default_rng(options.seed)
    if options.corpus and (scenes := list(scenes_with_pauses(options.corpus))):
        return takes(scenes, options.pauses, options.seed)
    drawn = [recordings[index % len(recordings)] for index in range(options.pauses)]
    return [perform(with_inner_pause(each, rng), rng) for each in drawn]


def _pairs(options: Options, clean: Sequence[Recorded]) -> list[Take]:
    """Of the corpus, or else two recordings of one speaker."""
    if not options.pairs:
        return []
    rng = np.random.default_rng(options.seed)
    if options.corpus and (scenes := list(scenes_of_two_sentences(options.corpus))):
        return takes(scenes, options.pairs, options.seed)
    both = [(a, b) for a in clean for b in clean if a is not b and speaker(a) == speaker(b)]
    drawn = [both[index] for index in rng.integers(len(both), size=options.pairs)]
    return [perform(two_sentences(a, b, rng), rng) for a, b in drawn]


# --- the command -------------------------------------------------------------------------------


def _arguments() -> tuple[str, Options, Path | None]:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m benchmarks.latency",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("embedded", "scripted"))
    parser.add_argument("--turns", type=int)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--neighbour", type=int, default=0, dest="neighbours")
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("--pauses", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--config")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", dest="sets")
    parser.add_argument("--out", type=Path)
    given = vars(parser.parse_args())
    what, out = given.pop("what"), given.pop("out")
    given["turns"] = given["turns"] or (200 if what == "embedded" else 100)
    return what, Options(**{**given, "sets": tuple(given["sets"])}), out


def _show(console: Console, what: str, data: Mapping[str, Any]) -> None:
    parts = {"embedded": data} if what == "embedded" else data
    for name, part in parts.items():
        if "ms_after_last_speech_sample" not in part:
            continue
        report.print_summary(console, name, part)
        report.print_machine(console, part["machine"])
        if name == "pauses":
            console.print(f"engine time: {part['engine_time']}")
        if name == "pairs":
            console.print(f"not answered as one: {part['not_as_one']}")
            console.print(f"heard of first answers: {part['first_answer_heard_s']}")
        console.print()
    report.print_bars(console, data["bars"].items())


def main() -> None:
    what, options, out = _arguments()
    console = Console(highlight=False, emoji=False, soft_wrap=True)
    extra = options.starts if what == "embedded" else options.pauses + options.pairs + 3
    with (
        tempfile.TemporaryDirectory() as directory,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        bar = progress.add_task(what, total=options.turns + extra)

        def advance() -> None:
            progress.advance(bar)

        measure = embedded if what == "embedded" else scripted
        try:
            data = asyncio.run(measure(options, Path(directory), advance))
        except ReachyVoiceError as error:
            sys.exit(str(error))
    if out:
        out.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    _show(console, what, data)
    sys.exit(0 if all(bar["met"] for bar in data["bars"].values()) else 1)


if __name__ == "__main__":
    main()
