"""Whether memory holds one more engine beside those that run."""

from __future__ import annotations

from pathlib import Path

import psutil

from app.exchange import HasRoom
from app.weights import WeightsCache
from pipeline.engines import EngineOptions, Kind

SPARE_MB = 500
"""Left for everything else."""
LIBRARIES_MB = 300
"""What an engine takes besides its weights, roughly."""
OWN_FILES = ("model_dir", "model_file")
"""Options that name weights which no catalogue knows."""


def has_room(cache: WeightsCache) -> HasRoom:
    def asked(kind: Kind, options: EngineOptions) -> bool:
        return needed_mb(options, cache) + SPARE_MB <= _free_mb()

    return asked


def needed_mb(options: EngineOptions, cache: WeightsCache) -> int:
    """What the catalogue says, or else the size of the files; nothing for engines by URL."""
    if name := getattr(options, "weights", None):
        return cache.catalogue[name].memory_mb
    paths = [Path(path) for option in OWN_FILES if (path := getattr(options, option, None))]
    return sum(map(_size_mb, paths)) + (LIBRARIES_MB if paths else 0)


def _size_mb(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file()) // 1_000_000


def _free_mb() -> int:
    return int(psutil.virtual_memory().available) // 1_000_000
