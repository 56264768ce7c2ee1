"""The rules that German alone has: ordinals with endings, and numbers in a word. Pure."""

from __future__ import annotations

import re

from pipeline.spoken.numerals import NUMERALS, ROMAN, roman
from pipeline.spoken.rules import any_of, last_stop, rule
from pipeline.spoken.wording import GERMAN
from pipeline.spoken.words import pairs, words_of

_NUMERALS = NUMERALS["de"]


def _endings(table: str) -> dict[str, str]:
    endings = pairs(words_of("de")[table])
    return {word: ending for ending, words in endings.items() for word in words.split()}


ARTICLES = _endings("articles")
"""Articles and prepositions -> what the ordinal behind them ends in."""
COUNTED_NOUNS = _endings("counted_nouns")
"""Nouns that are counted without an article -> what the ordinal before them ends in."""


def ordinal(value: int, before: str) -> str:
    """ "dritte", with the ending that the word before it asks for."""
    ending = ARTICLES.get(before.strip().lower(), "er")
    return _NUMERALS.ordinal(value).removesuffix("e") + ending


def _behind_article(match: re.Match[str]) -> str:
    """ "der 2. Versuch" -> "der zweite Versuch"."""
    first, last = (each and ordinal(int(each), match[1]) for each in match.group(2, 4))
    return f"{match[1]}{GERMAN.linked(first, match[3], last)}"


def _before_noun(match: re.Match[str]) -> str:
    """ "3. Stock" -> "dritter Stock", without a word before it; "1.-3. Klasse"."""
    ending = COUNTED_NOUNS[match[4]]
    first, last = (
        each and _NUMERALS.ordinal(int(each)).removesuffix("e") + ending
        for each in match.group(1, 3)
    )
    return f"{GERMAN.linked(first, match[2], last)} "


def _compound(match: re.Match[str]) -> str:
    """ "90er" -> "neunziger"; "3-mal" -> "dreimal"."""
    value = int(match[1])
    year = 1100 <= value < 2000
    return (_NUMERALS.year(value) if year else _NUMERALS.cardinal(value, "ein ")) + match[2]


_TWICE = r"(?:(\d{1,4})\.\s?([-–/]|und|bis|oder)\s?)?(\d{1,4})\."
ORDINALS = (
    rule(
        rf"\b((?:{'|'.join(ARTICLES)})\s){_TWICE}(?=\s[^\W\d_])",
        _behind_article,
        any_case=True,
    ),
    rule(rf"(?<![\w.,]){_TWICE}\s(?=({any_of(COUNTED_NOUNS)})\b)", _before_noun),
)
ROMAN_ORDINAL = rule(
    rf"\b([Dd](?:er|ie|en|em|es)\s)({ROMAN})\.(?!\w)",
    lambda m: m[1] + ordinal(roman(m[2]), m[1]) + last_stop(m),
)
""" "der VIII." -> "der achte"."""
COMPOUND = rule(r"(?<![\w.,])(\d{1,4})-?(ern?|[a-zäöü]{3,})(?!\w)", _compound)
"""The hyphen and the digits of "20-jährig" are one word."""
OPENING_HOURS = rule(rf"({words_of('de')['open_hours']})\s?h\b", r"\1 Uhr")
"""An "h" that is not how long something takes."""
