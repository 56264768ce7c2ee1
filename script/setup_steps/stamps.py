"""Which steps are done: a step's stamp holds the digest of its inputs, and is written last."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def digest(*parts: str | Path) -> str:
    """Of strings and of files' contents; an absent file differs from an empty one."""
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
    """One small file for each step, inside the environment so that they go when it goes."""

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
        unfinished = self.directory / f".{step}"
        unfinished.write_text(value)
        os.replace(unfinished, self.directory / step)
