"""Our log, for tests that wait for a line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager


class WatchedLog(logging.Handler):
    """The messages of one logger."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.put_nowait(record.getMessage())

    async def until(self, text: str) -> list[str]:
        """Wait for the line with ``text``; returns the lines before it."""
        before: list[str] = []
        while text not in (line := await self.lines.get()):
            before.append(line)
        return before


@contextmanager
def watched_log(name: str) -> Iterator[WatchedLog]:
    """Watch from INFO up while the context lasts."""
    log, handler = logging.getLogger(name), WatchedLog()
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
