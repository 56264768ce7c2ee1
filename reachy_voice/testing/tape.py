"""The microphone's input in a test: words that can be told apart.

Each word is a tone of its own level, by which a test's recogniser knows it. So a transcript shows
exactly which words were in the audio, a word that was cut is shorter, and audio that is fed twice
fails the test.
"""

from __future__ import annotations

import numpy as np

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm

SAMPLES_PER_MS = LISTEN_RATE // 1000
_QUIETEST_WORD = 2_000
NOISE = "~"
"""In a text, stands for a sound that is not a word."""


class Tape:
    """The microphone's input from time 0; silence where nothing is said."""

    def __init__(self) -> None:
        self.pcm = EMPTY
        self._words: list[tuple[str, int]] = []
        """Each word, and its length in samples."""

    def say(self, at_ms: int, text: str, lasts_ms: int) -> None:
        """Speak the words of ``text``, each equally long. Words already on the tape stay, and cut
        the new ones."""
        words = text.split()
        edges = np.linspace(at_ms, at_ms + lasts_ms, len(words) + 1) * SAMPLES_PER_MS
        self._extend(int(edges[-1]))
        for word, start, end in zip(words, edges[:-1], edges[1:], strict=True):
            place = self.pcm[int(start) : int(end)]
            free = place == 0
            if free.any():
                sign = np.where(np.arange(len(place)) // 2 % 2, -1, 1)  # 4 kHz
                place[free] = ((_QUIETEST_WORD + len(self._words)) * sign)[free]
                self._words.append((word, int(free.sum())))

    def between(self, start: int, end: int) -> Pcm:
        """Samples ``start`` to ``end``; silence after the last word."""
        self._extend(end)
        return self.pcm[start:end]

    @property
    def said(self) -> list[str]:
        """All words, in the order in which they were added."""
        return [word for word, _ in self._words if word != NOISE]

    def words_in(self, pcm: Pcm, *, whole: bool = False) -> list[str]:
        """The words in a recording. A word that was cut is shorter; with ``whole``, it is left
        out."""
        levels, firsts, counts = np.unique(np.abs(pcm), return_index=True, return_counts=True)
        words = []
        for at in np.argsort(firsts):
            level, count = int(levels[at]), int(counts[at])
            if level < _QUIETEST_WORD:
                continue
            word, samples = self._words[level - _QUIETEST_WORD]
            assert count <= samples, f"{word!r} was fed twice"
            share = int(count == samples) if whole else count / samples
            if word != NOISE:
                words.append(word[: int(len(word) * share)])
        return [word for word in words if word]

    def _extend(self, samples: int) -> None:
        if samples > len(self.pcm):
            more = np.zeros(max(samples - len(self.pcm), LISTEN_RATE * 10), np.int16)
            self.pcm = np.concatenate((self.pcm, more))
