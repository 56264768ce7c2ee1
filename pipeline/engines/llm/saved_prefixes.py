"""KV states of instructions and tools on disk, so that these are computed only once.

They never contain what people say. The work is done in slices, so that urgent work can run in
between.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import tempfile
import time
import zlib
from collections.abc import Generator, Sequence
from io import BufferedReader
from pathlib import Path

log = logging.getLogger("reachy_voice.llm")

_CHECKSUM = struct.Struct("<I")
"""CRC-32 of the state, stored before it."""
_FORMAT = b"2"
_SLICE_BYTES = 4 * 2**20
_ABANDONED_SECONDS = 3600
"""An unfinished file older than this has been abandoned."""


class SavedPrefixes:
    """A directory of states, readable only by its owner, of at most ``budget_bytes``.

    ``identity`` covers everything that a state depends on besides its tokens: model, library,
    cell types. A full disk or an unreadable directory costs speed, never an answer.
    """

    def __init__(self, directory: Path, budget_bytes: int, identity: bytes) -> None:
        self._directory = directory
        self._budget_bytes = budget_bytes
        self._identity = _FORMAT + identity

    def __contains__(self, tokens: object) -> bool:
        return isinstance(tokens, list) and self._path(tokens).exists()

    def read(self, tokens: Sequence[int]) -> Generator[None, None, bytearray | None]:
        """The state for exactly these tokens, or ``None``; a damaged file is deleted."""
        path = self._path(tokens)
        try:
            with path.open("rb") as file:
                state = yield from _read_state(file)
            if state is None:
                log.warning("Deleting a damaged saved prefix: %s", path)
                path.unlink(missing_ok=True)
            else:
                os.utime(path)
            return state
        except FileNotFoundError:
            return None
        except OSError as problem:
            log.warning("Cannot read a saved prefix: %s", problem)
            return None

    def write(self, tokens: Sequence[int], state: memoryview) -> Generator[None, None, None]:
        """Save a state atomically: the file appears whole or not at all."""
        if len(state) > self._budget_bytes:
            return
        part: Path | None = None
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._directory.chmod(0o700)
            handle, name = tempfile.mkstemp(suffix=".part", dir=self._directory)
            part = Path(name)
            with os.fdopen(handle, "wb") as file:
                file.seek(_CHECKSUM.size)
                crc = 0
                for start in range(0, len(state), _SLICE_BYTES):
                    piece = state[start : start + _SLICE_BYTES]
                    crc = zlib.crc32(piece, crc)
                    file.write(piece)
                    yield
                file.seek(0)
                file.write(_CHECKSUM.pack(crc))
            # No fsync: after a power cut, the checksum reveals an incomplete file.
            part.replace(self._path(tokens))
            self._delete_old()
        except OSError as problem:
            log.warning("Cannot save a prefix: %s", problem)
        finally:
            if part:
                part.unlink(missing_ok=True)

    def _path(self, tokens: Sequence[int]) -> Path:
        data = struct.pack(f"<{len(tokens)}i", *tokens)
        return self._directory / f"{hashlib.sha256(self._identity + data).hexdigest()}.kv"

    def _delete_old(self) -> None:
        """Keep the most recently used states that fit into the budget."""
        for part in self._directory.glob("*.part"):
            if time.time() - part.stat().st_mtime > _ABANDONED_SECONDS:
                part.unlink(missing_ok=True)
        files = [(path.stat(), path) for path in self._directory.glob("*.kv")]
        free_bytes = self._budget_bytes
        for stat, path in sorted(files, key=lambda f: f[0].st_mtime_ns, reverse=True):
            free_bytes -= stat.st_size
            if free_bytes < 0:
                path.unlink(missing_ok=True)


def _read_state(file: BufferedReader) -> Generator[None, None, bytearray | None]:
    """The state in a file; ``None`` if it is damaged."""
    head = file.read(_CHECKSUM.size)
    state = bytearray(max(0, os.fstat(file.fileno()).st_size - _CHECKSUM.size))
    crc = 0
    for start in range(0, len(state), _SLICE_BYTES):
        piece = memoryview(state)[start : start + _SLICE_BYTES]
        file.readinto(piece)
        crc = zlib.crc32(piece, crc)
        yield
    return state if state and _CHECKSUM.unpack(head) == (crc,) else None
