"""One process at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, busy: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Be the only one, of all processes and threads, that is inside with this file.

    ``busy`` is called before another one is waited for; what it raises ends the wait. The file is
    made, and stays: who deletes it lets two in. Yields its descriptor, which a child that outlives
    this process may hold, too. Raises ``OSError`` if it cannot be opened.
    """
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
