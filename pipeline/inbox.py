"""What waits for a session: commands in their order, and audio that is not committed yet. Both are
bounded."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np

from pipeline.audio import EMPTY, Pcm
from pipeline.commands import AppendAudio, Command

CAPACITY = 256
"""Commands that may wait. Audio waits in pieces of a second at most, so this bounds its memory."""


class Inbox:
    """A queue of commands."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Command] = asyncio.Queue(CAPACITY)

    async def put(self, command: Command) -> None:
        """Hand a command over; waits while the inbox is full."""
        if not isinstance(command, AppendAudio):
            await self._waiting.put(command)
            return
        for start in range(0, len(command.pcm), command.rate):
            first, end = start == 0, start + command.rate
            piece = replace(
                command,
                pcm=command.pcm[start:end],
                begins=first,
                given=None if command.given is None else command.given[start:end],
                given_moved=command.given_moved if first else None,
            )
            await self._waiting.put(piece)

    def offer(self, command: Command) -> None:
        """Hand a command over that may be lost: it is, while the inbox is full."""
        if not self._waiting.full():
            self._waiting.put_nowait(command)

    async def get(self) -> Command:
        """The next command."""
        return await self._waiting.get()

    async def get_within(self, seconds: float) -> Command | None:
        """The next command; ``None`` when none comes in time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._waiting.get()
        except TimeoutError:
            return None


class PushToTalkBuffer:
    """What a client without turn detection has appended and not yet committed."""

    def __init__(self, capacity_samples: int) -> None:
        self.samples = 0
        self._capacity_samples = capacity_samples
        self._pieces: list[Pcm] = []

    def append(self, pcm: Pcm) -> bool:
        """False when it is full; nothing is taken then."""
        if self.samples + len(pcm) > self._capacity_samples:
            return False
        self._pieces.append(pcm)
        self.samples += len(pcm)
        return True

    def take(self) -> Pcm:
        pcm = np.concatenate(self._pieces) if self._pieces else EMPTY
        self.clear()
        return pcm

    def clear(self) -> None:
        self._pieces.clear()
        self.samples = 0
