"""Replaces a small file in one step, so that no other process reads half of it."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str, mode: int = 0o666) -> None:
    """Returns once the file is on the disk. ``mode``: before the umask. Raises ``OSError``."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.touch(mode)
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
