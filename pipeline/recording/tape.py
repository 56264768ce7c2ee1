"""The file that sessions are recorded into: JSON lines, written by a thread of its own.

The event loop only hands lines over. When the disk is full, or too slow for what is said, the
recording ends with a warning, and the conversations go on.

    {"kind": "file", "format": 1, "reachy_voice": "0.1.0", ...}   first, for each server
    {"kind": "session", "session": "20261121-101502-1", ...}      and all else: see ``recorded``
    {"kind": "command", "session": "20261121-101502-1", "at": 1.25, "command": {...}}
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import stat
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from pipeline.recording.plain import RecordingError

log = logging.getLogger("reachy_voice.recording")

FORMAT = 1
"""Raised whenever an older version could not read what is written."""

CAPACITY_BYTES = 64 * 1024 * 1024
"""What may wait to be written. A conversation makes about 0.1 MiB a second."""

CLOSE_S = 5.0
"""How long a disk that hangs may hold the end of the server up."""

LINE_BYTES = 1024
"""What a line without audio is taken for."""

Line = Callable[[], Mapping[str, Any]]
"""Makes one line. It is called in the tape's thread, so it may only read what never changes."""


class Tape:
    """Takes lines from the event loop, and writes them in a thread until ``close``."""

    def __init__(
        self, file: BinaryIO, header: Mapping[str, Any], capacity_bytes: int = CAPACITY_BYTES
    ) -> None:
        """``header`` is added to the first line."""
        self.problem: str | None = None
        """Why nothing is recorded any more."""
        self._file = file
        self._capacity_bytes = capacity_bytes
        self._lines: SimpleQueue[tuple[Line, int] | None] = SimpleQueue()
        # Each is changed by one thread only, so that no lock can hold the event loop up.
        self._given_bytes = 0
        self._written_bytes = 0
        self._closed = False
        self.write(lambda: {"kind": "file", "format": FORMAT, **header})
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()

    def write(self, line: Line, audio_bytes: int = 0) -> None:
        """Have one line written later; never waits. ``audio_bytes``: of the samples in it."""
        if self.problem or self._closed:
            return
        if self._given_bytes - self._written_bytes > self._capacity_bytes:
            self._stop("the disk is too slow")
            return
        size = LINE_BYTES + audio_bytes
        self._given_bytes += size
        self._lines.put((line, size))

    def close(self) -> None:
        """Write what waits, and close the file. Blocks, ``CLOSE_S`` at most."""
        self._closed = True
        self._lines.put(None)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._stop("the disk does not answer")

    def _stop(self, why: str) -> None:
        if self.problem is None:
            self.problem = why
            log.warning("Recording has stopped: %s. The conversations go on.", why)

    # -- the thread

    def _run(self) -> None:
        with contextlib.suppress(OSError), self._file:
            while (entry := self._lines.get()) is not None:
                self._write(*entry)

    def _write(self, line: Line, size: int) -> None:
        self._written_bytes += size
        if self.problem:
            return
        try:
            text = json.dumps(line(), ensure_ascii=False, separators=(",", ":"))
            self._file.write(text.encode("utf-8", "surrogatepass") + b"\n")
            if self._lines.empty():
                self._file.flush()
        except OSError as error:
            self._stop(error.strerror or str(error))
        except Exception as error:
            log.exception("a line of the recording could not be made")
            self._stop(type(error).__name__)


def open_tape(path: Path, header: Mapping[str, Any]) -> Tape:
    """A tape that goes on behind what ``path`` holds; only its owner can read it. Raises
    ``RecordingError``: it is no recording, another server writes it, or it cannot be written."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise _cannot_record(path, error.strerror or str(error)) from error
    try:
        _prepare(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return Tape(os.fdopen(descriptor, "ab"), header)


def _prepare(descriptor: int, path: Path) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise _cannot_record(path, "it is not a regular file")
    if status.st_uid != os.getuid():
        raise _cannot_record(path, "it belongs to another user")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise _cannot_record(path, "another server records into it") from None
    size = status.st_size
    if size and not os.pread(descriptor, 64, 0).startswith(b'{"kind":"file",'):
        raise _cannot_record(path, "there is something else in it already")
    os.fchmod(descriptor, 0o600)
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        os.write(descriptor, b"\n")  # a server was killed in the middle of a line


def _cannot_record(path: Path, why: str) -> RecordingError:
    fix = "Give --record the name of a new file, or of an earlier recording of yours"
    return RecordingError(f"Cannot record into {path}", why=why, fix=fix)
