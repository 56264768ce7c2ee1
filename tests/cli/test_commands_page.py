"""docs/commands.md follows the code."""

from __future__ import annotations

import subprocess
import sys

from tests.support.places import ROOT


def test_the_page_of_commands_is_up_to_date() -> None:
    command = [sys.executable, "script/commands_page.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
