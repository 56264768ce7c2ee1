"""Every test module has a category, and only modules of the requested ones are imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

pytestmark = pytest.mark.machine

QUICK = "import pytest\n\npytestmark = pytest.mark.quick\n"
ENGINES = "import pytest, no_such_engine\n\npytestmark = [\n    pytest.mark.engines,\n]\n"


@pytest.mark.parametrize(
    ("head", "options", "printed"),
    [
        ("", (), "test_new.py has no category"),
        (QUICK, (), "1 passed"),
        (QUICK, ("-m", "quick and not machine"), "1 passed"),
        (ENGINES, ("-m", "quick"), "no tests ran"),
        (ENGINES, (), "No module named 'no_such_engine'"),
    ],
)
def test_collection(tmp_path: Path, head: str, options: tuple[str, ...], printed: str) -> None:
    (tmp_path / "test_new.py").write_text(f"{head}\ndef test_it():\n    pass\n")
    pytest_here = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-n0", *options]
    command = [*pytest_here, "-c", str(ROOT / "pyproject.toml"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert printed in done.stdout, done.stdout + done.stderr
