"""Texts and pictures that were read before: a long prompt costs no more than what is new."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from pipeline.engines.llm.vision import Picture


class KnownTexts:
    """Tokens of the texts of the last prompts, of one conversation, and their pictures: they hold
    what was said and shown.

    ``prompts``: of how many. What none of them had is forgotten.
    """

    def __init__(self, prompts: int = 8) -> None:
        self._prompts = prompts
        self._number = 0
        self._tokens: dict[str, list[int]] = {}
        self._used: dict[str, int] = {}
        self._pictures: dict[str, Picture | None] = {}

    def begin(self) -> None:
        """Another prompt begins."""
        self._number += 1
        for text in [t for t, used in self._used.items() if used < self._number - self._prompts]:
            self._tokens.pop(text, None)
            self._pictures.pop(text, None)
            del self._used[text]

    def tokens(self, text: str, read: Callable[[str], list[int]]) -> list[int]:
        """Tokens of ``text``, by ``read`` where they are not known. Not to be changed."""
        if text not in self._tokens:
            self._tokens[text] = read(text)
        self._used[text] = self._number
        return self._tokens[text]

    def picture(self, url: str, read: Callable[[str], Picture | None]) -> Picture | None:
        """The picture of a data URL, by ``read`` where it is not known; ``None``: unreadable."""
        digest = hashlib.sha256(url.encode()).hexdigest()
        if digest not in self._pictures:
            self._pictures[digest] = read(url)
        self._used[digest] = self._number
        return self._pictures[digest]

    def forget(self) -> None:
        """All of it."""
        self._tokens.clear()
        self._pictures.clear()
        self._used.clear()
