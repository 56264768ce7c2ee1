"""File descriptor 2, shut while libraries print lines of their own source there."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from threading import Lock


class _Stderr:
    """One for the process. Several threads may shut it; the last one to finish opens it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._shut = 0
        self._kept: int | None = None
        """What it was; ``None`` where the program was begun without."""
        self._flooded = False

    def shut(self) -> None:
        with self._lock:
            self._shut += 1
            if self._shut > 1:
                return
            self._kept = None
            with contextlib.suppress(OSError):
                self._kept = os.dup(2)
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 2)
                os.close(nowhere)

    def open(self) -> None:
        with self._lock:
            self._shut -= 1
            if self._shut or self._kept is None:
                return
            if self._flooded:
                sys.stderr = os.fdopen(self._kept, "w", buffering=1, errors="backslashreplace")
            else:
                os.dup2(self._kept, 2)
                os.close(self._kept)

    def flooded(self) -> None:
        with self._lock:
            self._flooded = True


_stderr = _Stderr()


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Discard what is written to file descriptor 2, Python's own messages included."""
    _stderr.shut()
    try:
        yield
    finally:
        _stderr.open()


def stderr_is_flooded() -> None:
    """Something prints without end: the descriptor stays shut for good. After the last
    ``quiet_stderr`` Python's own messages go where it led."""
    _stderr.flooded()
