"""Paths of the checkout, its environment, logs and cache; and which steps are done."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app import file_lock
from app.root import IS_INSTALLED, ROOT
from app.setup.commands import tell
from app.write_whole import write_whole

USUAL_PORT = 8765
"""``server.port``, if the settings name no other or cannot be read yet."""


def owners_file(environ: Mapping[str, str]) -> Path | None:
    """The settings used if no others are named; the file need not exist. ``None`` without a home
    directory."""
    home = environ.get("HOME")
    base = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    return Path(base) / "reachy-voice" / "settings.yaml" if base else None


@dataclass(frozen=True)
class Place:
    root: Path
    """The checkout, or the folder with the same files in the installed package."""
    cache: Path
    """Also holds the weights: ``$XDG_CACHE_HOME/reachy-voice``."""
    base_python: str
    """The interpreter that creates the environment, never the environment's own."""
    data: Path | None = None
    """Where an installed program makes its environment; a checkout contains its own."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Place:
        """The paths of this program."""
        python: str = getattr(sys, "_base_executable", sys.executable)
        return cls(
            ROOT,
            our_folder(environ, "XDG_CACHE_HOME", "~/.cache"),
            # Resolved, so that the environment's own Python gives the same path.
            os.path.realpath(python),
            our_folder(environ, "XDG_DATA_HOME", "~/.local/share") if IS_INSTALLED else None,
        )

    @property
    def home(self) -> Path:
        return self.data or self.root

    @property
    def venv(self) -> Path:
        return self.home / ".venv"

    @property
    def build(self) -> Path:
        """Logs and temporary files; git ignores it."""
        return self.home / "build"

    @property
    def scratch(self) -> Path:
        """TMPDIR of every step: /tmp is often small, and we check the space here."""
        return self.build / "tmp"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def program(self) -> Path:
        return self.venv / "bin" / "reachy-voice"

    @property
    def stamps(self) -> Stamps:
        return Stamps(self.venv / ".setup")

    def pip(self, *arguments: str) -> list[str]:
        """The command line; isolated from PYTHON* variables and from the user's own packages. What
        it installs goes into the environment, or into the one of ``--python``, whatever pip's
        configuration says."""
        more = [] if arguments[0] == "uninstall" else ["--progress-bar=off"]
        if "install" in arguments:
            prefix = arguments[1] if arguments[0] == "--python" else self.venv
            more += ["--target=", "--root=/", f"--prefix={prefix}"]
        return [str(self.python), "-I", "-m", "pip", *arguments, *more]

    @property
    def wheels(self) -> Path:
        return self.cache / "wheels"


def our_folder(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """``reachy-voice`` in a base directory of the XDG specification."""
    return Path(environ.get(variable) or default).expanduser() / "reachy-voice"


@contextmanager
def locked(path: Path, waiting_for: str) -> Iterator[int]:
    """Hold a file lock; a second process says what it waits for. Yields the descriptor."""

    def busy() -> None:
        tell(f"Waiting for {waiting_for} ({path})")

    path.parent.mkdir(parents=True, exist_ok=True)
    with file_lock.locked(path, busy) as descriptor:
        yield descriptor


@contextmanager
def completed(home: Path) -> Iterator[Path]:
    """Yields a directory to fill, which then replaces ``home``."""
    prefix = f"unfinished-{home.name}-"
    home.parent.mkdir(parents=True, exist_ok=True)
    for left_over in home.parent.glob(f"{prefix}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix=prefix, dir=home.parent))
    try:
        yield unfinished
        shutil.rmtree(home, ignore_errors=True)
        os.replace(unfinished, home)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


# --- stamps ------------------------------------------------------------------------------------


def digest(*parts: str | Path) -> str:
    """Hash strings and file contents; an absent file differs from an empty one."""
    total = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else _content(part)
        total.update(f"{len(content)}:".encode())
        total.update(content)
    return total.hexdigest()


def _content(path: Path) -> bytes:
    try:
        return b"=" + path.read_bytes()
    except FileNotFoundError:
        return b""


class Stamps:
    """One small file for each step, inside the environment, so that they vanish with it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, step: str) -> str | None:
        try:
            return (self.directory / step).read_text()
        except FileNotFoundError:
            return None

    def remove(self, step: str) -> None:
        (self.directory / step).unlink(missing_ok=True)

    def write(self, step: str, value: str) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_whole(self.directory / step, value)
