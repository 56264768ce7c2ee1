"""Sends a reply as the player needs it: the last stage, behind the gate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from pipeline.audio import Pcm
from pipeline.speaking import tuning
from pipeline.speaking.clause_queue import ClauseQueue
from pipeline.speaking.delivery import Clause
from pipeline.speaking.response import Response, now


class Pacer:
    """Sends words and sound to the delivery of a reply's current response."""

    def __init__(self, response: Response, free: asyncio.Event) -> None:
        """``free`` is set while the reply is not held."""
        self._response = response
        self._plan = response.plan
        self._free = free

    async def run(self, queue: ClauseQueue) -> None:
        """Send all clauses; returns when the next thing may be sent."""
        while (piece := await queue.next()) is not None:
            if isinstance(piece, Clause):
                await self._free.wait()
                if queue.leave(piece) and not piece.left_out:
                    self._response.delivery.say(piece)
                continue
            for number, message in enumerate(self._messages(piece)):
                await self._wait_until_due(message)
                if number == 0 and not queue.leave(piece):
                    break
                self._response.mark("first_audio")
                self._response.delivery.speak(message, now())
        await self._free.wait()

    async def speak(self, pcm: Pcm) -> None:
        """Send sound of a notice."""
        for message in self._messages(pcm):
            await self._wait_until_due(message)
            self._response.delivery.speak(message, now())

    def _messages(self, pcm: Pcm) -> Iterator[Pcm]:
        """``pcm`` in messages, short ones while the lead is short. Send each before taking the
        next."""
        start = 0
        while start < len(pcm):
            chunk_ms = self._plan.settings.chunk_ms
            if self._plan.lead and self._response.delivery.playback.sent_seconds < tuning.FIRST_S:
                chunk_ms = min(chunk_ms, tuning.FIRST_CHUNK_MS)
            end = start + self._plan.config.output_format.rate * chunk_ms // 1000
            yield pcm[start:end]
            start = end

    async def _wait_until_due(self, message: Pcm) -> None:
        """Wait until the player needs it, and until the reply is no longer held."""
        if self._plan.lead:
            seconds = len(message) / self._plan.config.output_format.rate
            delay = self._response.delivery.playback.delay(seconds, self._plan.lead, now())
            if delay:
                await asyncio.sleep(delay)
        await self._free.wait()
