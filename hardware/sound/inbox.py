"""A bounded queue of captured blocks for one reader; dropped audio is counted."""

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
        self._news = asyncio.Event()
        self._ended = False
        self._lost_samples = 0
        self._reference_moved: int | None = None

    def put(self, block: SoundBlock) -> None:
        self._blocks.append(block)
        if len(self._blocks) > _MOST_BLOCKS:
            oldest = self._blocks.popleft()
            self._lost_samples += oldest.lost_samples + len(oldest.pcm)
            self._reference_moved = (self._reference_moved or 0) + (oldest.reference_moved or 0)
        self._news.set()

    def forget(self) -> None:
        """Drop audio captured while nothing was listening, such as while engines load, without
        counting it as lost."""
        self._blocks.clear()
        self._lost_samples, self._reference_moved = 0, None

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def blocks(self) -> AsyncIterator[SoundBlock]:
        """Yields the captured audio in blocks of 10 ms to one reader, until ``end`` is called and
        the queue is empty. If the reader is over 2 s late, the oldest are dropped and counted."""
        while True:
            while self._blocks:
                yield self._next()
            if self._ended:
                return
            self._news.clear()
            await self._news.wait()

    def _next(self) -> SoundBlock:
        block = self._blocks.popleft()
        if not self._lost_samples:
            return block
        samples, self._lost_samples = self._lost_samples, 0
        move, self._reference_moved = self._reference_moved or 0, None
        self._notify(SampleLoss(samples))
        return replace(
            block,
            lost_samples=block.lost_samples + samples,
            reference_moved=move + (block.reference_moved or 0),
        )
