"""Prompt lookup: what followed the last words where they stood before may follow again.

The cheapest draft for speculative decoding (Saxena 2023): no second model, and a guess costs a
dictionary look-up. Where the model repeats the prompt (names, lists, quotations, what a tool has
said) several tokens are checked in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

_NGRAM = 3
"""Tokens that must be the same; two agree too often by chance."""


class PromptLookup:
    """Of one sequence that grows. ``most``: tokens of a guess; 0: none is made."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._after: dict[tuple[int, ...], int] = {}
        """Where the tokens stand that followed an n-gram last."""
        self._seen = _NGRAM

    def guess(self, tokens: Sequence[int]) -> list[int]:
        """What may follow ``tokens``, which begin with those of the call before."""
        if not self._most:
            return []
        # The newest n-gram is looked up before it is noted.
        for end in range(self._seen, len(tokens)):
            self._after[tuple(tokens[end - _NGRAM : end])] = end
        self._seen = max(self._seen, len(tokens))
        start = self._after.get(tuple(tokens[-_NGRAM:]))
        guess = [] if start is None else tokens[start : start + self._most]
        return list(takewhile(lambda token: token >= 0, guess))  # what is below is a picture's
