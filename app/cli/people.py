"""``reachy-voice people``: whose voices the robot knows."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from app.cli.models import pull_with_bars
from app.cli.options import ConfigOption, OfflineOption, SetOption
from app.models.weights import WeightsCache, open_cache
from app.people.enrolment import voice_alone
from app.people.file import PeopleFile, model_digest
from app.server.control import NotRunning, ask, socket_path
from app.settings.load import load_settings
from app.settings.model import Settings
from hardware.sound.card import SoundCard
from hardware.wav import read_recording
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.contract import Embedding
from pipeline.engines.voices import ENROLMENT_S
from pipeline.errors import one_error

LONGEST_S = 90
"""How long the microphone is listened to."""
TEXT = """\
Read this aloud, or say what you like, at your usual distance from the robot, and alone:

  I live here, and I would like you to know my voice. In the morning I ask what the weather will
  be like, and whether I need an umbrella. Later I want to know how long the eggs have been on the
  stove, and when the next bus goes. Sometimes I only want to hear a story, or the name of a bird
  that I saw in the garden. When somebody else talks, or the radio, you need not answer.
"""

app = typer.Typer(no_args_is_help=True, help="Add, list and remove voices that the robot knows.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What the robot calls them.")]


@app.command()
def add(
    name: NameArgument,
    recording: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="A recording, instead of the microphone."),
    ] = None,
    offline: OfflineOption = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Learn a voice from 20 seconds of speech. A running server knows it at once."""
    settings = load_settings(config, overrides or ()).settings
    cache, file = open_cache(settings), _file(settings)
    file.read().require_new(name)
    pcm = None if recording is None else read_recording(recording, LISTEN_RATE)
    pull_with_bars(cache, settings.speaker_weights(), offline=offline)
    model = model_digest(settings.speaker, cache)
    voice = asyncio.run(_learn(settings, cache, pcm))
    file.change(lambda known: known.with_person(name, voice, model))
    typer.echo(f"{name} is known now.")
    _tell_server(settings)


async def _learn(settings: Settings, cache: WeightsCache, pcm: Pcm | None) -> Embedding:
    """Learn a voice from ``pcm``; ``None``: from the microphone."""

    async def seconds_of(pcm: Pcm) -> AsyncIterator[Pcm]:
        for at in range(0, len(pcm), LISTEN_RATE):
            yield pcm[at : at + LISTEN_RATE]

    async def heard(card: SoundCard) -> AsyncIterator[Pcm]:
        samples = 0
        async for block in card.blocks():
            yield block.pcm
            samples += len(block.pcm)
            if samples > LONGEST_S * LISTEN_RATE:
                return

    def tell(speech_s: float) -> None:
        typer.echo(f"\r{min(speech_s, ENROLMENT_S):4.0f} of {ENROLMENT_S:g} s", nl=False)

    if pcm is not None:
        return await voice_alone(settings, cache, seconds_of(pcm))
    card = SoundCard(settings.sound, lambda notice: None)
    typer.echo(TEXT)
    with one_error():
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(card.run())
            voice = await voice_alone(settings, cache, heard(card), tell)
            typer.echo("")
            running.cancel()
    return voice


@app.command("list")
def list_(config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Show whose voices are known."""
    people = _file(load_settings(config, overrides or ()).settings).read().people
    for each in people:
        typer.echo(f"{each.name:<20} since {each.added}")
    if not people:
        typer.echo("Nobody. To add somebody: reachy-voice people add NAME")


@app.command()
def remove(name: NameArgument, config: ConfigOption = None, overrides: SetOption = None) -> None:
    """Forget a voice: what was learned of it is deleted."""
    settings = load_settings(config, overrides or ()).settings
    _file(settings).change(lambda known: known.without(name))
    typer.echo(f"{name} is forgotten.")
    _tell_server(settings)


def _file(settings: Settings) -> PeopleFile:
    return PeopleFile(settings.paths.access(os.environ))


def _tell_server(settings: Settings) -> None:
    with suppress(NotRunning):  # it reads the file when it starts
        ask(socket_path(settings.server.port, os.environ), {"people": "changed"}, lambda step: None)
