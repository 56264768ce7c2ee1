"""A few words that pass the time, when an answer has to wait for a slow model or tool.

They are the beginning of the answer: its transcript has them, and the next prompt. So they are said
only where nothing is ready to be said: some time after the speech that is answered, or before a
call that the model makes without a word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Pastime:
    """Of one answer. ``put`` takes its text; nothing is said twice."""

    def __init__(self, sentence: str, put: Callable[[str], Awaitable[None]]) -> None:
        self._sentence = sentence
        self._put = put
        self._worded = asyncio.Event()

    def worded(self) -> None:
        """The model has words of its own, or will have none."""
        self._worded.set()

    async def before_call(self) -> None:
        """A tool is called; it may take long."""
        await self._say()

    async def wait(self, until: float) -> None:
        """Say it at ``until``, in the loop's time, if there are no words by then."""
        if not self._sentence:
            return
        try:
            async with asyncio.timeout_at(until):
                await self._worded.wait()
        except TimeoutError:
            await self._say()

    async def _say(self) -> None:
        if self._sentence and not self._worded.is_set():
            self._worded.set()
            await self._put(f"{self._sentence} ")
