"""Stage directions: ``*smiles*``, ``(laughs)``, ``[waves happily]``. They are played, not read."""

from __future__ import annotations

import re

from pipeline.spoken.words import english_words

_ACTS = english_words("acts")
"""What a robot or an actor does; in asides, nothing else means these words."""

_ACTS_ALONE = english_words("acts_alone")
"""The same, where the aside begins a sentence; elsewhere they are words with emphasis."""

_NO_ACTS = english_words("no_acts")

_FIRST_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


def is_direction(text: str, *, alone: bool) -> bool:
    """Whether an aside is a stage direction. ``alone``: it stands where a sentence begins; there,
    any verb without a capital in the third person or in -ing makes it one."""
    first = _FIRST_WORD.match(text)
    if first is None:
        return False
    word = first[0].lower()
    if word in _ACTS or (alone and word in _ACTS_ALONE):
        return True
    verb = len(word) > 3 and word.endswith(("s", "ing")) and word not in _NO_ACTS
    return alone and verb and first[0].islower()


def may_be_direction(start: str, *, alone: bool) -> bool:
    """Whether an aside that begins with ``start`` may be one."""
    first = _FIRST_WORD.match(start)
    return first is None or first.end() == len(start) or is_direction(start, alone=alone)
