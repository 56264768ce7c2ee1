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
        self._users = 0
        self._original: int | None = None
        """The original descriptor; ``None`` if the program was started without one."""
        self._is_flooded = False

    def _shut_once(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            self._original = None
            with contextlib.suppress(OSError):
                self._original = os.dup(2)
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 2)
                os.close(nowhere)

    def _open(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users or self._original is None:
                return
            if self._is_flooded:
                sys.stderr = os.fdopen(self._original, "w", buffering=1, errors="backslashreplace")
            else:
                os.dup2(self._original, 2)
                os.close(self._original)

    def flooded(self) -> None:
        """Something prints endlessly: the descriptor stays closed for good. When the last ``quiet``
        ends, Python's own messages go to the original descriptor."""
        with self._lock:
            self._is_flooded = True

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
