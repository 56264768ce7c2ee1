"""Blocks on their way to their reader: bounded; what is dropped is counted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from hardware.sound.alignment import SoundBlock
from hardware.sound.notices import SampleLoss, SoundNotice

_MOST_BLOCKS = 200
"""2 s."""


class BlockInbox:
    """One writer and one reader on the same loop."""

    def __init__(self, notify: Callable[[SoundNotice], None]) -> None:
        self._notify = notify
        self._blocks: deque[SoundBlock] = deque()
        self._changed = asyncio.Event()
        self._ended = False
        self._lost = 0
        self._moved: int | None = None

    def put(self, block: SoundBlock) -> None:
        self._blocks.append(block)
        if len(self._blocks) > _MOST_BLOCKS:
            oldest = self._blocks.popleft()
            self._lost += oldest.lost_samples + len(oldest.pcm)
            self._moved = (self._moved or 0) + (oldest.reference_moved or 0)
        self._changed.set()

    def forget(self) -> None:
        """Drop, without counting it as lost, the audio captured while nothing was listening, such
        as while engines load."""
        self._blocks.clear()
        self._lost, self._moved = 0, None

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    async def blocks(self) -> AsyncIterator[SoundBlock]:
        """The captured audio in blocks of 10 ms, for one reader, until the end, including blocks
        that wait by then. If the reader is more than 2 s late, the oldest are dropped and counted.
        """
        while True:
            while self._blocks:
                yield self._next()
            if self._ended:
                return
            self._changed.clear()
            await self._changed.wait()

    def _next(self) -> SoundBlock:
        block = self._blocks.popleft()
        if not self._lost:
            return block
        lost, self._lost = self._lost, 0
        moved, self._moved = self._moved or 0, None
        self._notify(SampleLoss(lost))
        return replace(
            block,
            lost_samples=block.lost_samples + lost,
            reference_moved=moved + (block.reference_moved or 0),
        )
