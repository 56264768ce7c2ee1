"""``reachy-voice xvf``: read and control the XVF3800 microphone array."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.options import ConfigOption, JsonOption, SetOption
from app.cli.xvf_text import NOT_KEPT, lines_of, notice_line, reading_line, text_of
from app.settings.load import load_settings
from app.settings.model import Settings
from hardware.xvf3800.boards import BOARD_NAMES
from hardware.xvf3800.codec import Values, same
from hardware.xvf3800.control import ArrayControl, numbers
from hardware.xvf3800.errors import ArrayError, ParameterError, array_error
from hardware.xvf3800.opening import open_array
from hardware.xvf3800.parameters import LASTING, PARAMETERS, Parameter, Value, is_known, parameter
from hardware.xvf3800.presets import PRESETS, apply_preset, preset
from hardware.xvf3800.rebooting import reboot as restart_and_wait
from hardware.xvf3800.udev import RELOAD, RULES, RULES_PATH, SECOND_STEP
from hardware.xvf3800.watch import ArrayLost, ArrayNotice, ArrayReading, ArrayWatch

app = typer.Typer(
    no_args_is_help=True, help="Read, set and watch an XVF3800 array, on USB or at robot.url."
)

SETTLE_S = 0.1
"""From a write until the chip returns the new value (SDK of reachy-mini)."""

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As in `xvf dump`; any case.")]


@contextlib.contextmanager
def array_control(settings: Settings) -> Iterator[ArrayControl]:
    """The array that the settings choose, closed afterwards."""
    control = _open(settings)
    try:
        yield control
    finally:
        control.close()


def _open(settings: Settings) -> ArrayControl:
    # array.control is for `talk`; these commands always need the array.
    array = settings.array.model_copy(update={"control": "auto"})
    return open_array(array, settings.robot.url)


@app.command()
def get(name: NameArgument, config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Read one parameter."""
    _require_known(name)
    with array_control(load_settings(config, overrides or ()).settings) as control:
        values = control.read(name)
        typer.echo(text_of(parameter(control.board, name), values))


