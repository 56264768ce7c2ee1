"""``reachy-voice pair``: connect a Reachy Mini to this machine."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable
from typing import Annotated, TypeVar

import typer

from app.access.file import AccessFile
from app.cli.options import ConfigOption, SetOption
from app.pairing.steps import RobotAddress, StepOutcome, Times
from app.settings.load import load_settings
from app.setup.place import USUAL_PORT
from pipeline.errors import ReachyVoiceError

RobotArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[ROBOT]",
        help="Name or address: reachy-mini.local, 192.168.1.7, localhost. Default: the only robot "
        "found.",
    ),
]
PortOption = Annotated[
    int | None, typer.Option("--port", min=1, max=65535, help="Port of this machine's server.")
]
FindOption = Annotated[bool, typer.Option("--find", help="Only list the robots found.")]

T = TypeVar("T")


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, ``kill``, and a closed terminal."""


class PairingInterrupt(ReachyVoiceError):
    """One of ``SIGNALS`` arrived."""

    def __init__(self, number: int) -> None:
        super().__init__("Stopped", fix="Changes were undone, but for what is said to be left")
        self.exit_code = 128 + number


def pair(
    robot: RobotArgument = None,
    port: PortOption = None,
    find: FindOption = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Point a Reachy Mini's conversation app at the server that runs on this machine.

    Finds the robot, allows its address, configures the app, and checks that it connects. If it does
    not, all changes are undone.
    """
    from app.pairing.flow import Pairing
    from app.pairing.place import robots_around

    settings = load_settings(config, overrides or ()).settings
    if find:
        _show_robots(asyncio.run(_until_stopped(robots_around(Times()))))
        return
    pairing = Pairing(
        robot,
        port or settings.server.port or USUAL_PORT,
        AccessFile(settings.paths.access(os.environ)),
        _print,
        settings.access.addresses,
        settings.trusts_loopback,
    )
    asyncio.run(_until_stopped(pairing.run()))
    typer.echo("Say something to it.")


async def _until_stopped(work: Awaitable[T]) -> T:
    """Raises ``PairingInterrupt`` after a signal, once all changes are undone. Only the first one
    counts, because a second would interrupt the undo."""
    loop, working = asyncio.get_running_loop(), asyncio.ensure_future(work)
    came: list[int] = []

    def stop(number: int) -> None:
        if not came:
            working.cancel()
        came.append(number)

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
            loop.add_signal_handler(number, stop, number)
    try:
        return await working
    except asyncio.CancelledError:
        raise PairingInterrupt(came[0] if came else signal.SIGINT) from None


# --- output ------------------------------------------------------------------------------------


def _print(outcome: StepOutcome) -> None:
    """For a failure print only the step: the error follows with its reason and fix."""
    if outcome.state == "failed":
        typer.echo(f"failed  {outcome.step}")
        return
    line = f"{outcome.state:<7} {outcome.step}: {outcome.what}"
    typer.echo(". ".join(part for part in (line, outcome.fix) if part))


def _show_robots(robots: list[RobotAddress]) -> None:
    for robot in robots:
        where = "on this machine" if robot.here else robot.address
        typer.echo(f"{robot.name:<24} {where}")
    if not robots:
        typer.echo("No robot was found. Give its address: reachy-voice pair 192.168.1.7")
