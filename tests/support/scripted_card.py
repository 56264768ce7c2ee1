"""A sound card of virtual time: the loudspeaker plays by the loop's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np

from hardware.sound.alignment import SoundBlock
from pipeline.audio import LISTEN_RATE, Pcm

BLOCK = LISTEN_RATE // 100


class ScriptedCard:
    """``say`` and ``be_quiet`` are the room; ``done`` is what was asked of the loudspeaker."""

    def __init__(self) -> None:
        self.done: list[tuple[float, str]] = []
        self.ducked_db = 0.0
        self._queue: list[tuple[str, Pcm]] = []
        self._heard: dict[str, float] = {}
        self._blocks: asyncio.Queue[SoundBlock | None] = asyncio.Queue(1000)

    # -- the room

    async def hear(self, seconds: float, level: int = 0) -> None:
        """The microphone in real time; what is queued is played meanwhile."""
        for _ in range(round(seconds * 100)):
            await asyncio.sleep(0.01)
            pcm = np.full(BLOCK, level, np.int16)
            now = asyncio.get_running_loop().time()
            await self._blocks.put(SoundBlock(pcm, self._play_block(), now))

    async def say(self, seconds: float) -> None:
        await self.hear(seconds, 3000)

    def end(self) -> None:
        self._blocks.put_nowait(None)

    def _play_block(self) -> Pcm:
        played, wanted = [], BLOCK
        while wanted and self._queue:
            sound_id, pcm = self._queue.pop(0)
            piece, rest = pcm[:wanted], pcm[wanted:]
            played.append(piece)
            wanted -= len(piece)
            self._heard[sound_id] = self._heard.get(sound_id, 0.0) + len(piece) / LISTEN_RATE
            if len(rest):
                self._queue.insert(0, (sound_id, rest))
        return np.concatenate((*played, np.zeros(wanted, np.int16)))

    @property
    def playing(self) -> bool:
        return bool(self._queue)

    # -- app.talk.talking.Card

    async def blocks(self) -> AsyncIterator[SoundBlock]:
        while block := await self._blocks.get():
            yield block

    def play(self, pcm: Pcm, rate: int, sound_id: str) -> None:
        assert rate == LISTEN_RATE
        self._queue.append((sound_id, pcm))

    def flush(self) -> None:
        if self._queue:
            self._note("flush")
        self._queue.clear()

    def duck(self, by_db: float) -> None:
        if by_db != self.ducked_db:
            self._note(f"duck {by_db:g}")
        self.ducked_db = by_db

    def heard_s(self, sound_id: str) -> float:
        return self._heard.get(sound_id, 0.0)

    def _note(self, what: str) -> None:
        self.done.append((asyncio.get_running_loop().time(), what))
