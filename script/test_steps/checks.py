"""Run the tests, and all checks beside them. Every failure is reported, the checks' at the end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from app.setup.place import Place


@dataclass(frozen=True)
class CheckCommand:
    name: str
    command: Sequence[str]

    def run(self, place: Place) -> tuple[bool, str]:
        """Returns whether it passes, and one line, followed by its output if it fails. It
        yields to the tests that run beside it."""
        began = time.monotonic()
        program = str(place.venv / "bin" / self.command[0])
        process = subprocess.run(
            ["nice", "-n", "19", program, *self.command[1:]],
            cwd=place.root,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        verdict = "FAILED" if process.returncode else "ok"
        line = f"{self.name:<22} {verdict:<6} {time.monotonic() - began:5.0f} s"
        if process.returncode:
            return False, f"{line}\n{process.stdout}"
        return True, f"{line}  {process.stdout.rstrip().rpartition(chr(10))[2].strip(' =')}"


CHECKS = (
    CheckCommand("ruff check", ["ruff", "check"]),
    CheckCommand("ruff format --check", ["ruff", "format", "--check"]),
    CheckCommand("mypy", ["mypy"]),
    CheckCommand("mypy script", ["mypy", "--config-file=", "--strict", "script/setup.py"]),
    CheckCommand("lint-imports", ["lint-imports"]),
    CheckCommand("commands page --check", ["python", "script/commands_page.py", "--check"]),
    CheckCommand("shape", ["python", "script/shape", "--check"]),
    CheckCommand("config schema --check", ["reachy-voice", "config", "schema", "--check"]),
)


WORKSTATION_MODULES = ("nemo", "qwen_tts", "torch")
"""If one is missing, tests marked ``nemo`` and ``qwen`` are skipped."""


TWO_AT_ONCE = ("-n", "2", "--dist", "loadfile")
"""More workers would disturb tests that run in real time."""

UNTIMED = tuple(
    f"tests/{folder}"
    for folder in ("benchmarks", "echo", "engines", "hearing", "session", "speaking")
)
"""Folders without tests in real time: they yield to all others."""

UNTIMED_TESTS = CheckCommand("untimed tests", ["pytest", "-q", *TWO_AT_ONCE, *UNTIMED])
TIMED_TESTS = (*TWO_AT_ONCE, *(f"--ignore={folder}" for folder in UNTIMED))


QUICK = ("-m", "quick and not (engines or clients or machine)")
"""Selects modules marked ``quick``, without single tests that have another of these marks."""


def run_quick(place: Place, pytest_arguments: Sequence[str], cores: int) -> int:
    """Run the tests that need only Python packages, and the checks in parallel. With arguments,
    only pytest."""
    quick = [str(place.venv / "bin" / "pytest"), *QUICK]
    if pytest_arguments:
        return subprocess.run([*quick, *pytest_arguments], check=False).returncode
    quick += ["-n", str(cores), "--dist", "loadfile"]
    tests, faults = _beside_checks(place, quick, CHECKS)
    return tests or int(bool(faults))


def _beside_checks(
    place: Place, pytest: Sequence[str], checks: Sequence[CheckCommand]
) -> tuple[int, list[str]]:
    """The exit code of the tests, and which of the checks that run beside them fail."""
    with ThreadPoolExecutor(1) as beside:
        checking = beside.submit(lambda: [check.run(place) for check in checks])
        tests = subprocess.run(pytest, cwd=place.root, check=False).returncode
        results = checking.result()
    print(*(text for _, text in results), sep="\n")
    return tests, [
        check.name for check, (passes, _) in zip(checks, results, strict=True) if not passes
    ]


def in_ci() -> bool:
    """Whether this runs in CI, where nothing may be skipped."""
    return os.environ.get("CI", "").lower() in ("1", "true")


def missing_modules(place: Place, modules: Sequence[str] = WORKSTATION_MODULES) -> list[str]:
    """The modules that the environment lacks. Imports nothing."""
    code = (
        "import sys, importlib.util as u\nprint(*(n for n in sys.argv[1:] if not u.find_spec(n)))"
    )
    command = [str(place.python), "-I", "-c", code, *modules]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def run(place: Place, pytest_arguments: Sequence[str], missing: Sequence[str]) -> int:
    """Return the exit code. With arguments, run only pytest, in the caller's directory."""
    pytest = str(place.venv / "bin" / "pytest")
    if pytest_arguments:
        return subprocess.run([pytest, *pytest_arguments], check=False).returncode
    faults = []
    absent = missing_modules(place)
    if in_ci():
        faults += [f"Debian packages {' '.join(missing)}"] if missing else []
        faults += [f"tests that need {' '.join(absent)}"] if absent else []
    elif absent:
        print(f"Tests that need {' and '.join(absent)} are skipped.")
        print("  To run them: script/test --workstation    (--plan says how much that fetches)")
    timed = [pytest, *TIMED_TESTS]
    tests, failing = _beside_checks(place, timed, (UNTIMED_TESTS, *CHECKS))
    if faults := [*failing, *faults]:
        print(f"Failed beside the tests: {', '.join(faults)}")
    return tests or (1 if faults else 0)