@app.command("set", context_settings={"ignore_unknown_options": True})
def set_(
    name: NameArgument,
    values: Annotated[list[str], typer.Argument(metavar="VALUE...", help="Numbers; 0x… too.")],
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Write one parameter, and read it back. It lasts until the board restarts."""
    _require_known(name)
    with array_control(load_settings(config, overrides or ()).settings) as control:
        target = parameter(control.board, name)
        if target.name == "REBOOT":
            raise ParameterError("REBOOT is a separate command", fix="reachy-voice xvf reboot")
        request = tuple(_number(target, text) for text in values)
        before = numbers(control, target.name) if target.access == "rw" else None
        control.write(target.name, *request)
        if before is None or target.name in LASTING:
            typer.echo(f"{target.name} done ({target.meaning})")
            return
        time.sleep(SETTLE_S)
        typer.echo(_result(control, target, request, before))


def _require_known(name: str) -> None:
    """Reject an unknown parameter before searching for an array. Raises ``ParameterError``."""
    if not is_known(name):
        parameter("reachy", name)  # its error suggests similar names


def _result(control: ArrayControl, target: Parameter, request: Values, before: Values) -> str:
    after = numbers(control, target.name)
    now = text_of(target, after)
    if not same(target, request, after):
        why = f"{target.name} is {now} after it was set to {text_of(target, request)}"
        raise array_error("not taken", why)
    return f"{target.name} = {now} (was {text_of(target, before)})\n{NOT_KEPT}"


def _number(target: Parameter, text: str) -> Value:
    for kind in (partial(int, base=0), float):
        with contextlib.suppress(ValueError):
            return kind(text)
    raise ParameterError(
        f"{target.name} cannot be set to that", why=f"{text} is not a number", fix="Give numbers"
    )


@app.command()
def dump(
    config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False
) -> None:
    """Read every parameter."""
    with array_control(load_settings(config, overrides or ()).settings) as control:
        readings = {
            each.name: _read_or_why(control, each.name)
            for each in PARAMETERS[control.board].values()
            if each.access != "wo"
        }
        if as_json:
            typer.echo(json.dumps(_as_json(control, readings), indent=2))
        else:
            typer.echo(f"{BOARD_NAMES[control.board]}, firmware {control.firmware}")
            typer.echo("\n".join(lines_of(control.board, readings)))


_MISSING = ("busy", "refused", "stalled", "wrong answer")


def _read_or_why(control: ArrayControl, name: str) -> Values | str | ArrayError:
    """The value, or why this firmware or the daemon does not return it."""
    try:
        return control.read(name)
    except ArrayError as error:
        if error.problem not in _MISSING and not isinstance(error, ParameterError):
            raise
        return error


def _as_json(control: ArrayControl, table: dict[str, Values | str | ArrayError]) -> dict[str, Any]:
    def plain(values: Values | str | ArrayError) -> Any:
        if isinstance(values, ArrayError):
            return None
        if isinstance(values, str):
            return values
        return [value if math.isfinite(value) else None for value in values]

    return {
        "board": control.board,
        "firmware": control.firmware,
        "via": control.via,
        "parameters": {name: plain(values) for name, values in table.items()},
    }


@app.command()
def watch(
    readings: Annotated[
        int | None, typer.Option("--readings", min=1, help="Stop after this many readings.")
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the direction of speech, ten times a second, until Ctrl-C."""
    settings = load_settings(config, overrides or ()).settings
    try:
        asyncio.run(_watch(settings, readings, as_json))
    except KeyboardInterrupt:
        pass
    except BaseExceptionGroup as errors:  # such as a broken pipe: `xvf watch | head`
        raise errors.exceptions[0] from None


async def _watch(settings: Settings, readings: int | None, as_json: bool) -> None:
    rest = readings
    enough = asyncio.Event()

    def note(notice: ArrayNotice) -> None:
        nonlocal rest
        if enough.is_set():
            return
        if not isinstance(notice, ArrayReading):
            typer.echo(notice_line(notice), err=True)
            if isinstance(notice, ArrayLost):
                typer.echo("Waiting for it to come back; Ctrl-C stops.", err=True)
            return
        typer.echo(reading_line(notice, as_json))
        if rest is not None:
            rest -= 1
            if rest == 0:
                enough.set()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(ArrayWatch(lambda: _open(settings), note).run())
        await enough.wait()
        running.cancel()


@app.command()
def reboot(config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Restart the chip, if the microphone delivers only zeros or to reset its parameters."""
    settings = load_settings(config, overrides or ()).settings
    control = _open(settings)
    typer.echo("Restarting; it is silent for some seconds ...")
    back = restart_and_wait(control, lambda: _open(settings))
    back.close()
    typer.echo(f"Back: {BOARD_NAMES[back.board]}, firmware {back.firmware}")


@app.command()
def presets(
    apply: Annotated[
        str | None, typer.Option("--apply", metavar="NAME", help="Apply this preset now.")
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """List the tunings for `array.preset`, or apply one."""
    if apply is None:
        for name, tuning in PRESETS.items():
            typer.echo(f"{name}: {tuning.meaning}")
            for parameter_name, values in tuning.settings:
                typer.echo(f"    {parameter_name} {' '.join(f'{value:g}' for value in values)}")
        return
    preset(apply)  # report an unknown preset before searching for an array
    with array_control(load_settings(config, overrides or ()).settings) as control:
        apply_preset(control, apply)
    typer.echo(f"{apply} is applied\n{NOT_KEPT}")


@app.command()
def udev(
    install: Annotated[
        bool, typer.Option("--install", help=f"Write it to {RULES_PATH}; needs root.")
    ] = False,
) -> None:
    """Print, or install, the udev rule that lets you control the array on Linux."""
    if install:
        install_rule()
    else:
        typer.echo(RULES)


def install_rule(
    path: Path = Path(RULES_PATH),
    system: str = sys.platform,
    execute: Callable[[tuple[str, ...]], int] | None = None,
) -> None:
    """Write the rule and reload udev. Raises ``ArrayError`` with what to type."""
    if system != "linux":
        typer.echo("Nothing to do: only Linux needs a rule")
        return
    try:
        path.write_text(RULES + "\n")
    except OSError as error:
        raise ArrayError(
            "The rule was not installed",
            why=f"{path} cannot be written: {error.strerror}",
            fix=f"Run: sudo {shutil.which(sys.argv[0]) or sys.argv[0]} xvf udev --install\n"
            "In a container, install the rule on the host and pass /dev/bus/usb to the container",
        ) from error
    typer.echo(f"Written: {path}")
    for command in RELOAD:
        if (execute or _run)(command) != 0:
            raise ArrayError(
                "The rule is written, but not active yet",
                why=f"`{' '.join(command)}` failed",
                fix="Unplug the array and plug it in again, or restart the machine",
            )
    typer.echo(SECOND_STEP)


def _run(command: tuple[str, ...]) -> int:
    try:
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        return 1
