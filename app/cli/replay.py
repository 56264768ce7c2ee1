"""``reachy-voice replay``: replay recorded sessions and compare each turn with today's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.models import open_cache
from app.cli.options import ConfigOption, SetOption
from app.cli.record import RecordOption, recording
from app.compose import Assistant, first_error
from app.settings.load import load_settings
from pipeline.bus import Bus
from pipeline.conversation.memory import Memory
from pipeline.errors import ReachyVoiceError
from pipeline.hearing.client_echo import Hearing
from pipeline.recording.plain import RecordingError
from pipeline.recording.reading import RecordedRun, read_recording
from pipeline.recording.replay import Replayed, replay
from pipeline.session import Session
from pipeline.turn_record import TurnRecord

FolderArgument = Annotated[
    Path, typer.Argument(help="A folder that serve --record wrote, or one session's folder in it.")
]

SAME_TURN_S = 2.0
"""Recorded and replayed turns count as the same if their speech ended this close together."""


def replay_command(
    folder: FolderArgument,
    config: ConfigOption = None,
    overrides: SetOption = None,
    record: RecordOption = None,
) -> None:
    """Play recorded microphones and clients again in real time; compare each turn with today's."""
    runs = read_recording(folder)
    settings = load_settings(config, overrides or ()).settings
    if record and record.resolve().is_relative_to(folder.resolve()):
        raise RecordingError(
            f"Cannot record into {record}",
            why="it is the recording itself",
            fix="Give --record the name of another folder",
        )
    console = Console(highlight=False, emoji=False)
    assistant = Assistant(settings, open_cache(settings))

    def tell(line: str) -> None:
        console.print(f"[yellow]{escape(line)}[/]", soft_wrap=True)

    with recording(assistant, record, tell):
        asyncio.run(_replay(assistant, runs, console))


async def _replay(assistant: Assistant, runs: Sequence[RecordedRun], console: Console) -> None:
    console.print("[dim]Warming the engines ...[/]")
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(assistant.run())
            await assistant.ready.wait()
            try:
                for run in runs:
                    console.print(f"[bold]{_harmless(run.name)}[/] {_about(run)}")
                    begin = partial(_session, assistant, run)
                    echo = assistant.settings.echo
                    print_turns(console, run, await replay(run, assistant.stages, echo, begin))
            finally:
                assistant.close()
    except* ReachyVoiceError as errors:
        raise first_error(errors) from None


def _session(
    assistant: Assistant, run: RecordedRun, bus: Bus, memory: Memory | None, hearing: Hearing
) -> Session:
    return assistant.session(bus, run.config, memory, hearing=hearing)


def _about(run: RecordedRun) -> str:
    end = "" if run.whole else ", [yellow]and was cut off then[/]"
    return f"[dim]lasts {run.last_at:.1f} s, recorded by {_harmless(run.version)}[/]{end}"


# --- what is printed ---------------------------------------------------------------------------

Moment = tuple[float, TurnRecord]
"""A time and the record made then."""


def print_turns(console: Console, run: RecordedRun, replayed: Replayed) -> None:
    """Print two lines per turn, recorded and now: when the speech ended, the outcome, and how many
    ms later its end was decided, the transcript was ready and the first audio was sent."""
    if not (run.records or replayed.records):
        console.print("[dim]There were no turns.[/]")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("at s", "", "became", "end", "text", "audio", "why over", "said", "heard"):
        number = name in ("at s", "end", "text", "audio")
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for recorded, now in pairs(run.records, replayed.records):
        table.add_row(*_cells("recorded", recorded))
        table.add_row(*_cells("now", now))
    console.print(table)
    if replayed.left_out:
        console.print(
            f"[dim]{replayed.left_out} of the client's messages were skipped: they refer to "
            f"answers or calls that did not happen again.[/]"
        )


def pairs(
    recorded: Sequence[Moment], now: Sequence[Moment]
) -> Iterator[tuple[Moment | None, Moment | None]]:
    """Pair recorded turns with replayed ones, ordered by the end of their speech."""
    rest = sorted(now, key=_end_s)
    for turn in sorted(recorded, key=_end_s):
        while rest and _end_s(rest[0]) < _end_s(turn) - SAME_TURN_S:
            yield None, rest.pop(0)
        same = rest and _end_s(rest[0]) < _end_s(turn) + SAME_TURN_S
        yield turn, rest.pop(0) if same else None
    for turn in rest:
        yield None, turn


def _end_s(turn: Moment) -> float:
    at, record = turn
    return at - (record.ended_ms or 0.0) / 1000


def _cells(whose: str, turn: Moment | None) -> list[str]:
    if turn is None:
        return ["", f"[dim]{whose}[/]", "[dim]no such turn[/]"]
    record = turn[1]
    judged = record.judgement
    why = f"{judged.probability:.2f} {', '.join(judged.reasons)}" if judged else record.origin
    moments = (record.endpoint_ms, record.transcript_ms, record.first_audio_ms)
    return [
        f"{_end_s(turn):.2f}",
        f"[dim]{whose}[/]",
        record.outcome,
        *("-" if ms is None else f"{ms:.0f}" for ms in moments),
        *(_harmless(" ".join(text.split())) for text in (why, record.text or "", record.heard)),
    ]


def _harmless(text: str) -> str:
    """Untrusted text without anything that a terminal or rich would interpret."""
    return escape("".join(char if char.isprintable() else "?" for char in text))
