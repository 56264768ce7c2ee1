"""``reachy-voice pair``: one command, and a Reachy Mini talks to this machine."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from app.access_file import AccessFile
from app.commands.options import ConfigOption, JsonOption, SetOption
from app.pairing.steps import Outcome, Robot, Times
from app.settings import Settings
from app.settings_load import load_settings
from pipeline.errors import ReachyVoiceError

if TYPE_CHECKING:
    from app.pairing.flow import Doors

RobotArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[ROBOT]",
        help="Name or address: reachy-mini.local, 192.168.1.7, localhost. Without it: the one "
        "that is found.",
    ),
]
PortOption = Annotated[
    int | None, typer.Option("--port", min=1, max=65535, help="This machine's server.")
]
FindOption = Annotated[bool, typer.Option("--find", help="Only list the robots that are found.")]
StartOption = Annotated[
    bool, typer.Option("--start", help="Start the conversation app where it does not run.")
]
DaemonOption = Annotated[
    int | None,
    typer.Option("--daemon-port", min=1, max=65535, help="The robot's daemon, if not 8000."),
]

DEFAULT_PORT = 8765

T = TypeVar("T")


class Cancelled(ReachyVoiceError):
    """Ctrl-C."""

    exit_code = 130


def pair(
    robot: RobotArgument = None,
    port: PortOption = None,
    find: FindOption = False,
    start: StartOption = False,
    daemon_port: DaemonOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Point a Reachy Mini's conversation app at the server that runs on this machine.

    Finds the robot, allows its address, tells the app, and checks that it arrives. What was changed
    is changed back where it does not.
    """
    from app.pairing.flow import Pairing, Wish
    from app.pairing.place import robots_around

    settings = load_settings(config, overrides or ()).settings
    if find:
        _show_robots(_run(robots_around(Times(), daemon_port)), as_json)
        return
    wish = Wish(robot, port or settings.server.port or DEFAULT_PORT, start, daemon_port)
    outcomes: list[Outcome] = []

    def tell(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if not as_json:
            _print(outcome)

    try:
        paired = _run(Pairing(wish, _doors(settings), tell).run())
    except ReachyVoiceError as error:
        if not as_json:
            raise
        failure = {"what": error.what, "why": error.why, "do": error.fix}
        _print_json({"paired": False, "error": failure, "steps": list(map(_shown, outcomes))})
        raise typer.Exit(error.exit_code) from error
    if as_json:
        place = _place(paired)
        _print_json({"paired": True, "robot": place, "steps": list(map(_shown, outcomes))})
    else:
        typer.echo("Say something to it.")


def _doors(settings: Settings) -> Doors:
    from app.pairing.flow import Doors

    file = AccessFile(settings.paths.access(os.environ))
    return Doors(file, settings.access.addresses, settings.access.loopback)


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise Cancelled("Stopped", fix="What was changed has been changed back") from None


# --- what is shown -----------------------------------------------------------------------------


def _print(outcome: Outcome) -> None:
    """What failed stands below, with why and what to do; here is only which step it was."""
    if outcome.state == "failed":
        typer.echo(f"failed  {outcome.step}")
        return
    line = f"{outcome.state:<7} {outcome.step}: {outcome.what}"
    typer.echo(". ".join(part for part in (line, outcome.fix) if part))


def _shown(outcome: Outcome) -> dict[str, str]:
    shown = asdict(outcome)
    shown["do"] = shown.pop("fix")
    return {key: str(value) for key, value in shown.items() if value}


def _place(robot: Robot) -> dict[str, Any]:
    return {**asdict(robot), "here": robot.here}


def _print_json(what: dict[str, Any]) -> None:
    typer.echo(json.dumps(what, indent=2, ensure_ascii=False))


def _show_robots(robots: list[Robot], as_json: bool) -> None:
    if as_json:
        _print_json({"robots": [_place(robot) for robot in robots]})
        return
    for robot in robots:
        where = "on this machine" if robot.here else robot.address
        typer.echo(f"{robot.name:<24} {where}")
    if not robots:
        typer.echo("None was found. By address: reachy-voice pair 192.168.1.7")
