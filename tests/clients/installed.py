"""Separate environments for clients whose packages are not ours, made once per lock file.

They live in the project's cache directory, named by the digest of their lock file. Without a
network the tests are skipped; in CI they fail.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from app.setup.failures import NO_NETWORK, classify

HERE = Path(__file__).parent
PYTHON_LOCK = HERE / "python" / "requirements.lock"
SETUP_LIMIT_S = 540
NPM_OFFLINE = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH")
ERROR_LINE = re.compile(r"ERROR: |code: |npm error code ")


def python_with_clients(cache: Path, lock: Path = PYTHON_LOCK) -> Path:
    """The interpreter of an environment with the packages of ``lock``."""
    home = cache / "clients" / f"python-{_digest(lock.read_bytes(), sys.version.encode())}"
    python = home / "bin" / "python"
    with _made_once(home) as missing:
        if missing:
            _run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(home)])
            options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(lock)]
            patience = ["--disable-pip-version-check", "--retries", "2", "--timeout", "30"]
            pip = [sys.executable, "-m", "pip", "--python", str(python), "install", *patience]
            _run([*pip, *options])
    return python


def node_modules(cache: Path) -> Path:
    """A ``node_modules`` directory with the packages of ``node/package-lock.json``."""
    files = [HERE / "node" / name for name in ("package.json", "package-lock.json")]
    home = cache / "clients" / f"node-{_digest(*(file.read_bytes() for file in files))}"
    with _made_once(home) as missing:
        if missing:
            if shutil.which("npm") is None:
                _skip("npm is not here; run: apt-get install nodejs npm")
            for file in files:
                shutil.copy(file, home)
            quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
            patience = ["--fetch-retries=2", "--fetch-retry-mintimeout=1000"]
            _run(["npm", "ci", *quiet, *patience], cwd=home)
    return home / "node_modules"


def _skip(why: str) -> NoReturn:
    """Skip the test; in CI, where nothing may be skipped, fail it."""
    absent = f"the clients could not be installed: {why}"
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(absent)
    pytest.skip(absent)


def _digest(*contents: bytes) -> str:
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:16]


@contextmanager
def _made_once(home: Path) -> Iterator[bool]:
    """Yields whether ``home`` must be filled; concurrent test runs take turns."""
    home.mkdir(parents=True, exist_ok=True)
    done = home.with_name(f"{home.name}.done")
    with home.with_name(f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not done.exists()
        done.touch()


def _run(command: Sequence[str], cwd: Path | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SETUP_LIMIT_S,
        check=False,
    )
    if not done.returncode:
        return
    installer = "npm" if command[0] == "npm" else "pip"
    offline = NPM_OFFLINE.search(done.stdout) if installer == "npm" else None
    if offline or classify("", done.stdout).exit_code == NO_NETWORK:
        said = [line for line in done.stdout.splitlines() if ERROR_LINE.search(line)]
        _skip(
            f"{installer} cannot reach its registry ({said[-1].strip()[:200] if said else ''}); "
            "connect this machine to the Internet and run the tests again"
        )
    raise AssertionError(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}")
