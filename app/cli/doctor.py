"""``reachy-voice doctor``: why does it not work?"""

from __future__ import annotations

import json
from dataclasses import asdict

import typer
from rich.console import Console
from rich.markup import escape

from app.cli.options import ConfigOption, JsonOption, SetOption
from app.doctor.checks import examine
from app.setup.finding import Check

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False
) -> None:
    """Check this machine, the settings and the weights; say how to fix problems.

    The exit code is 1 if anything fails, so that scripts can use it.
    """
    checks = examine(config, overrides or ())
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2, ensure_ascii=False))
    else:
        _print(checks)
    if any(check.state == "fail" for check in checks):
        raise typer.Exit(1)


def _print(checks: list[Check]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        colour = _COLOURS[check.state]
        fix = f"\n[{colour}]-> {escape(check.fix)}[/]" if check.fix else ""
        table.add_row(f"[{colour}]{check.state}[/]", check.name, escape(check.detail) + fix)
    Console(emoji=False).print(table)
