"""Options of setup itself; all others are for the server or for pytest."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from app.setup.failures import SETTINGS, SetupError


def of_serve(arguments: Sequence[str]) -> argparse.Namespace:
    """``settings``: options that decide what is needed; ``others``: options of the server."""
    parser = _parser("script/serve", "Sets up what is missing, then serves.")
    parser.add_argument(
        "--config", "-c", "--profile", default="", metavar="PROFILE|FILE", help="the settings"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one setting; repeatable"
    )
    parser.add_argument("--port", metavar="N", help="short for --set server.port=N")
    args, others = parser.parse_known_args(arguments)
    args.settings = settings_options(args.config, args.set)
    args.port_settings = settings_options("", [f"server.port={args.port}"] if args.port else [])
    return _with(args, others + (["--port", args.port] if args.port else []), parser)


def of_test(arguments: Sequence[str]) -> argparse.Namespace:
    """``others``: options of pytest."""
    about = "Sets up what is missing, then checks and tests. With pytest arguments, only tests."
    parser = _parser("script/test", about)
    parser.add_argument(
        "--quick", action="store_true", help="only what needs no compiler, weights or programs"
    )
    parser.add_argument(
        "--workstation", action="store_true", help="with torch, NeMo and qwen-tts, as CI does"
    )
    parser.add_argument(
        "--real-servers", action="store_true", help="with a llama-server, as CI does"
    )
    args, others = parser.parse_known_args(arguments)
    return _with(args, others, parser)


def settings_options(config: str | None, sets: Sequence[str]) -> list[str]:
    """The options of the program that name these settings."""
    named = ["--config", config] if config else []
    return named + [word for value in sets for word in ("--set", value)]


def _parser(program: str, about: str) -> argparse.ArgumentParser:
    # Unknown options are passed on, so abbreviations are off; --help is printed elsewhere.
    parser = argparse.ArgumentParser(program, None, about, add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument(
        "--plan",
        "--dry-run",
        action="store_true",
        help="only show what would be fetched, and whether this machine can run it",
    )
    parser.add_argument("--setup-only", action="store_true", help="stop after setup")
    parser.add_argument(
        "--torch",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="the build of torch; auto: CUDA if NVIDIA's driver is installed",
    )
    return parser


def _with(
    args: argparse.Namespace, others: Sequence[str], parser: argparse.ArgumentParser
) -> argparse.Namespace:
    args.others = others
    args.help_text = parser.format_help()
    return args


def require_config(root: Path, config: str) -> None:
    """Check ``config`` as ``app.settings.load.resolve`` does, but before anything is fetched.
    Raises ``SetupError``."""
    if "/" in config or config.endswith((".yaml", ".yml")):
        if not Path(config).expanduser().is_file():
            what, why = "there are no settings to read", f"{config} does not exist"
            raise SetupError(SETTINGS, what, why, "Check the path")
        return
    names = ["default", *sorted(path.stem for path in root.glob("config/profiles/*.yaml"))]
    if config and config not in names:
        near = get_close_matches(config, names, n=1)
        fix = f"Did you mean {near[0]}?" if near else "A file is given with its .yaml ending"
        why = f"known are: {', '.join(names)}"
        raise SetupError(SETTINGS, f"there is no profile called {config!r}", why, fix)
