"""A lock by file: one process or thread at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, busy: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Hold a lock on the file at ``path``, which excludes all other processes and threads.

    ``busy`` is called before waiting for another holder; what it raises ends the wait. The file is
    created, and stays: deleting it could let two in. Yields its descriptor, which a child that
    outlives this process may hold, too. Raises ``OSError`` if it cannot be opened.
    """
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
