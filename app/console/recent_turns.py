"""The latest turns of all sessions, in memory, for whoever looks at them in a browser."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from pipeline.bus import Bus, Published
from pipeline.turn_record import TurnRecord

WAITING = 64
"""Turns that a reader may be behind; one that reads none of them begins anew."""


@dataclass(frozen=True, slots=True)
class RecentTurn:
    """``ended_at``: seconds since 1970. ``session`` counts those of this server from 1;
    ``place``: address of its client."""

    number: int
    ended_at: float
    session: int
    place: str
    record: TurnRecord


class RecentTurns:
    """The last ``kept`` turns. 0 keeps none, and follows none."""

    def __init__(self, kept: int = 200, clock: Callable[[], float] = time.time) -> None:
        self._turns: deque[RecentTurn] = deque(maxlen=kept)
        self._clock = clock
        self._numbers = itertools.count(1)
        self._sessions = itertools.count(1)
        self._readers: set[asyncio.Queue[RecentTurn | None]] = set()

    def watch(self, bus: Bus, place: str) -> None:
        """Keep the turns of a session whose events ``bus`` carries."""
        if self._turns.maxlen == 0:
            return
        session = next(self._sessions)

        def note(published: Published) -> None:
            if type(published.event) is TurnRecord:
                self._add(session, place, published.event)

        bus.tap(note)

    def _add(self, session: int, place: str, record: TurnRecord) -> None:
        turn = RecentTurn(next(self._numbers), self._clock(), session, place, record)
        self._turns.append(turn)
        for reader in list(self._readers):
            if reader.full():
                self._dismiss(reader)
            else:
                reader.put_nowait(turn)

    def _dismiss(self, reader: asyncio.Queue[RecentTurn | None]) -> None:
        self._readers.remove(reader)
        while not reader.empty():
            reader.get_nowait()
        reader.put_nowait(None)

    def close(self) -> None:
        """Let all readers go."""
        for reader in list(self._readers):
            self._dismiss(reader)

    async def follow(self) -> AsyncGenerator[RecentTurn, None]:
        """Those that are kept, then each new one. Ends for a reader that fell behind, and at
        ``close``."""
        reader: asyncio.Queue[RecentTurn | None] = asyncio.Queue(WAITING)
        self._readers.add(reader)
        try:
            for turn in list(self._turns):
                yield turn
            while (turn_or_end := await reader.get()) is not None:
                yield turn_or_end
        finally:
            self._readers.discard(reader)
