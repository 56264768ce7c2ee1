"""From the last sample of speech to the first sample of the answer, in real time.

    python -m benchmarks.latency embedded [--turns 200] [--starts 5] [--real-servers]
                                          [--people FOLDER]
    python -m benchmarks.latency scripted [--turns 100] [--pauses 60]
    both: [--corpus DIR] [--seed N] [--set K=V] [--config F] [--out FILE]

A separate server process, the real client over a loopback WebSocket, and recordings of people, each
turn with its own speed, level, room, noise and position within the VAD's windows
(``benchmarks.latency.clips``). ``--people``: only the labelled turns of a folder
(``benchmarks.harness.labels``). Intervals are bootstrapped by recording. Leave the machine idle
while this runs; the load is in the result.

``embedded``: the configured engines; after the turns the memory is read. With ``--real-servers``
the profile is ``remote``: a llama-server (``script/real-servers``), and Moonshine and Piper behind
``examples/audio_server.py``.

``scripted``: VAD, turn detector, audio, socket and clock are real; recogniser, language model and
voice take an RTX 4090's times (``benchmarks.harness.scripted_engines``). Two parts: ``clean``,
recordings with a clear end, and ``pauses``, turns with inner pauses. ``discarded`` is the share of
engine time spent on discarded answers.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from app.cli.measuring import (
    STAGES,
    TURNS_PER_CONVERSATION,
    VOICE_TO_VOICE,
    SpawnedServer,
    spawned_server,
)
from app.server.process_usage import usage
from app.settings.load import load_settings
from app.settings.model import Settings
from app.talk.realtime_client import RealtimeClient, SpokenTurn, TurnFailed, connect
from benchmarks.harness.ears import Ears, ears_of, open_memo
from benchmarks.harness.program import arguments, keep, load, weights_cache
from benchmarks.harness.scripted_engines import (
    NAME,
    TimedWords,
    install,
    with_full_stop,
    write_cue,
    write_opinions,
)
from benchmarks.harness.statistics import Bootstrap
from benchmarks.latency.clips import (
    DrySpeech,
    Take,
    labelled_recordings,
    perform,
    perform_all,
    recordings_of_corpus,
    recordings_of_people,
    scenes_with_pauses,
    with_inner_pause,
)
from pipeline.conversation.prompt import prompt
from pipeline.errors import ReachyVoiceError
from pipeline.items import MessageItem, TextPart
from tests.support.real_servers import RealServer, audio_server, llama_server

PERCENTS = (50, 95, 99)

Row = Mapping[str, Any]
Advance = Callable[[], None]


# --- turns -------------------------------------------------------------------------------------


async def play(
    url: str,
    takes: Sequence[Take],
    advance: Advance,
    *,
    first: bool = False,
    cue: Path | None = None,
    to_end: bool = True,
) -> list[Row]:
    """Say the takes in conversations of ``TURNS_PER_CONVERSATION``; returns a row for each turn.

    ``to_end``: listen to whole answers, whose stages are told at their end, or to their first
    sound. ``cue``: the file that tells a scripted recogniser the words. A turn that fails has no
    latency; the rest continue in a new conversation. Raises ``NoServer``.
    """
    rows: list[Row] = []
    while len(rows) < len(takes):
        async with connect(url) as client:
            await client.configure()
            for take in takes[len(rows) :][:TURNS_PER_CONVERSATION]:
                rows.append(await _turn(client, take, first, cue, to_end))
                advance()
                if rows[-1]["failure"]:
                    break
    return rows


async def _turn(
    client: RealtimeClient, take: Take, first: bool, cue: Path | None, to_end: bool
) -> Row:
    began_at = time.monotonic()
    if cue:
        words = [
            TimedWords(began_at + start, began_at + end, text) for start, end, text in take.words
        ]
        write_cue(cue, words)
    turn, failure = SpokenTurn(speech_end_at=began_at), ""
    try:
        turn = await client.speak(take.pcm, take.end, to_end=to_end)
    except TurnFailed as error:
        failure = str(error)
    ms = {VOICE_TO_VOICE: turn.voice_to_voice_ms, **turn.stages_ms}
    return {
        "clip": take.name,
        "group": take.group,
        "how": {key: _round(value) for key, value in take.how.items()},
        "first": first,
        "load": load(),
        "cut_off": turn.cut_offs > 0,
        **{stage: _round(ms.get(stage)) for stage in (VOICE_TO_VOICE, *STAGES)},
        "heard": turn.heard,
        "failure": failure,
    }


def _round(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


# --- the configured engines --------------------------------------------------------------------


async def embedded(args: argparse.Namespace, folder: Path, advance: Advance) -> dict[str, Any]:
    """Start several servers for one first turn each; the last one also gets the warm turns."""
    takes = perform_all(_recordings(args), args.turns, args.seed)
    rows: list[Row] = []
    starts_s = []
    ends: dict[str, Any] = {}
    config = ["--config", args.config] if args.config else []
    async with AsyncExitStack() as stack:
        servers: Mapping[str, RealServer] = {}
        if args.real_servers:
            servers = await stack.enter_async_context(_real_servers())
            config = ["--config", "remote", *_flags(_urls(servers))]
        for start in range(args.starts):
            async with spawned_server([*config, *_flags(args.sets)]) as server:
                starts_s.append(round(server.start_seconds, 2))
                opening = [takes[start % len(takes)]]
                rows += await play(server.url, opening, advance, first=True)
                if start + 1 == args.starts:
                    rows += await play(server.url, takes, advance)
                    ends = _ends(server, servers)
    return {**summary(rows), **ends, "starts_s": starts_s, "turns": rows}


@asynccontextmanager
async def _real_servers() -> AsyncIterator[Mapping[str, RealServer]]:
    async with (
        llama_server(weights_cache(), slots=2, slot_tokens=4096) as llm,
        audio_server() as audio,
    ):
        yield {"llama-server": llm, "audio server": audio}


def _urls(servers: Mapping[str, RealServer]) -> list[str]:
    audio = servers["audio server"].url
    return [f"llm.url={servers['llama-server'].url}", f"stt.url={audio}", f"tts.url={audio}"]


def _ends(server: SpawnedServer, servers: Mapping[str, RealServer]) -> dict[str, Any]:
    """The memory of all programs at the end."""
    pids = {"reachy-voice": server.pid}
    pids |= {name: real.program.process.pid for name, real in servers.items()}
    return {"rss_mib": {name: round(usage(pid).rss_mib) for name, pid in pids.items()}}


def _flags(sets: Iterable[str]) -> list[str]:
    return [flag for each in sets for flag in ("--set", each)]


def _recordings(args: argparse.Namespace) -> list[DrySpeech]:
    """Raises ``FileNotFoundError`` if the corpus or the folder does not exist."""
    if args.people:
        return list(labelled_recordings(args.people))
    recordings = list(recordings_of_people())
    return [*recordings, *recordings_of_corpus(args.corpus)] if args.corpus else recordings


# --- scripted engines --------------------------------------------------------------------------


async def scripted(args: argparse.Namespace, folder: Path, advance: Advance) -> dict[str, Any]:
    """Two parts, each with its own server."""
    install(folder / "plugin")
    recordings = _recordings(args)
    clean = [each for each in recordings if each.ends_plainly]
    parts = {
        "clean": perform_all(clean, args.turns, args.seed),
        "pauses": _with_pauses(args, recordings),
    }
    return {
        name: await _part(args, folder / name, part, advance)
        for name, part in parts.items()
        if part
    }


async def _part(
    args: argparse.Namespace, folder: Path, part: Sequence[Take], advance: Advance
) -> dict[str, Any]:
    cue = folder / "cue.json"
    config = _config(args, folder, cue, part)
    async with spawned_server(["--config", str(config), *_flags(args.sets)]) as server:
        rows = await play(server.url, part[:1], advance, first=True, cue=cue)
        rows += await play(server.url, part, advance, cue=cue)
        share = await _discarded_share(server.url)
    return {**summary(rows), "discarded": share, "turns": rows}


def _config(args: argparse.Namespace, folder: Path, cue: Path, part: Sequence[Take]) -> Path:
    """Settings with scripted engines, in a file of ``folder``."""
    folder.mkdir()
    # Opinions always come from the embedded language model, whatever the given settings.
    settings, opinions = load_settings("default").settings, folder / "opinions.json"
    with open_memo(settings) as memo:
        write_opinions(opinions, _opinions(part, ears_of(settings, memo), settings))
    engine = {"engine": NAME, "cue": str(cue), "opinions": str(opinions), "seed": args.seed}
    base = str(Path(args.config).resolve()) if args.config else "default"
    tree: dict[str, Any] = {"extends": base, "stt": engine, "llm": engine, "tts": engine}
    # The voice hums, and an apology would count as one of its calls.
    tree |= {"playback": {"watch_voice": False}, "conversation": {"apology": ""}}
    path = folder / "scripted.yaml"
    path.write_text(json.dumps(tree))  # which is YAML, too
    return path


async def _discarded_share(url: str) -> float | None:
    """The share of the engines' time spent on discarded answers."""
    await asyncio.sleep(1.0)  # the last turn is booked when its connection has ended
    address = url.replace("ws:", "http:").partition("/v1/")[0] + "/metrics"
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(address)).text
    line = r'^reachy_voice_engine_seconds_total\{outcome="(given|discarded)"\} (\S+)$'
    seconds = {name: float(value) for name, value in re.findall(line, text, re.MULTILINE)}
    total = sum(seconds.values())
    return round(seconds["discarded"] / total, 4) if total else None


