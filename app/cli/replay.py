"""``reachy-voice replay``: play a recording of sessions again, and see what became of each turn."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.options import SetOption
from app.settings.yaml_tree import parse_value
from pipeline.errors import ConfigError
from pipeline.recording.difference import compare
from pipeline.recording.plain import RecordingError
from pipeline.recording.reading import HeldSession, read_file
from pipeline.recording.replay import Replayed, changed, replay
from pipeline.settings import SessionSettings
from pipeline.turn_record import TurnRecord

FileArgument = Annotated[Path, typer.Argument(help="What serve --record has written.")]
SessionOption = Annotated[
    str | None, typer.Option("--session", metavar="NAME", help="Only this session of the file.")
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Where to write all events of the replay, as JSON lines."),
]


def replay_command(
    file: FileArgument,
    session: SessionOption = None,
    out: OutOption = None,
    overrides: SetOption = None,
) -> None:
    """Play recorded sessions again, without engines; with --set, as if it had been set so."""
    held = read_file(file)
    if out and out.exists() and out.samefile(file):
        raise _cannot_write(out, "it is the recording itself")
    console = Console(highlight=False, emoji=False)
    for problem in held.problems:
        console.print(f"[yellow]{escape(str(file))}: {escape(problem)}.[/]")
    fine = True
    lines: list[str] = []
    for one in _chosen(held.sessions, session, file):
        settings = _settings(one, overrides or [])
        replayed = replay(one, settings)
        lines += replayed.lines(one.name)
        console.print(f"[bold]{_harmless(one.name)}[/] {_about(one)}")
        print_records(console, replayed)
        fine &= print_result(console, one, replayed, what_if=settings is not None)
    if out:
        _write(out, lines)
    if not fine:
        raise typer.Exit(1)


def _write(out: Path, lines: Sequence[str]) -> None:
    """What people say is in it, so only its owner can read it."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with os.fdopen(os.open(out, flags, 0o600), "wb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                os.fchmod(file.fileno(), 0o600)
            file.writelines(f"{line}\n".encode("utf-8", "surrogatepass") for line in lines)
    except OSError as error:
        raise _cannot_write(out, error.strerror or str(error)) from error


def _cannot_write(out: Path, why: str) -> RecordingError:
    fix = "Give --out the name of a new file in a folder of yours"
    return RecordingError(f"Cannot write {out}", why=why, fix=fix)


def _chosen(
    sessions: dict[str, HeldSession], name: str | None, file: Path
) -> Sequence[HeldSession]:
    if not sessions:
        raise RecordingError(
            f"There is no session in {file}",
            why="no client has talked to that server",
            fix="Record one: reachy-voice serve --record FILE",
        )
    if name is None:
        return list(sessions.values())
    if name not in sessions:
        why = f"it has {', '.join(map(_harmless, sessions))}"
        raise RecordingError(f"{file} has no session {name}", why=why, fix="Name one of them")
    return [sessions[name]]


def _settings(held: HeldSession, overrides: Sequence[str]) -> SessionSettings | None:
    """What is to be otherwise than it was; ``None``: nothing."""
    settings = held.settings
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(
                f"--set {text} cannot be read",
                why="it is not section.key=value",
                fix="For example: --set endpointing.clear_wait_ms=300",
            )
        settings = changed(settings, name.strip(), parse_value(value, f"--set {name}"))
    return settings if overrides else None


def _about(held: HeldSession) -> str:
    end = "" if held.whole else " [yellow]and was cut off then[/]"
    return f"[dim]lasted {held.last_at:.1f} s, recorded by {_harmless(held.version)}[/]{end}"


# --- what is printed ---------------------------------------------------------------------------


NUMBERS = ("at s", "end", "audio", "waste s", "cached")
FIXED_WIDTH = 57
"""Of all columns but the texts, with the space between them."""
WIDE = 140
"""From here there is room for the texts beside the numbers; else they come below."""
TEXTS = ("said", "heard", "why")
"""What the user said, what was heard of the answer, and why it was the end of the turn."""


