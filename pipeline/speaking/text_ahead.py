"""Text on its way from the language model to the voice.

The model runs ahead of the voice, up to a bound. The voice takes the longest piece that is ready
in time; if that should rather be longer than what is there, it waits for more text, until its
audio runs out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pipeline.speaking.chunker import Piece, SpeechChunker
from pipeline.speaking.ramp import Ramp

AHEAD_CHARS = 400
"""So much text, half a minute of speech, may wait for the voice; the model pauses behind it."""


class TextAhead:
    """One answer's text: one task puts, another takes."""

    def __init__(self, chunker: SpeechChunker, ramp: Ramp) -> None:
        self._chunker = chunker
        self._ramp = ramp
        self._changed = asyncio.Condition()
        self._wanted = False
        self._over = False

    async def put(self, text: str) -> None:
        """Add text; waits while there is plenty that the voice has not taken."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._wanted or self._chunker.held_chars < AHEAD_CHARS
            )
            self._chunker.feed(text)
            self._changed.notify_all()

    async def end_part(self) -> None:
        """What was put is whole; more may follow, as words that stand apart."""
        async with self._changed:
            self._chunker.close()
            self._changed.notify_all()

    async def forget(self) -> None:
        """What has not been taken is no part of the answer; another one may come in its place."""
        async with self._changed:
            self._chunker.forget()
            self._changed.notify_all()

    async def end(self) -> None:
        """Nothing follows."""
        async with self._changed:
            self._chunker.close()
            self._over = True
            self._changed.notify_all()

    async def hurry(self) -> None:
        """The listener hears now: who waits for text looks anew how long there is."""
        async with self._changed:
            self._changed.notify_all()

    async def take(
        self, buffered_s: Callable[[], float], playing: Callable[[], bool]
    ) -> Piece | None:
        """The next piece to speak; ``None`` at the end.

        ``buffered_s`` tells how many seconds of audio the listener has still to hear, ``playing``
        whether they become fewer.
        """
        async with self._changed:
            while True:
                ahead_s = buffered_s()
                patience_s = self._ramp.patience_s(ahead_s, self._chunker.held_letters)
                longest = self._ramp.longest_letters(ahead_s)
                hurry = playing() and not patience_s
                if piece := self._chunker.take(longest, hurry=hurry):
                    self._changed.notify_all()
                    return piece
                if self._over and self._chunker.over:
                    return None
                await self._wait(patience_s if playing() and patience_s else None)

    async def _wait(self, timeout_s: float | None) -> None:
        self._wanted = True
        self._changed.notify_all()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            pass
        finally:
            self._wanted = False
