"""The command line: verbs that parse, call and print. Every error has a next step."""

from __future__ import annotations

import errno
import importlib.metadata
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from app.cli import (
    access,
    ask,
    bench,
    config,
    devices,
    doctor,
    engines,
    models,
    pair,
    people,
    say,
    serve,
    service,
    setup,
    talk,
    xvf,
)
from pipeline.errors import ReachyVoiceError
from pipeline.workers.placements import leave_now_if_threads_were_left

cli = typer.Typer(
    name="reachy-voice",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A voice for a robot that runs wholly on this machine, behind the OpenAI Realtime API.",
    epilog="Next step: reachy-voice serve, or reachy-voice doctor when something does not work.",
)
cli.command()(setup.setup)
cli.command()(serve.serve)
cli.command()(talk.talk)
cli.command()(say.say)
cli.command()(ask.ask)
cli.command()(bench.bench)
cli.command()(access.allow)
cli.command()(pair.pair)
cli.command()(doctor.doctor)
cli.add_typer(access.app, name="key")
cli.add_typer(people.app, name="people")
cli.add_typer(models.app, name="models")
cli.add_typer(config.app, name="config")
cli.add_typer(engines.app, name="engines")
cli.add_typer(devices.app, name="devices")
cli.add_typer(xvf.app, name="xvf")
cli.add_typer(service.app, name="service")


def _version(value: bool) -> None:
    if value:
        typer.echo(importlib.metadata.version("reachy-voice"))
        raise typer.Exit


@cli.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def run() -> int:
    """Run the command line and return its exit code. User errors print a message, not a
    traceback."""
    try:
        cli()
    except SystemExit as end:
        code = _code(end)
    except ReachyVoiceError as error:
        code = _tell(error)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        full = "Nothing more can be written"
        code = _tell(ReachyVoiceError(full, why=str(error), fix="Make room on the disk"))
    else:
        code = 0
    leave_now_if_threads_were_left(code)
    return code


def _tell(error: ReachyVoiceError) -> int:
    """Print it; returns the exit code."""
    console = Console(stderr=True, highlight=False, emoji=False)
    # A command that is wrapped cannot be copied.
    console.print(f"[bold red]{escape(error.what)}[/]", soft_wrap=True)
    if error.why:
        console.print(f"  why: {escape(error.why)}", soft_wrap=True)
    if error.fix:
        console.print(f"  [bold]do:  {escape(error.fix)}[/]", soft_wrap=True)
    return error.exit_code


def _code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    typer.echo(end.code, err=True)
    return 1
