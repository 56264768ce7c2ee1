"""How far somebody has heard what is spoken: from seconds of audio to words. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

_WORD = re.compile(r"\s*\S+")
_DIGIT_LETTERS = 4
"""A digit takes as long to say as so many letters."""
_GAP_LETTERS = 1
_PAUSE_LETTERS = 4
"""What the border of a word, and a pause after a mark, take beside its letters."""
_MARKS = tuple(",.;:!?…—")


def heard_text(spoken: Sequence[tuple[str, float]], heard_seconds: float) -> str:
    """The clauses whose audio was heard, the last one cut at the border of a word.

    ``spoken``: each clause, with the white space before it, and the seconds of its audio, in
    order. Within a clause, words take as long as their letters suggest. What was heard is exactly a
    beginning of all of it.
    """
    heard: list[str] = []
    for text, seconds in spoken:
        if heard_seconds <= 0:
            break
        if heard_seconds >= seconds:
            heard.append(text)
        else:
            heard += _beginning(_WORD.findall(text), heard_seconds / seconds)
        heard_seconds -= seconds
    return "".join(heard)


def _beginning(words: list[str], share: float) -> list[str]:
    """Those that are over when this share of the clause is."""
    if not words:
        return words
    ends = list(accumulate(_letters(word.strip()) for word in words))
    return [word for word, end in zip(words, ends, strict=True) if end <= share * ends[-1] + 1e-9]


def _letters(word: str) -> int:
    digits = sum(character.isdigit() for character in word)
    others = sum(character.isalpha() for character in word)
    pause = _PAUSE_LETTERS if word.endswith(_MARKS) else 0
    return max(1, others + digits * _DIGIT_LETTERS) + _GAP_LETTERS + pause
