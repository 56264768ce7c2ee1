"""``reachy-voice devices``: list the microphones and loudspeakers, and test them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict

import typer
from rich.console import Console
from rich.markup import escape

from app.cli.options import ConfigOption, JsonOption, SetOption
from app.settings.load import load_settings
from app.talk.devices import SLEEPY_MS, DeviceLine, SoundTest, list_devices, run_test

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
        listed = {"devices": [asdict(line) for line in lines], "problems": problems}
        typer.echo(json.dumps(listed, indent=2, ensure_ascii=False))
    else:
        _print_list(lines, problems)


@app.command("test")
def try_devices(
    config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False
) -> None:
    """Listen, play three chirps, and report what came back: level, latency, echo.

    The exit code is 1 if the microphone delivers only zeros.
    """
    tested = asyncio.run(run_test(load_settings(config, overrides or []).settings.sound))
    if as_json:
        typer.echo(json.dumps(asdict(tested), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print_test(tested)
    if tested.deaf:
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


def _print_test(tested: SoundTest) -> None:
    console = Console(emoji=False, highlight=False)
    heard, played = tested.driver_latency_ms
    console.print(
        f"microphone   {escape(tested.microphone)}, {tested.microphone_hz} Hz, driver {heard:g} ms"
    )
    console.print(
        f"loudspeaker  {escape(tested.speaker)}, {tested.speaker_hz} Hz, driver {played:g} ms"
    )
    console.print(f"room         {tested.room_dbfs:g} dBFS")
    if tested.loopback_ms is not None and tested.echo_delay_ms is not None:
        console.print(f"loop-back    {tested.loopback_ms:g} ms")
        console.print(
            f"echo         {tested.echo_return_loss_db:g} dB quieter than what is played,"
            f" {tested.echo_delay_ms:g} ms after it"
        )
    if tested.lost_start_ms:
        console.print(f"asleep       {tested.lost_start_ms:g} ms of the first chirp were lost")
    console.print(f"losses       {tested.lost_samples} samples, {tested.xruns} xruns")
    for advice in advise(tested):
        console.print(f"[yellow]-> {escape(advice)}[/]")


def advise(tested: SoundTest) -> list[str]:
    """What to do about bad figures."""
    if tested.deaf:
        return [
            "The microphone delivers only zeros, or next to nothing: it is muted, or that channel"
            " is not connected."
            " Unmute it in the system's sound settings, or set sound.channel to another one"
        ]
    if tested.echo_delay_ms is None:
        return [
            "The chirps were not heard. With an XVF3800 that is right: its chip cancels them."
            " Otherwise turn the loudspeaker up, and check sound.speaker"
        ]
    if not _SOON_MS <= tested.echo_delay_ms <= _LATE_MS:
        return [
            f"The echo comes {tested.echo_delay_ms:g} ms after what is played; echo cancelling"
            " reaches from 6 to 300. Choose another loudspeaker (Bluetooth is too late), or set"
            " sound.echo to half-duplex"
        ]
    if (tested.lost_start_ms or 0) >= SLEEPY_MS:
        return [
            "The loudspeaker sleeps in silence and loses the beginning of what it plays next. Set"
            " sound.keep_awake_dbfs to -50, test again, and raise it if that does not help"
        ]
    return []
