"""Builds an installed program's own wheel again from its files, to install it where setup puts all
packages: ``uvx`` and ``pipx run`` do not keep the environment that they make."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackagePath, distribution
from pathlib import Path

from app.root import IS_INSTALLED
from app.setup.place import Place, digest

NAME = "reachy-voice"
_WRITTEN_AT_INSTALLATION = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json")


def _files() -> Iterator[PackagePath]:
    for file in distribution(NAME).files or ():
        ours = ".." not in file.parts and file.suffix != ".pyc"
        if ours and file.name not in _WRITTEN_AT_INSTALLATION:
            yield file


def identity() -> str:
    """The digest of the program's files."""
    return digest(*sorted(f"{file} {file.hash and file.hash.value}" for file in _files()))


def pack(directory: Path) -> Path:
    """Write the wheel."""
    program = distribution(NAME)
    folder = f"reachy_voice-{program.version}"
    wheel = directory / f"{folder}-py3-none-any.whl"
    # Files of reproducible images and of Nix are from 1970, ten years older than a zip may say.
    with zipfile.ZipFile(wheel, "w", strict_timestamps=False) as archive:
        rows = [f"{folder}.dist-info/RECORD,,"]
        for file in _files():
            archive.write(str(program.locate_file(file)), str(file))
            checksum = f"{file.hash.mode}={file.hash.value}" if file.hash else ""
            rows.append(f"{file},{checksum},{file.size or ''}")
        archive.writestr(f"{folder}.dist-info/RECORD", "\n".join(rows) + "\n")
    return wheel


def program_of_setup() -> Path | None:
    """The program that setup installed. ``None``: this is it, or a checkout, or setup has not run
    since this version was installed or the Python of its environment was removed."""
    if not IS_INSTALLED:
        return None
    place = Place.of(os.environ)
    if Path(os.path.realpath(__file__)).is_relative_to(os.path.realpath(place.venv)):
        return None
    is_current = place.python.exists() and place.stamps.read("project") == identity()
    return place.program if is_current else None
