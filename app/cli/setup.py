"""``reachy-voice setup``: fetch and build what the settings need."""

from __future__ import annotations

import os
import shlex
from enum import StrEnum
from typing import Annotated

import typer

from app.cli.options import ConfigOption, SetOption
from app.setup import flow, options
from app.setup.place import Place


class Torch(StrEnum):
    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


def setup(
    config: ConfigOption = None,
    overrides: SetOption = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only show what would be fetched and compiled.")
    ] = False,
    torch: Annotated[
        Torch, typer.Option(help="The build of torch; auto: CUDA if NVIDIA's driver is installed.")
    ] = Torch.AUTO,
) -> None:
    """Install the packages and weights that the settings need, and compile llama.cpp."""
    arguments = ["--torch", torch.value, *(["--plan"] if plan else [])]
    arguments += options.settings_options(config, overrides or ())
    args = options.of_serve(arguments)
    place = Place.of(os.environ)

    def work() -> int:
        flow.prepare_or_remote(place, args)
        if not plan:
            serve = shlex.join(["reachy-voice", "serve", *args.settings])
            typer.echo(f"Everything is set up. Next: {serve}")
        return 0

    raise typer.Exit(flow.exit_code_of(work))
