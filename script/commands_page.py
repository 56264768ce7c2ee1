"""Write docs/commands.md from the commands and their errors."""

from __future__ import annotations

import importlib
import pkgutil
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperArgument, TyperGroup

import app
import hardware
import pipeline
from app.cli.command_line import cli
from pipeline.errors import ReachyVoiceError

PAGE = Path(__file__).parents[1] / "docs/commands.md"

HEAD = """# Commands and exit codes

Written by `script/commands_page.py` from the code. Commands are in `.venv/bin`; `--help` explains
every option, and most take `--config PROFILE|FILE` and `--set KEY=VALUE`.

`script/serve [--plan] [--setup-only] [--torch auto|cpu|cuda]` sets up what is missing, and takes
the options of `reachy-voice serve`. `reachy-voice` alone also opens the console.
"""

EVERYWHERE = ("--help", "--config", "--set")
"""Options that the page does not repeat."""

FIXED_CODES = {
    0: "done; also a server, `talk` or `xvf watch` that Ctrl-C or SIGTERM ended",
    2: "wrong usage",
    10: "setup: no Python or no venv",
    11: "setup: no compiler",
    12: "setup: no network",
    13: "setup: the disk is full",
    14: "setup: the build failed",
    15: "setup: a download does not match the lock file",
    16: "this machine cannot run the chosen engines, or not as they are installed",
    17: "setup: you answered no",
    130: "Ctrl-C",
    143: "SIGTERM",
}


def page() -> str:
    """The whole page, as Markdown."""
    rows = [f"| `{usage}` | {what} |" for usage, what in _commands(typer.main.get_command(cli))]
    commands = ["| command | what it does |", "|---|---|", *rows]
    codes = [f"| {code} | {why} |" for code, why in sorted(_exit_codes().items())]
    table = ["## Exit codes", "", "| code | meaning |", "|---|---|", *codes]
    return "\n".join([HEAD, *commands, "", *table, ""])


def _commands(command: Any, path: str = "reachy-voice") -> Iterator[tuple[str, str]]:
    """Usage and first help sentence of each command. typer keeps its own copy of click."""
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from _commands(inner, f"{path} {name}")
        if not command.invoke_without_command:
            return
    usage = " ".join([path, *filter(None, map(_text, command.params))])
    yield usage.replace("|", "\\|"), command.get_short_help_str(200)


def _text(parameter: Any) -> str:
    if isinstance(parameter, TyperArgument):
        name = (parameter.metavar or parameter.name).upper().strip("[].")
        return name if parameter.required else f"[{name}]"
    if parameter.hidden or parameter.opts[0] in EVERYWHERE:
        return ""
    name = next((option for option in parameter.opts if option.startswith("--")), parameter.opts[0])
    value = parameter.metavar or parameter.name.rsplit("_", 1)[-1].upper()
    return f"[{name}]" if parameter.is_flag else f"[{name} {value}]"


def _exit_codes() -> dict[int, str]:
    for ring in (app, hardware, pipeline):
        for module in pkgutil.walk_packages(ring.__path__, f"{ring.__name__}."):
            if not module.name.endswith("__main__"):
                try:
                    importlib.import_module(module.name)
                except (ImportError, OSError):
                    continue  # the packages of an engine are not installed
    meanings = defaultdict[int, list[str]](list)
    for error in sorted(_errors(ReachyVoiceError), key=lambda error: error.__qualname__):
        if "exit_code" in vars(error) and error.exit_code not in FIXED_CODES:
            meanings[error.exit_code].append((error.__doc__ or "").partition("\n\n")[0])
    result = {code: " ".join(" ".join(texts).split()) for code, texts in meanings.items()}
    result = {code: text.replace("``", "`") for code, text in result.items()}
    return result | {1: "any other failure"} | FIXED_CODES


def _errors(of: type[ReachyVoiceError]) -> Iterator[type[ReachyVoiceError]]:
    yield of
    for inner in of.__subclasses__():
        yield from _errors(inner)


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    if parser.parse_args().check:
        current = PAGE.is_file() and PAGE.read_text() == page()
        print("docs/commands.md is up to date" if current else "run: script/commands_page.py")
        return 0 if current else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
