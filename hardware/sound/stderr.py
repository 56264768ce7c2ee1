"""Silences file descriptor 2 while native libraries print to it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from threading import Lock


class _Stderr:
    """One per process. Several threads may close it; the last one to finish reopens it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._shut = 0
        self._kept: int | None = None
        """The original descriptor; ``None`` if the program was started without one."""
        self._flooded = False

    def _shut_once(self) -> None:
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

    def _open(self) -> None:
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
        """Something prints endlessly: the descriptor stays closed for good. After the last
        ``quiet``, Python's own messages go where it used to lead."""
        with self._lock:
            self._flooded = True

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Discard everything written to file descriptor 2, including Python's own messages."""
        self._shut_once()
        try:
            yield
        finally:
            self._open()


_stderr = _Stderr()
quiet_stderr, stderr_is_flooded = _stderr.quiet, _stderr.flooded
