"""Runs the timers of a process: announces those that are due, and saves all of them in a file."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from app.announcing.announcer import Announcer
from app.clock.sentences import Sentences
from app.clock.timers import EXPIRY_S, ClockEntry, Moment, Timers

LONGEST_SLEEP_S = 30.0
"""Nothing reports that the wall clock was set, so look at least this often."""
AT_ONCE = 8
"""Most announcements under way in one place; further ones wait."""
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

log = logging.getLogger("reachy_voice.clock")


def now() -> Moment:
    return Moment(time.time(), time.clock_gettime(_STEADY))


class File(Protocol):
    """Keeps entries over restarts, as ``app.clock.timers_file.TimersFile`` does."""

    def open(self) -> AbstractAsyncContextManager[Sequence[ClockEntry]]: ...

    async def save(self, entries: Sequence[ClockEntry]) -> None: ...


class Clock:
    """The timers of a process; ``run`` it in a task."""

    def __init__(
        self,
        file: File,
        announcer: Announcer,
        sentences: Sentences,
        now: Callable[[], Moment] = now,
    ) -> None:
        self.sentences = sentences
        self.now = now
        self.timers = Timers(now())
        self.saved = True
        """Whether the file has all entries."""
        self._file = file
        self._announcer = announcer
        self._changed = asyncio.Event()
        self._slots = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(AT_ONCE))
        self._telling: dict[ClockEntry, asyncio.Task[None]] = {}

    async def run(self) -> None:
        async with self._file.open() as before, asyncio.TaskGroup() as group:
            early, self.timers = self.timers.entries, Timers(self.now(), before)
            self.timers.entries += early
            while True:
                self._changed.clear()
                at, count = self.now(), len(self.timers.entries)
                for entry in set(self.timers.on(at)) - self._telling.keys():
                    self._telling[entry] = group.create_task(self._tell(entry))
                if dropped := count - len(self.timers.entries):
                    log.warning("%d timers were due long ago, and are dropped", dropped)
                next_s = self.timers.next_s(at)
                try:
                    sleep_s = None if next_s is None else min(next_s, LONGEST_SLEEP_S)
                    async with asyncio.timeout(sleep_s):
                        await self._changed.wait()
                except TimeoutError:
                    pass

    def look(self) -> Moment:
        """The time now. Before anything is set by it, entries follow a changed wall clock."""
        now = self.now()
        self.timers.follow(now)
        return now

    async def add(self, entry: ClockEntry) -> bool:
        """Add ``entry`` and save it; False if there are too many."""
        if not self.timers.add(entry):
            return False
        await self._save()
        return True

    async def remove(self, entries: Sequence[ClockEntry]) -> None:
        """Remove ``entries``, and cancel their announcements."""
        self.timers.remove(entries)
        for entry in entries:
            if task := self._telling.pop(entry, None):
                task.cancel()
        await self._save()

    async def _tell(self, entry: ClockEntry) -> None:
        """Announce ``entry`` to those who set it, or to everybody if they are not connected."""

        def is_addressed(place: str) -> bool:
            return place == entry.place or not self._announcer.conversations(entry.place.__eq__)

        def text() -> str:
            return self.sentences.due(entry, self.now().wall)

        async with self._slots[entry.place]:
            left_s = entry.due + EXPIRY_S - self.now().wall
            if not await self._announcer.deliver(text, is_addressed, left_s):
                log.warning("a %s was due, and nobody has heard it", entry.kind)
        del self._telling[entry]
        await self.remove([entry])

    async def _save(self) -> None:
        self._changed.set()
        try:
            await self._file.save(self.timers.entries)
            self.saved = True
        except OSError as error:
            self.saved = False
            log.warning("timers cannot be saved: %s", error)
