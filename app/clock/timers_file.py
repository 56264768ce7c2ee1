"""The file of timers: small, written whole, readable by its owner only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from app.clock.timers import ENTRIES, ClockEntry
from app.file_lock import locked
from app.write_whole import write_whole

log = logging.getLogger("reachy_voice.clock")


class TimersFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._why_not = "it is not open"
        self._writing = asyncio.Lock()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[ClockEntry]]:
        """Yields the saved entries. Only the first of several processes keeps its timers here."""
        with ExitStack() as stack:
            yield await asyncio.to_thread(self._load, stack)

    async def save(self, entries: Sequence[ClockEntry]) -> None:
        """Replace the file's entries. Raises ``OSError``."""
        async with self._writing:
            if self._why_not:
                raise OSError(self._why_not)
            text = ENTRIES.dump_json(tuple(entries), indent=1).decode()
            await asyncio.to_thread(write_whole, self._path, text, 0o600)

    def _load(self, stack: ExitStack) -> Sequence[ClockEntry]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(self._path.with_suffix(".lock"), _raise_busy))
            self._why_not = ""
            try:
                return ENTRIES.validate_json(self._path.read_bytes())
            except ValueError:
                aside = self._path.with_suffix(".unreadable")
                self._path.replace(aside)
                log.warning("the file of timers cannot be read; it is now %s", aside)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._why_not = str(error)
            log.warning("timers are not kept over restarts: %s: %s", self._path, error)
        return ()


def _raise_busy() -> None:
    raise OSError("another process keeps its timers there")
