"""``reachy-voice ask``: send a recorded question, get the spoken answer and the timeline."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from app.cli.options import ConfigOption, JsonOption, SetOption
from app.cli.record import RecordOption, recording
from app.compose import Assistant
from app.models.weights import open_cache
from app.server.serving import local_server
from app.settings.load import load_settings
from app.talk.realtime_client import RATE, SpokenTurn, connect
from hardware.wav import read_recording, require_writable, speech_end, write_recording
from pipeline.audio import Pcm

STAGES = {
    "endpoint": "the turn is over",
    "transcript": "transcript",
    "first_token": "first token",
    "first_clause": "first clause",
}
"""The first audio follows; the client times it itself."""

QuestionArgument = Annotated[Path, typer.Argument(help="A recording of a spoken question.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="Where to write the spoken answer (.wav).")
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", help="A running server, ws://HOST:PORT/v1/realtime. Default: start one."),
]


def ask(
    question: QuestionArgument,
    out: OutOption = None,
    url: UrlOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    record: RecordOption = None,
) -> None:
    """Play a recording to the assistant in real time; print what it heard, answered, and when."""
    pcm = read_recording(question, RATE)
    if out:
        require_writable(out)
    console = Console(stderr=True, highlight=False, emoji=False)
    if url and record:
        raise typer.BadParameter("cannot be used with --url", param_hint="--record")
    if url:
        turn = asyncio.run(_ask(url, pcm))
    else:
        settings = load_settings(config, overrides or ()).settings
        console.print("[dim]Warming the engines ...[/]")
        assistant = Assistant(settings, open_cache(settings))
        with recording(assistant, record, lambda line: console.print(f"[yellow]{escape(line)}[/]")):
            turn = asyncio.run(_ask_own_server(assistant, pcm))
    if out:
        write_recording(out, turn.pcm, RATE)
    if as_json:
        typer.echo(json.dumps(as_data(turn), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print(turn, out)


async def _ask_own_server(assistant: Assistant, pcm: Pcm) -> SpokenTurn:
    async with local_server(assistant) as url:
        return await _ask(url, pcm)


async def _ask(url: str, pcm: Pcm) -> SpokenTurn:
    async with connect(url) as client:
        await client.configure()
        return await client.speak(pcm, speech_end(pcm, RATE))


def as_data(turn: SpokenTurn) -> dict[str, object]:
    """The turn as JSON data; times in ms after the last sample of speech, ``None`` without audio
    or with audio before that sample."""
    latency = turn.voice_to_voice_ms
    return {
        "heard": turn.heard,
        "answered": turn.answered,
        "answer_seconds": round(len(turn.pcm) / RATE, 2),
        "timeline_ms": {stage: round(ms) for stage, ms in turn.stages_ms.items()},
        "voice_to_voice_ms": None if latency is None else round(latency),
        "usage": turn.usage,
    }


def _print(turn: SpokenTurn, out: Path | None) -> None:
    console = Console(highlight=False, emoji=False)
    console.print(f"[dim]heard   [/] {escape(turn.heard)}")
    console.print(f"[dim]answered[/] {escape(turn.answered)}")
    console.print()
    console.print(f"[dim]{0:>7} ms[/]  end of speech")
    moments = [(ms, STAGES[name]) for name, ms in turn.stages_ms.items() if name in STAGES]
    for ms, what in sorted(moments):
        console.print(f"{ms:>7.0f} ms  {what}")
    console.print(f"[bold]{_first_audio(turn)}[/]")
    if out:
        console.print(f"\n{len(turn.pcm) / RATE:.1f} s of speech written to {out}")


def _first_audio(turn: SpokenTurn) -> str:
    if (latency := turn.voice_to_voice_ms) is not None:
        return f"{latency:>7.0f} ms  first audio received"
    return " " * 12 + ("it answered before the end of speech" if turn.audio else "no audio")
