"""Install the udev rule of the microphone array."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from hardware.xvf3800.errors import ArrayError
from hardware.xvf3800.udev import RELOAD, RULES, RULES_PATH, SECOND_STEP


class RuleNotInstalled(ArrayError):
    """The rule could not be written, or not be taken into use."""


def install_rule(
    say: Callable[[str], None],
    path: Path = Path(RULES_PATH),
    system: str = sys.platform,
    run: Callable[[tuple[str, ...]], int] | None = None,
) -> None:
    """Write the rule and let udev read it. Raises ``RuleNotInstalled``, with what to type."""
    if system != "linux":
        say("Nothing to do: only Linux asks for a rule")
        return
    try:
        path.write_text(RULES + "\n")
    except FileNotFoundError as error:
        raise RuleNotInstalled(
            "The rule was not installed",
            why=f"{path.parent} does not exist: this system has no udev",
            fix="In a container, give the rule to the machine around it, and /dev/bus/usb to it",
        ) from error
    except PermissionError as error:
        raise RuleNotInstalled(
            "The rule was not installed",
            why=f"{path} may be written by root only",
            fix=f"Run: sudo {shutil.which(sys.argv[0]) or sys.argv[0]} xvf udev --install",
        ) from error
    except OSError as error:
        raise RuleNotInstalled(
            "The rule was not installed",
            why=f"{path} cannot be written: {error.strerror}",
            fix="Give the rule to this system in its own way; `reachy-voice xvf udev` prints it",
        ) from error
    say(f"Written: {path}")
    for command in RELOAD:
        if (run or _run)(command) != 0:
            raise RuleNotInstalled(
                "The rule is written, but not in use yet",
                why=f"`{' '.join(command)}` failed",
                fix="Unplug the array and plug it in again, or restart the machine",
            )
    say(SECOND_STEP)


def _run(command: tuple[str, ...]) -> int:
    try:
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        return 1
