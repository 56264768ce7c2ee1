"""``reachy-voice devices``: list the microphones and loudspeakers, and test them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict

import typer
from rich.console import Console
from rich.markup import escape

from app.cli.options import ConfigOption, JsonOption, SetOption
from app.settings.load import load_settings
from app.talk.devices import (
    SILENT_S,
    SLEEPY_MS,
    DeviceLine,
    SoundTest,
    list_devices,
    run_test,
    with_false_starts,
)

app = typer.Typer()

_LATE_MS = 300.0
"""The echo canceller's reach."""
_SOON_MS = 6.0


@app.callback(invoke_without_command=True)
def devices(
    context: typer.Context,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the sound devices, and mark those the settings choose; `devices test` tests those."""
    if context.invoked_subcommand is not None:
        return
    sound = load_settings(config, overrides or []).settings.sound
    lines, problems = asyncio.run(list_devices(sound))
    if as_json:
        data = {"devices": [asdict(line) for line in lines], "problems": problems}
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        _print_list(lines, problems)


@app.command("test")
def try_devices(
    config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False
) -> None:
    """Listen to the silent room while the robot moves, play three chirps, and report: level, false
    starts of turns, latency, echo.

    The exit code is 1 if the microphone delivers only zeros.
    """
    settings = load_settings(config, overrides or []).settings
    if not as_json:
        typer.echo(f"Please be silent for {SILENT_S:g} seconds.")
    test, silence = asyncio.run(run_test(settings.sound, settings.robot))
    test = with_false_starts(test, silence, settings)
    if as_json:
        typer.echo(json.dumps(asdict(test), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print_test(test)
    if test.deaf:
        raise typer.Exit(1)


def _print_list(lines: list[DeviceLine], problems: list[str]) -> None:
    from rich.table import Table

    console = Console(emoji=False, highlight=False)
    if not lines:
        console.print("This machine has no sound devices.")
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "in", "out", "rates (Hz)", ""):
        table.add_column(heading, overflow="fold")
    for line in lines:
        rates = " ".join(str(rate) for rate in line.rates_hz) or "cannot be opened now"
        marks = ", ".join(_marks(line))
        table.add_row(escape(line.name), str(line.inputs), str(line.outputs), rates, marks)
    if lines:
        console.print(table)
    for problem in problems:
        console.print(f"[yellow]{escape(problem)}[/]")
    if not problems:
        console.print("Next step: reachy-voice devices test")


def _marks(line: DeviceLine) -> list[str]:
    marks = ["XVF3800"] if line.array else []
    marks += ["microphone"] if line.microphone else []
    return marks + (["loudspeaker"] if line.speaker else [])


def _print_test(test: SoundTest) -> None:
    console = Console(emoji=False, highlight=False)
    input_ms, output_ms = test.driver_latency_ms
    console.print(
        f"microphone   {escape(test.microphone)}, {test.microphone_hz} Hz, driver {input_ms:g} ms"
    )
    console.print(
        f"loudspeaker  {escape(test.speaker)}, {test.speaker_hz} Hz, driver {output_ms:g} ms"
    )
    console.print(f"room         {test.room_dbfs:g} dBFS, robot: {escape(test.robot)}")
    starts = "not measured: the VAD is not installed"
    if test.false_starts is not None:
        starts = f"{test.false_starts} turns would have begun in {SILENT_S:g} s of silence"
    console.print(f"false starts {starts}")
    if test.loopback_ms is not None and test.echo_delay_ms is not None:
        console.print(f"loop-back    {test.loopback_ms:g} ms")
        console.print(
            f"echo         {test.echo_return_loss_db:g} dB quieter than what is played,"
            f" {test.echo_delay_ms:g} ms after it"
        )
    if test.lost_start_ms:
        console.print(f"asleep       {test.lost_start_ms:g} ms of the first chirp were lost")
    console.print(f"losses       {test.lost_samples} samples, {test.xruns} xruns")
    for advice in advise(test):
        console.print(f"[yellow]-> {escape(advice)}[/]")


def advise(test: SoundTest) -> list[str]:
    """What to do about bad figures."""
    if test.deaf:
        return [
            "The microphone delivers only zeros, or next to nothing: it is muted, or that channel"
            " is not connected."
            " Unmute it in the system's sound settings, or set sound.channel to another one"
        ]
    return [*_advise_on_noise(test), *_advise_on_echo(test)]


def _advise_on_noise(test: SoundTest) -> Iterator[str]:
    if not test.false_starts:
        return
    if test.quiet_threshold is not None:
        setting = f"endpointing.speech_threshold to {test.quiet_threshold:g}"
        yield f"A noise is taken for speech. Set {setting}, at which no turn began, and test again"
    elif test.robot == "moved":
        yield "The robot's motors may sound like speech to it. Set robot.moves to false"
    else:
        yield "A noise is taken for speech at any threshold. Find it, and test again without it"


def _advise_on_echo(test: SoundTest) -> Iterator[str]:
    if test.echo_delay_ms is None:
        yield (
            "The chirps were not heard. With an XVF3800 that is right: its chip cancels them."
            " Otherwise turn the loudspeaker up, and check sound.speaker"
        )
    elif not _SOON_MS <= test.echo_delay_ms <= _LATE_MS:
        yield (
            f"The echo comes {test.echo_delay_ms:g} ms after what is played; echo cancelling"
            " reaches from 6 to 300. Choose another loudspeaker (Bluetooth is too late), or set"
            " sound.echo to half-duplex"
        )
    if (test.lost_start_ms or 0) >= SLEEPY_MS:
        yield (
            "The loudspeaker sleeps in silence and loses the beginning of what it plays next. Set"
            " sound.keep_awake_dbfs to -50, test again, and raise it if that does not help"
        )