def print_records(console: Console, replayed: Replayed) -> None:
    """One line a turn: ``end`` and ``audio`` are when its gate opened and when the first of the
    answer left, in ms after the end of speech."""
    rows: list[tuple[float, TurnRecord, str]] = []
    rows += [(at, record, record.outcome) for at, record in replayed.records]
    rows += [(at, record, "unfinished") for at, record in replayed.unfinished_records]
    if not rows:
        console.print("[dim]There was no turn.[/]")
    elif console.width >= WIDE:
        _print_beside(console, rows)
    else:
        _print_below(console, rows)


def _print_beside(console: Console, rows: Sequence[tuple[float, TurnRecord, str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in NUMBERS:
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("became", *TEXTS):
        table.add_column(name, no_wrap=True)
    width = (console.width - FIXED_WIDTH) // len(TEXTS) - 2
    for at, record, became in rows:
        shown = [_short(text, width) for text in _texts(record)]
        table.add_row(*_numbers(at, record), became, *shown)
    console.print(table)


def _print_below(console: Console, rows: Sequence[tuple[float, TurnRecord, str]]) -> None:
    widths = [max(7, len(name)) for name in NUMBERS]

    def line(cells: Sequence[str], became: str) -> str:
        numbers = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        return f"{' '.join(numbers)}  {became}"

    console.print(f"[bold]{line(NUMBERS, 'became')}[/]", soft_wrap=True)
    for at, record, became in rows:
        console.print(line(_numbers(at, record), became), soft_wrap=True)
        for name, text in zip(TEXTS, _texts(record), strict=True):
            if text:
                short = _short(text, console.width - 9)
                console.print(f"  [dim]{name:<5}[/]  {short}", soft_wrap=True)


def _numbers(at: float, record: TurnRecord) -> list[str]:
    usage = record.usage
    return [
        f"{at - (record.ended_ms or 0) / 1000:.2f}",
        _ms(record.endpoint_ms),
        _ms(record.first_audio_ms),
        f"{record.engine_wasted_s:.2f}",
        f"{usage.cached / usage.prompt:.0%}" if usage.prompt else "-",
    ]


def _texts(record: TurnRecord) -> tuple[str, str, str]:
    judged = record.judgement
    why = f"{judged.probability:.2f} {', '.join(judged.reasons)}" if judged else record.origin
    return record.text or "", record.heard, why


def _short(text: str, width: int) -> str:
    line = " ".join(text.split())
    return _harmless(line if len(line) <= width else f"{line[: width - 3]}...")


def _harmless(text: str) -> str:
    """Untrusted words without anything that a terminal, or rich, acts upon."""
    return escape("".join(char if char.isprintable() else "?" for char in text))


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def print_result(console: Console, held: HeldSession, replayed: Replayed, *, what_if: bool) -> bool:
    """Whether it went as it was recorded, or why it did not. True if all is well."""
    if replayed.stopped:
        console.print(f"[bold yellow]The replay stops here.[/] {_harmless(replayed.stopped)}")
    if what_if:
        return replayed.stopped is None
    cut_s = math.inf if held.whole else held.end_s
    if replayed.stopped:
        cut_s = replayed.published[-1].at if replayed.published else 0.0
    found = compare(held.events, replayed.events, cut_s)
    if found.difference:
        console.print(f"[bold red]Not as recorded.[/] {_harmless(found.difference)}")
    elif not replayed.stopped:
        console.print(
            f"[green]As recorded:[/] {found.events} events, "
            f"no time is off by more than {found.largest_ms:.1f} ms."
        )
        if found.cuts or replayed.otherwise:
            console.print(
                f"[dim]The live server's timers were late: {found.cuts} answers were cut off a "
                f"piece earlier or later, and {replayed.otherwise} prompts had a word more or "
                f"less of them.[/]"
            )
    return replayed.stopped is None and found.difference is None
