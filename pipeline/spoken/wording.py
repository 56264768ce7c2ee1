"""How German, French, Spanish, Italian, Portuguese and Dutch are said: the words for dates, units
and signs, read from ``words/*.yaml``.

``pipeline.spoken.worded`` makes rules of them. English has rules of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipeline.spoken.words import LANGUAGES, MATHS_WORDS, pairs, table, words_of


@dataclass(frozen=True)
class Wording:
    """How one language words numbers, dates and signs."""

    one: str
    """1 before a noun."""
    months: tuple[str, ...]
    date: str
    """A template of ``{day}``, ``{month}`` and ``{year}``."""
    year: str
    """A template like ``date``."""
    first: str
    """The first day of a month."""
    hour: str
    time: str
    """``hour`` and ``time`` are templates of ``{hour}`` and ``{minute}``."""
    one_hour: str
    hour_word: str
    """A pattern of what may stand behind the digits of an hour."""
    cents: str
    """What is said between euros and cents."""
    to: str
    """What is said in ranges."""
    minus: str
    units: dict[str, tuple[str, str]]
    currencies: dict[str, tuple[str, str]]
    """For ``units`` and ``currencies``: one of it, and the name of several."""
    signs: dict[str, str]
    """In the table, only those that are said otherwise in a formula, or not at all."""
    abbreviations: dict[str, str]
    """Those with a full stop may end a sentence."""
    titles: dict[str, str]
    """Abbreviations that stand only before a name."""
    address: dict[str, str]
    cents_alone: str
    """What is said behind less than a euro."""
    times: str
    """What is said in "3x"."""
    per: str
    """What is said in "€/kg"."""
    ratio: str
    """What is said in "3:2"."""
    at: str
    """A pattern of what stands before a time with a full stop."""
    on: str
    """A pattern of what stands before a date without a year."""
    one_feminine: str
    """1 before a noun that ``feminine`` matches."""
    feminine: str
    counted: str
    """A pattern of what stands before Roman numerals that count."""
    ruler: tuple[str, int]
    """What is said between a name and its number, and up to which number that is an ordinal."""
    numbered: dict[str, str]
    """Abbreviations that stand only before a number."""
    compounds: dict[str, str] = field(default_factory=dict)
    """Ends of words that are shortened, without the full stop: "str" of "Hauptstr."."""
    of: str = ""
    """What is said between millions and what they are millions of."""
    out_of: str = ""
    """ "8/10"."""
    ones: dict[str, str] = field(default_factory=dict)
    """Patterns of other nouns, and 1 before them."""
    nth: str = r"(?!)"
    """A pattern of what stands behind Roman numerals that are ordinals."""
    phone: str = r"(?!)"
    """A pattern of numbers that are called."""
    short_months: dict[str, str] = field(default_factory=dict)
    """Those that are not the first letters of a month, without the full stop."""
    ordinals: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Ending behind the digits -> the end of the ordinal, and what is said in its place."""

    def one_before(self, noun: str) -> str:
        return f"{self.one_feminine if re.fullmatch(self.feminine, noun) else self.one} "

    def linked(self, first: str | None, link: str | None, last: str) -> str:
        """ "3.-5.", "3./4." and "3. und 4."."""
        if not (first and link):
            return last
        word = self.to if link in "-–—" else self.signs["&"] if link == "/" else link
        return f"{first} {word} {last}"


_READERS: dict[str, Callable[[Any], Any]] = {
    "months": lambda text: tuple(text.split()),
    "units": table,
    "currencies": table,
    **dict.fromkeys(
        ("signs", "abbreviations", "titles", "numbered", "compounds", "address"), pairs
    ),
    "short_months": pairs,
    "ruler": tuple,
    "ordinals": lambda ends: {end: tuple(words) for end, words in ends.items()},
}


_SIGNS = "+=×÷≈±<>≠≤≥√^²³∞"
"""Signs that may stand outside of a formula."""


def _wording(language: str) -> Wording:
    fields = {
        key: _READERS.get(key, str if isinstance(value, str) else dict)(value)
        for key, value in words_of(language).items()
        if key in Wording.__dataclass_fields__
    }
    maths = MATHS_WORDS[language]
    fields["signs"] = {s: maths[s] for s in _SIGNS} | {"&": maths["∧"]} | fields["signs"]
    return Wording(to=maths["to"], **fields)


WORDINGS = {language: _wording(language) for language in LANGUAGES if language != "en"}
"""By language, ISO 639-1."""
GERMAN = WORDINGS["de"]
