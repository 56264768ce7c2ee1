"""Which words of a growing transcript will not change: those that two passes in a row agree on."""

from __future__ import annotations

from pipeline.engines.contract import Partial


class StableWords:
    """Partial transcripts in, append-only text out."""

    def __init__(self) -> None:
        self.text = ""
        """All that was told."""
        self.newest = ""
        """The newest partial transcript, with the words that may still change."""
        self.settled = False
        """Whether the newest pass found nothing new: the whole text may be all there is."""
        self._told = 0
        self._before: list[str] = []

    def feed(self, partial: Partial) -> str:
        """What can be told now in addition; begins with a space when it goes on."""
        words = partial.text.split()
        if not words:
            return ""
        self.newest = partial.text
        stable = max(len(partial.committed.split()), self._agreed(words))
        self.settled = words == self._before
        self._before = words
        more = words[self._told : stable]
        if not more:
            return ""
        glue = " " if self._told else ""
        self._told = stable
        told = glue + " ".join(more)
        self.text += told
        return told

    def _agreed(self, words: list[str]) -> int:
        """How many words from the start both passes have; the newest one may still grow."""
        agreed = 0
        for word, before in zip(words[:-1], self._before, strict=False):
            if word != before:
                break
            agreed += 1
        return agreed
