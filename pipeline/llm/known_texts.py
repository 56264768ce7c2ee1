"""Tokens of texts that were read before, so that a long prompt costs no more than what is new."""

from __future__ import annotations

from collections.abc import Callable


class KnownTexts:
    """Tokens of the texts of the last prompts, of one conversation: they hold what was said.

    ``prompts``: of how many. A text that none of them had is forgotten.
    """

    def __init__(self, prompts: int = 8) -> None:
        self._prompts = prompts
        self._number = 0
        self._tokens: dict[str, list[int]] = {}
        self._used: dict[str, int] = {}

    def begin(self) -> None:
        """Another prompt begins."""
        self._number += 1
        for text in [t for t, used in self._used.items() if used < self._number - self._prompts]:
            del self._tokens[text], self._used[text]

    def tokens(self, text: str, read: Callable[[str], list[int]]) -> list[int]:
        """Tokens of ``text``, by ``read`` where they are not known. Not to be changed."""
        if text not in self._tokens:
            self._tokens[text] = read(text)
        self._used[text] = self._number
        return self._tokens[text]

    def forget(self) -> None:
        """All of it."""
        self._tokens.clear()
        self._used.clear()
