"""The options that are setup's own; all others are for the server, or for pytest."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    setup_only: bool
    plan: bool
    torch: str
    """``auto``, ``cpu`` or ``cuda``."""
    workstation: bool
    settings: tuple[str, ...]
    """``--config`` and ``--set``, which decide what is needed."""
    others: tuple[str, ...]
    """Everything that setup does not know, in order."""

    @property
    def asked(self) -> tuple[str, ...]:
        """For ``app.needs``."""
        return (*self.settings, "--torch", self.torch)


def _parser() -> argparse.ArgumentParser:
    # What is not known is passed on, so nothing may be abbreviated and --help is not ours.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--setup-only", action="store_true")
    parser.add_argument("--plan", "--dry-run", action="store_true")
    parser.add_argument("--torch", choices=("auto", "cpu", "cuda"), default="auto")
    return parser


def of_serve(arguments: Sequence[str]) -> Options:
    parser = _parser()
    parser.add_argument("--config", "-c", "--profile")
    parser.add_argument("--set", action="append", default=[])
    given, others = parser.parse_known_args(arguments)
    settings = ["--config", given.config] if given.config else []
    for value in given.set:
        settings += ["--set", value]
    return Options(given.setup_only, given.plan, given.torch, False, tuple(settings), tuple(others))


def of_test(arguments: Sequence[str]) -> Options:
    parser = _parser()
    parser.add_argument("--workstation", action="store_true")
    given, others = parser.parse_known_args(arguments)
    return Options(given.setup_only, given.plan, given.torch, given.workstation, (), tuple(others))
