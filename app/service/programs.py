"""The system's own programs, run for their exit code and output."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from app.service.errors import ServiceError

NO_SUCH_PROGRAM = 127


def ask(environ: Mapping[str, str], *command: str) -> tuple[int, str]:
    """The exit code and the output; 127 if there is no such program."""
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return NO_SUCH_PROGRAM, f"{command[0]} is not installed"
    return done.returncode, done.stdout.strip()


def do(environ: Mapping[str, str], *command: str, fix: str) -> str:
    """The output. Raises ``ServiceError`` if the command fails."""
    code, said = ask(environ, *command)
    if code == NO_SUCH_PROGRAM:
        fix = "Let this system start `reachy-voice serve` by its own means"
    if code:
        raise ServiceError(f"{' '.join(command)} failed", why=said or f"exit code {code}", fix=fix)
    return said
