"""Text on its way from the language model to the voice.

The model runs ahead of the voice, up to a limit. The voice takes the longest piece that is ready in
time; if more text would make a better piece, it waits until its audio is about to run out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from pipeline.speaking.chunker import Piece, SpeechChunker
from pipeline.speaking.ramp import Ramp
from pipeline.spoken.length import spoken_letters

AHEAD_CHARS = 400
"""Text that may wait for the voice, half a minute of speech; then the model pauses."""


class TextAhead:
    """One answer's text: one task puts it in, another takes it out."""

    def __init__(self, chunker: SpeechChunker, ramp: Ramp) -> None:
        self._chunker = chunker
        self._ramp = ramp
        self._changed = asyncio.Condition()
        self._voice_waits = False
        self._ended = False
        self._ready: list[Piece] = []
        """Pieces ready for the voice; inaudible ones wait for an audible one or the end."""
        self.taken_text = ""
        """The text of the pieces taken."""

    @property
    def all(self) -> str:
        """The text taken and not taken."""
        return self.taken_text + "".join(piece.text for piece in self._ready) + self._chunker.buffer

    async def put(self, text: str) -> None:
        """Add text; waits while the voice has enough to say."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._voice_waits or len(self._chunker.buffer) < AHEAD_CHARS
            )
            self._chunker.feed(text)
            self._changed.notify_all()

    async def end_part(self) -> None:
        """The text so far is complete; more may follow, set apart by a space."""
        async with self._changed:
            self._chunker.close()
            self._changed.notify_all()

    async def forget(self) -> None:
        """Drop text not yet taken: it is not part of the answer. Another answer may replace it."""
        async with self._changed:
            self._ready.clear()
            self._chunker.forget()
            self._changed.notify_all()

    async def end(self) -> None:
        """Nothing follows."""
        async with self._changed:
            self._chunker.close()
            self._ended = True
            self._changed.notify_all()

    async def hurry(self) -> None:
        """The listener has begun to hear: let a waiting ``ready`` check its time again."""
        async with self._changed:
            self._changed.notify_all()

    async def ready(self, buffered_s: Callable[[], float], is_playing: Callable[[], bool]) -> bool:
        """Wait until there is a piece to speak. False: no text is left.

        ``buffered_s`` returns the seconds of audio that the listener has not heard yet,
        ``is_playing`` whether they are running down.
        """
        async with self._changed:
            while True:
                ahead_s = buffered_s()
                patience_s = self._ramp.patience_s(ahead_s, spoken_letters(self._chunker.buffer))
                longest = self._ramp.longest_letters(ahead_s)
                hurry = is_playing() and not patience_s
                if piece := self._chunker.take(longest, hurry=hurry):
                    self._changed.notify_all()
                    self._ready.append(piece)
                    if piece.spoken:
                        return True
                elif self._ended and self._chunker.is_done:
                    return False
                else:
                    await self._wait(patience_s if is_playing() and patience_s else None)

    def take(self) -> list[Piece]:
        """The piece that is ready, after the inaudible ones before it."""
        pieces, self._ready = self._ready, []
        if pieces and not self.taken_text:  # may follow a filler
            pieces[0] = replace(pieces[0], text=pieces[0].text.lstrip())
        self.taken_text += "".join(piece.text for piece in pieces)
        return pieces

    async def _wait(self, timeout_s: float | None) -> None:
        self._voice_waits = True
        self._changed.notify_all()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            pass
        finally:
            self._voice_waits = False
