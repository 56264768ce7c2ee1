"""The bill of materials is current, and its separate programs really are separate."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.places import ROOT

pytestmark = pytest.mark.machine

HERE = (sys.platform, sys.version_info[:2])
COMPONENTS = json.loads((ROOT / "docs" / "bill-of-materials.cdx.json").read_text())["components"]


@pytest.mark.skipif(HERE != ("linux", (3, 11)), reason="is written for Python 3.11 on Linux")
def test_it_matches_the_lock_files() -> None:
    command = [sys.executable, str(ROOT / "script" / "bill_of_materials.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_gpl_packages_are_separate_programs() -> None:
    strong = {
        each["name"]: each
        for each in COMPONENTS
        if "GPL" in (name := each["licenses"][0]["license"]["name"])
        and not ("LGPL" in name or "Lesser" in name)
    }
    assert set(strong) == {"piper-tts", "espeak-ng"}
    for each in strong.values():
        assert each["type"] == "application"
        assert each["description"].startswith("separate program")


def test_the_server_never_loads_piper() -> None:
    """Checks its engine's module, without the process that it starts."""
    code = (
        "import sys, app.compose, app.cli.command_line, pipeline.engines.tts.piper\n"
        "sys.exit('piper' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