def _opinions(part: Iterable[Take], ears: Ears, settings: Settings) -> dict[str, float]:
    """How likely each text is to be complete that a recogniser may hear at a pause."""
    probabilities: dict[str, float] = {}
    for text in {text for take in part for text in _transcripts([text for *_, text in take.words])}:
        messages = [MessageItem("", "user", (TextPart(text),))]
        probability = ears.words_complete(prompt(settings.conversation.instructions, messages))
        if probability is not None:
            probabilities[text] = probability
    return probabilities


def _transcripts(parts: Sequence[str]) -> Iterator[str]:
    """Every text from the start of a part to any later word."""
    for first in range(len(parts)):
        words = " ".join(parts[first:]).split()
        yield from map(with_full_stop, itertools.accumulate(words, "{} {}".format))


def _with_pauses(args: argparse.Namespace, recordings: Sequence[DrySpeech]) -> list[Take]:
    """Takes from the corpus, or else recordings with a pause cut in."""
    if not args.pauses:
        return []
    if args.corpus and (scenes := list(scenes_with_pauses(args.corpus))):
        return perform_all(scenes, args.pauses, args.seed)
    rng = np.random.default_rng(args.seed)
    sources = itertools.islice(itertools.cycle(recordings), args.pauses)
    return [perform(with_inner_pause(each, rng), rng) for each in sources]


