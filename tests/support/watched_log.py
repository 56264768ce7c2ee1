"""What our code logs, to wait for."""

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
        """The lines before the one with ``text``."""
        before: list[str] = []
        while text not in (line := await self.lines.get()):
            before.append(line)
        return before


@contextmanager
def watched_log(name: str) -> Iterator[WatchedLog]:
    """From INFO on, for as long as the context lasts."""
    log, handler = logging.getLogger(name), WatchedLog()
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
