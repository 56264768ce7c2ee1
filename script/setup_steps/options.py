"""The options that are setup's own; all others are for the server, or for pytest."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

_COMMON = """
  --plan, --dry-run     only say what would be fetched, and whether this machine is fit
  --setup-only          stop when everything is set up
  --torch auto|cpu|cuda torch for which machine; auto: CUDA where a driver of NVIDIA's is
"""
SERVE_HELP = f"""script/serve [OPTIONS]: sets up what is missing, then serves.

Options of the setup:{_COMMON}  --profile, --config   PROFILE|FILE; decides what is needed
  --set KEY=VALUE       one setting; repeatable
"""
TEST_HELP = f"""script/test [OPTIONS] [PYTEST...]: sets up what is missing, then checks and tests.


Options of the setup:{_COMMON}  --workstation         with torch, NeMo and qwen-tts, as CI does

Everything else is given to pytest, which then runs alone.
"""


@dataclass(frozen=True)
class Options:
    setup_only: bool
    plan: bool
    torch: str
    """``auto``, ``cpu`` or ``cuda``."""
    help: bool
    others: tuple[str, ...]
    """Everything that setup does not know, in order."""
    workstation: bool = False
    config: str = ""
    overrides: tuple[str, ...] = ()
    """Of ``--set``."""

    @property
    def settings(self) -> tuple[str, ...]:
        """``--config`` and ``--set``, which decide what is needed."""
        config = ("--config", self.config) if self.config else ()
        return (*config, *(word for value in self.overrides for word in ("--set", value)))

    @property
    def asked(self) -> tuple[str, ...]:
        """For ``app.doctor.needs``."""
        return (*self.settings, "--torch", self.torch)


def _parser(program: str) -> argparse.ArgumentParser:
    # What is not known is passed on, so nothing may be abbreviated; --help is printed elsewhere.
    parser = argparse.ArgumentParser(prog=program, add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--setup-only", action="store_true")
    parser.add_argument("--plan", "--dry-run", action="store_true")
    parser.add_argument("--torch", choices=("auto", "cpu", "cuda"), default="auto")
    return parser


def of_serve(arguments: Sequence[str]) -> Options:
    parser = _parser("script/serve")
    parser.add_argument("--config", "-c", "--profile", default="")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    given, others = parser.parse_known_args(arguments)
    return Options(
        given.setup_only,
        given.plan,
        given.torch,
        given.help,
        tuple(others),
        config=given.config,
        overrides=tuple(given.overrides),
    )


def of_test(arguments: Sequence[str]) -> Options:
    parser = _parser("script/test")
    parser.add_argument("--workstation", action="store_true")
    given, others = parser.parse_known_args(arguments)
    return Options(
        given.setup_only, given.plan, given.torch, given.help, tuple(others), given.workstation
    )