# --- figures -----------------------------------------------------------------------------------


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The warm turns by stage with 95 % intervals, the first turns separately."""
    warm = [row for row in rows if not row["first"]]
    first = [row for row in rows if row["first"]]
    bootstrap = Bootstrap([row["group"] for row in warm])
    cut_offs = bootstrap.mean([row["cut_off"] for row in warm], [row["group"] for row in warm])
    first_ms = [row[VOICE_TO_VOICE] for row in first if row[VOICE_TO_VOICE] is not None]
    return {
        "ms_after_last_speech_sample": {
            stage: _spread(bootstrap, warm, stage) for stage in (*STAGES, VOICE_TO_VOICE)
        },
        "cut_offs": {"count": sum(row["cut_off"] for row in warm), **asdict(cut_offs)},
        "without_latency": sum(row[VOICE_TO_VOICE] is None for row in warm),
        "first_turn_ms": {"n": len(first), "p50": median(first_ms) if first_ms else None},
        "load": {
            "p50": median(row["load"] for row in rows),
            "max": max(row["load"] for row in rows),
        },
    }


def _spread(bootstrap: Bootstrap, rows: Sequence[Row], stage: str) -> dict[str, Any]:
    """Percentiles with intervals, over the rows that have ``stage``."""
    stage_rows = [row for row in rows if row[stage] is not None]
    values, groups = [row[stage] for row in stage_rows], [row["group"] for row in stage_rows]
    return {f"p{q}": asdict(bootstrap.percentile(values, q, groups)) for q in PERCENTS}


def _show(console: Console, title: str, data: Mapping[str, Any]) -> None:
    table = Table(f"{title}: ms", "n", *(f"P{q} [95 %]" for q in PERCENTS), box=None)
    for stage, spread in data["ms_after_last_speech_sample"].items():
        cells = [_cell(spread[f"p{q}"]) for q in PERCENTS]
        table.add_row(stage.replace("_", " "), str(spread["p50"]["n"]), *cells)
    console.print(table)
    cut, first = data["cut_offs"], data["first_turn_ms"]
    console.print(f"cut off: {cut['count']} of {cut['n']}, no latency: {data['without_latency']}")
    console.print(f"first turn after a start: {first['p50']} ms (n={first['n']})")
    if "rss_mib" in data:
        console.print(f"memory, MiB: {data['rss_mib']}")
    if "discarded" in data:
        console.print(f"engine time in discarded answers: {data['discarded']}")
    console.print(f"load: {data['load']}\n")


def _cell(estimate: Mapping[str, Any]) -> str:
    if estimate["value"] is None:
        return "-"
    return "{value:.0f} [{low:.0f}, {high:.0f}]".format(**estimate)


# --- the command -------------------------------------------------------------------------------


def main() -> None:
    parser = arguments(__doc__, "benchmarks.latency", settings=True)
    parser.add_argument("what", choices=("embedded", "scripted"))
    parser.add_argument("--turns", type=int)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--real-servers", action="store_true")
    parser.add_argument("--pauses", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    speech = parser.add_mutually_exclusive_group()
    speech.add_argument("--corpus", type=Path)
    speech.add_argument("--people", type=Path)
    args = parser.parse_args()
    is_embedded = args.what == "embedded"
    if args.people and not is_embedded:
        parser.error("--people is for embedded: the scripted recogniser needs the words")
    args.turns = args.turns or (200 if is_embedded else 100)
    extra = args.starts if is_embedded else args.pauses + 2
    with (
        tempfile.TemporaryDirectory() as folder,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        bar = progress.add_task(args.what, total=args.turns + extra)
        measure = embedded if is_embedded else scripted
        try:
            data = asyncio.run(measure(args, Path(folder), lambda: progress.advance(bar)))
        except ReachyVoiceError as error:
            sys.exit(str(error))
    conditions = {name: getattr(args, name) for name in ("seed", "config", "sets")}
    keep({**data, **conditions}, args.out)
    console = Console(highlight=False, emoji=False, soft_wrap=True)
    for name, part in ({"embedded": data} if is_embedded else data).items():
        _show(console, name, part)


if __name__ == "__main__":
    main()
