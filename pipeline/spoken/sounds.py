"""How words sound, roughly and by English spelling, and how alike. Pure."""

from __future__ import annotations

import re
import unicodedata
from math import inf

_VOWELS = "aio"
_NEAR = frozenset(
    one + other
    for group in ("pbv", "fvT", "tdT", "kgC", "sSTC", "CJSg", "mn", "lr", "wv")
    for one in group
    for other in group
)
"""Consonants that are often taken for each other."""
_SPELLINGS = tuple(
    (re.compile(spelling), sound)
    for spelling, sound in (
        (r"[^a-z]", ""),
        (r"tsch|tch|ch", "C"),
        (r"sch|sh|sci|[ts]i(?=o)", "S"),
        (r"ph", "f"),
        (r"gh(?=[^aeiouy]|$)", ""),
        (r"th", "T"),
        (r"^[kgp]n", "n"),
        (r"^wr", "r"),
        (r"^x", "z"),
        (r"x", "ks"),
        (r"ck|qu?", "k"),
        (r"s?c(?=[eiy])|z", "s"),
        (r"c", "k"),
        (r"dge?|g(?=[eiy])|j", "J"),
        (r"h(?![aeiouy])|(?<=[a-z])h", ""),
        (r"(?<=[^aeiouy])e(?=s?$)", ""),
        (r"[ao]u|[oa]w|o[ao]|[ou]", "o"),
        (r"e[aeiy]|ie|a[iy]|[iye]", "i"),
        (r"(.)\1+", r"\1"),
    )
)


_LETTERS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe"})
"""Letters of Latin scripts that Unicode takes for no other letter with a mark."""


def sounds_of(word: str) -> str:
    """One letter for each sound, roughly; empty for scripts other than Latin."""
    sounds = unicodedata.normalize("NFKD", word).casefold().translate(_LETTERS)
    for spelling, sound in _SPELLINGS:
        sounds = spelling.sub(sound, sounds)
    return sounds


def difference(phrase: str, sounds: str, most: float) -> float:
    """Weighted edit distance, in wrong consonants; it may stop above ``most``."""
    row = [0.0]
    for sound in sounds:
        row.append(row[-1] + drop_cost(sound))
    for other in phrase:
        before, row = row, [row[0] + drop_cost(other)]
        for column, sound in enumerate(sounds):
            change = before[column] + _change_cost(other, sound)
            drop = before[column + 1] + drop_cost(other)
            row.append(min(change, drop, row[-1] + drop_cost(sound)))
        if min(row) > most:
            break
    return row[-1] if min(row) <= most else inf


def drop_cost(sound: str) -> float:
    return 0.5 if sound in _VOWELS else 1.0


def _change_cost(one: str, other: str) -> float:
    if one == other:
        return 0.0
    if one in _VOWELS and other in _VOWELS:
        return 0.3
    return 0.5 if one + other in _NEAR else 1.0
