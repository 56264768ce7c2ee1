"""Command-line options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        "--profile",
        metavar="PROFILE|FILE",
        help="A profile (default, espeak, ...) or a YAML file of your own.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; repeatable."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
OfflineOption = Annotated[
    bool,
    typer.Option("--offline", envvar="REACHY_VOICE_OFFLINE", help="Never touch the network."),
]
