"""How long a text takes to say, counted in lower-case letters. Pure."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import accumulate

import numpy as np

USUAL_S_PER_LETTER = 0.065
"""How long a voice takes that has not been measured."""
_SIGN, _DIGIT, _SPELLED, _IDEOGRAPH, _PAUSE = 8, 6, 4, 4, 4
"""How many letters it takes to say such a character. Capitals that stand together are spelled, and
behind a mark there is a pause."""

_MARKS = ".,;:!?…-–—\n"
_SILENT = "*_`~|#<>[]{}\\"
"""Markup, which is written and not said."""
_WORD = re.compile(r"\S+")


def spoken_letters(text: str) -> int:
    """Lower-case letters that would take as long to say."""
    return sum(_letters(text))


def word_ends(text: str) -> list[tuple[int, float]]:
    """For each word of ``text``, the index of its end and the fraction of the speech over by then,
    without the pause behind it."""
    lead, stripped = len(text) - len(text.lstrip()), text.strip()
    letters = list(accumulate(_letters(stripped)))
    total = max(letters[-1], 1) if letters else 1
    return [(lead + w.end(), letters[w.end() - 1] / total) for w in _WORD.finditer(stripped)]


def _letters(text: str) -> list[int]:
    return [
        _char_letters(char, before, after)
        for before, char, after in zip(f" {text}", text, f"{text[1:]} ", strict=False)
    ]


@lru_cache(4096)
def _char_letters(char: str, before: str = " ", after: str = " ") -> int:
    if char.isdigit():
        return _DIGIT
    if char.isupper() and not after.islower() and (before.isalnum() or after.isalnum()):
        return _SPELLED
    if "\u2e80" <= char <= "\uffdc":
        return _IDEOGRAPH
    if char.isspace():
        return _PAUSE if before in _MARKS else 1
    if char.isalpha() or char in _MARKS or char in "'\"()’“”":
        return 1
    picture = char != "°" and unicodedata.category(char) in ("So", "Mn", "Cf")
    return 0 if picture or char in _SILENT else _SIGN


_MOST_CHARS_APART = 60

_FEWEST_CHARS_ALIKE = 5
"""Fewer are alike by chance."""


def repeated_letters(text: str) -> int:
    """The longest stretch of the text, as ``spoken_letters`` counts, that repeats what was said
    shortly before: sound may legitimately repeat itself for as long as this."""
    codes: list[int] = []
    weights: list[int] = []
    for char in text.lower():
        if char.isalnum():
            codes.append(ord(char))
            weights.append(_char_letters(char))
        elif weights and char in _MARKS:
            weights[-1] += _PAUSE
    chars, costs = np.array(codes), np.array(weights)
    most = 0
    for apart in range(1, min(_MOST_CHARS_APART, len(codes) - _FEWEST_CHARS_ALIKE) + 1):
        alike = chars[apart:] == chars[:-apart]
        ends = np.concatenate(([-1], np.flatnonzero(~alike), [len(alike)]))
        lengths = np.diff(ends) - 1
        sums = np.concatenate(([0], np.cumsum(costs[apart:] * alike)))
        runs = sums[ends[1:]] - sums[ends[:-1] + 1]
        most = max(most, int(runs[lengths >= _FEWEST_CHARS_ALIKE].max(initial=0)))
    return most
