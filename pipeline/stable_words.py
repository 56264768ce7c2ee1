"""Which words of a growing transcript will not change: those that two passes in a row agree on."""

from __future__ import annotations

from pipeline.engines import Partial


class StableWords:
    """Partial transcripts in, append-only text out."""

    def __init__(self) -> None:
        self._told = 0
        self._before: list[str] = []

    def feed(self, partial: Partial) -> str:
        """What can be told now in addition; begins with a space when it goes on."""
        words = partial.text.split()
        stable = max(len(partial.committed.split()), self._agreed(words))
        self._before = words
        more = words[self._told : stable]
        if not more:
            return ""
        glue = " " if self._told else ""
        self._told = stable
        return glue + " ".join(more)

    def _agreed(self, words: list[str]) -> int:
        """How many words from the start both passes have; the newest one may still grow."""
        agreed = 0
        for word, before in zip(words[:-1], self._before, strict=False):
            if word != before:
                break
            agreed += 1
        return agreed
