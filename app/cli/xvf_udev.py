"""Install the udev rule of the microphone array."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from hardware.xvf3800.errors import ArrayError
from hardware.xvf3800.udev import RELOAD, RULES, RULES_PATH, SECOND_STEP


def install_rule(
    say: Callable[[str], None],
    path: Path = Path(RULES_PATH),
    system: str = sys.platform,
    execute: Callable[[tuple[str, ...]], int] | None = None,
) -> None:
    """Write the rule and reload udev. Raises ``ArrayError`` with what to type."""
    if system != "linux":
        say("Nothing to do: only Linux needs a rule")
        return
    try:
        path.write_text(RULES + "\n")
    except OSError as error:
        raise ArrayError(
            "The rule was not installed",
            why=f"{path} cannot be written: {error.strerror}",
            fix=f"Run: sudo {shutil.which(sys.argv[0]) or sys.argv[0]} xvf udev --install\n"
            "In a container, install the rule on the host and pass /dev/bus/usb to the container",
        ) from error
    say(f"Written: {path}")
    for command in RELOAD:
        if (execute or _run)(command) != 0:
            raise ArrayError(
                "The rule is written, but not active yet",
                why=f"`{' '.join(command)}` failed",
                fix="Unplug the array and plug it in again, or restart the machine",
            )
    say(SECOND_STEP)


def _run(command: tuple[str, ...]) -> int:
    try:
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        return 1
