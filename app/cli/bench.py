"""``reachy-voice bench``: how fast does it answer, on this machine, measured from the audio?"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from app.cli.measuring import (
    SHORT_SENTENCES,
    QuestionClip,
    measure_own_server,
    measure_running_server,
    summary,
)
from app.cli.options import ConfigOption, JsonOption, SetOption
from app.compose import synthesize_alone
from app.models.weights import open_cache
from app.settings.load import load_settings
from app.setup.options import settings_options
from app.talk.realtime_client import RATE
from hardware.wav import read_recording
from pipeline.audio import Resampler
from pipeline.errors import AudioFormatError

RecordingsArgument = Annotated[
    list[Path] | None,
    typer.Argument(help="Recordings or folders of them. Default: questions spoken by the voice."),
]
TurnsOption = Annotated[int, typer.Option(min=1, help="Turns to measure.")]
UrlOption = Annotated[
    str | None, typer.Option("--url", help="Measure a running server instead of starting one.")
]


def bench(
    recordings: RecordingsArgument = None,
    turns: TurnsOption = 50,
    url: UrlOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay recordings in real time and measure last speech sample -> first reply sample."""
    clips = _clips(recordings or [], config, overrides or [])
    server = settings_options(config, overrides or [])
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("measuring", total=turns)

        def advance() -> None:
            progress.advance(bar)

        if url:
            run = asyncio.run(measure_running_server(url, clips, turns, advance))
        else:
            run = asyncio.run(measure_own_server(server, clips, turns, advance))
    data = summary(run) | {"synthetic_clips": [clip.name for clip in clips if clip.synthetic]}
    if as_json:
        typer.echo(json.dumps(data, indent=2, allow_nan=False))
    else:
        print_report(data)


def _clips(paths: list[Path], config: str | None, overrides: list[str]) -> list[QuestionClip]:
    files = [
        file for path in paths for file in (sorted(path.glob("*.wav")) if path.is_dir() else [path])
    ]
    if paths and not files:
        raise AudioFormatError("These folders contain no .wav", fix="Give other recordings")
    if files:
        return [QuestionClip(file.stem, read_recording(file, RATE)) for file in files]
    settings = load_settings(config, overrides).settings
    sounds = asyncio.run(synthesize_alone(settings, open_cache(settings), SHORT_SENTENCES))
    clips = []
    for text, (pcm, rate) in zip(SHORT_SENTENCES, sounds, strict=True):
        clips.append(QuestionClip(text, Resampler(rate, RATE).feed(pcm), synthetic=True))
    return clips


def print_report(data: dict[str, Any]) -> None:
    console = Console(highlight=False, emoji=False)
    table = Table("ms after the last speech sample", box=None, pad_edge=False)
    for name in ("n", "P50", "P95", "P99"):
        table.add_column(name, justify="right")
    for stage, row in data["stages_ms"].items():
        cells = (_number(row[p], ".0f") for p in ("p50", "p95", "p99"))
        table.add_row(stage.replace("_", " "), f"{row['n']}", *cells)
    console.print(table)
    if data["cut_off"]:
        console.print(f"answered before the speaker was done: {data['cut_off']} turns")
    if data["no_latency"]:
        console.print(f"without a latency (cut off, or no audio): {data['no_latency']} turns")
    if data["start_to_ready_s"] is not None:
        rss = data["rss_mib"]
        console.print(f"start to ready: {data['start_to_ready_s']:.1f} s")
        console.print(f"RSS: {rss['ready']:.0f} MiB ready, {rss['after']:.0f} MiB after the turns")
        console.print(f"CPU: {data['core_percent']:.0f} % of a core in conversation")
    if data["gpu"]["card"]:
        console.print(f"GPU: {data['gpu']['card']}, {_number(data['gpu']['memory_mb'], '.0f')} MB")
    if data["voice_rtf"] is not None:
        console.print(f"voice: {data['voice_rtf']:.2f} s for each second of speech")
    console.print(f"holes in answers: {data['holes']['n']}, {data['holes']['ms']:.0f} ms in all")
    load = data["load_average"]
    console.print(
        f"load average during the turns: {_number(load['p50'], '.2f')} median, "
        f"{_number(load['max'], '.2f')} at most"
    )
    if data["synthetic_clips"]:
        console.print("The questions were synthetic, made by the configured voice.")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
