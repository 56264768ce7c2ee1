"""How long a text takes to say, counted in lower-case letters."""

from __future__ import annotations

import numpy as np

_SYMBOL_CHARS, _DIGIT_CHARS, _CAPITAL_CHARS, _IDEOGRAPH_CHARS, _PAUSE_CHARS = 8, 6, 4, 4, 4
"""How many letters it takes to say such a sign; a capital that no small letter follows is spelled,
and behind a mark there is a pause."""

_MARKS = ".,;:!?…-–—\n"


def spoken_letters(text: str) -> int:
    """Characters that speech of the same length would have if it were all lower-case letters."""
    text = text.strip()
    return sum(_letters(char, text[at + 1 : at + 2]) for at, char in enumerate(text))


def _letters(char: str, after: str) -> int:
    if char.isdigit():
        return _DIGIT_CHARS
    if char.isupper() and not after.islower():
        return _CAPITAL_CHARS
    if "\u2e80" <= char <= "\uffdc":
        return _IDEOGRAPH_CHARS
    if char in _MARKS and after.isspace():
        return _PAUSE_CHARS
    if char.isalpha() or char.isspace() or char in _MARKS or char in "'\"()’“”":
        return 1
    return _SYMBOL_CHARS


_MOST_CHARS_APART = 60

_FEWEST_CHARS_ALIKE = 5
"""Fewer are alike by chance."""


def repeated_letters(text: str) -> int:
    """The longest stretch of the text, as ``spoken_letters`` counts, that says what was said a
    little before: sound that repeats itself as long as this is as it should be."""
    said: list[int] = []
    weights: list[int] = []
    for char in text.lower():
        if char.isalnum():
            said.append(ord(char))
            weights.append(_letters(char, ""))
        elif weights and char in _MARKS:
            weights[-1] += _PAUSE_CHARS
    codes, cost = np.array(said), np.array(weights)
    most = 0
    for apart in range(1, min(_MOST_CHARS_APART, len(said) - _FEWEST_CHARS_ALIKE) + 1):
        alike = codes[apart:] == codes[:-apart]
        ends = np.concatenate(([-1], np.flatnonzero(~alike), [len(alike)]))
        chars = np.diff(ends) - 1
        costs = np.concatenate(([0], np.cumsum(cost[apart:] * alike)))
        runs = costs[ends[1:]] - costs[ends[:-1] + 1]
        most = max(most, int(runs[chars >= _FEWEST_CHARS_ALIKE].max(initial=0)))
    return most
