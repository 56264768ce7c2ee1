"""The latest turns of all sessions, in memory, for whoever looks at them in a browser."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from pipeline.bus import Bus, Published
from pipeline.events import TurnUnderWay
from pipeline.turn_record import TurnRecord

WAITING = 64
"""Turns that a reader may be behind; one that reads none of them begins anew."""


@dataclass(frozen=True, slots=True)
class RecentTurn:
    """``at``: seconds since 1970 of its end, or of its first audio while it is ``under_way``; then
    its whole record follows under the same ``number``. ``session`` counts those of this server from
    1; ``place``: address of its client."""

    number: int
    at: float
    session: int
    place: str
    record: TurnRecord
    under_way: bool = False


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
        under_way: dict[str | None, int] = {}
        """Numbers, by the id of the answer. The record of each turn comes in the end."""

        def note(published: Published) -> None:
            event = published.event
            if type(event) is TurnUnderWay:
                number = under_way[event.record.reply_id] = next(self._numbers)
                now = self._clock()
                self._tell(RecentTurn(number, now, session, place, event.record, under_way=True))
            elif type(event) is TurnRecord:
                number = under_way.pop(event.reply_id, 0) or next(self._numbers)
                turn = RecentTurn(number, self._clock(), session, place, event)
                self._turns.append(turn)
                self._tell(turn)

        bus.tap(note)

    def _tell(self, turn: RecentTurn) -> None:
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
