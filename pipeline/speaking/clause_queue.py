"""Clauses and their sounds on their way to the listener: one task makes them, another sends them.

Sound that waits can still be dropped: if the voice goes wrong, the clause is said again
(``clause_speech``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from pipeline.audio import Pcm
from pipeline.speaking.delivery import Clause

MOST_WAITING = 500
"""Clauses and sounds that may wait for the gate or the listener: one clause, and the rest of the
one before it (``tuning.CLAUSE_SOUNDS_AHEAD``)."""


class ClauseQueue:
    """The clauses of one reply, each followed by its sounds: int16 mono at ``rate`` Hz."""

    def __init__(self, rate: int, on_clause: Callable[[], None]) -> None:
        """``on_clause`` is called with each clause put."""
        self._rate = rate
        self._on_clause = on_clause
        self._made_samples = 0
        self._pieces: deque[Clause | Pcm] = deque()
        self._sending = False
        """Whether the last piece taken out is still being sent."""
        self._ended = False
        self._changed = asyncio.Event()

    @property
    def made_s(self) -> float:
        """Seconds of sound put and not dropped."""
        return self._made_samples / self._rate

    # -- making

    async def put(self, piece: Clause | Pcm) -> None:
        """Add words, or sound of the newest words; waits while many wait."""
        await self._until(lambda: len(self._pieces) < MOST_WAITING)
        if isinstance(piece, Clause):
            self._on_clause()
        else:
            self._made_samples += len(piece)
        self._pieces.append(piece)
        self._changed.set()

    def drop(self, since_s: float) -> float:
        """Drop sounds of the newest clause that begin at ``since_s`` of ``made_s`` or later and
        have not left. Returns the seconds dropped."""
        before_s = self.made_s
        while self._pieces and not isinstance(newest := self._pieces[-1], Clause):
            begins = self._made_samples - len(newest)
            if begins < round(since_s * self._rate):
                break
            self._pieces.pop()
            self._made_samples = begins
        self._changed.set()
        return before_s - self.made_s

    def end(self) -> None:
        """Let ``next`` return ``None`` once everything was sent: nothing more will be put."""
        self._ended = True
        self._changed.set()

    async def until(self, most: int) -> None:
        """Wait until at most ``most`` clauses and sounds wait to be sent, and none is being sent if
        that is 0."""
        await self._until(lambda: len(self._pieces) <= most and not (most == 0 and self._sending))

    # -- sending

    async def next(self) -> Clause | Pcm | None:
        """What to send next, once the piece before it was sent; ``None`` at the end. It can still
        be dropped until ``leave``."""
        self._sending = False
        self._changed.set()
        await self._until(lambda: bool(self._pieces) or self._ended)
        return self._pieces[0] if self._pieces else None

    def leave(self, piece: Clause | Pcm) -> bool:
        """Take ``piece`` out in order to send it. False if it was dropped meanwhile."""
        if not self._pieces or self._pieces[0] is not piece:
            return False
        self._pieces.popleft()
        self._sending = True
        self._changed.set()
        return True

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._changed.clear()
            await self._changed.wait()
