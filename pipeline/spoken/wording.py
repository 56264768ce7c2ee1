"""How German, French, Spanish, Italian, Portuguese and Dutch are said: the words for numbers,
dates, units and signs, read from ``words/*.yaml``.

``pipeline.spoken.worded`` makes rules of them. English has rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from num2words.lang_DE import Num2Word_DE
from num2words.lang_ES import Num2Word_ES
from num2words.lang_FR import Num2Word_FR
from num2words.lang_IT import Num2Word_IT
from num2words.lang_NL import Num2Word_NL
from num2words.lang_PT import Num2Word_PT

from pipeline.spoken.words import pairs, table, words_of


@dataclass(frozen=True)
class Wording:
    """One language.

    ``numbers``: num2words. ``one``: 1 before a noun. ``comma``: before the decimals. ``date``,
    ``year``: templates of ``{day}``, ``{month}`` and ``{year}``; ``first``: the first day of a
    month. ``hour``, ``time``: templates of ``{hour}`` and ``{minute}``; ``hour_word``: a pattern of
    what may stand behind the digits. ``cents``: between euros and cents. ``to``: in ranges.
    ``units``, ``currencies``: one of it, and the name of several. ``abbreviations``: those with a
    full stop may end a sentence. ``titles``: only before a name; ``numbered``: before a number.
    ``cents_alone``: behind less than a euro. ``times``: "3x". ``per``: "€/kg". ``ratio``: "3:2".
    ``of``: between millions and what they are millions of. ``one_feminine``: 1 before a noun that
    ``feminine`` matches; ``ones``: other patterns, and 1 before them. Patterns: ``at``, before a
    time with a full stop; ``on``, before a date without a year; ``counted``, before Roman numerals
    that count; ``nth``, behind those that are ordinals; ``phone``: numbers that are called.
    ``ruler``: what is said between a name and its number, and up to which one that is an ordinal.
    """

    numbers: Any
    one: str
    comma: str
    months: tuple[str, ...]
    date: str
    year: str
    first: str
    hour: str
    time: str
    one_hour: str
    hour_word: str
    cents: str
    to: str
    minus: str
    units: dict[str, tuple[str, str]]
    currencies: dict[str, tuple[str, str]]
    signs: dict[str, str]
    abbreviations: dict[str, str]
    titles: dict[str, str]
    address: dict[str, str]
    cents_alone: str
    times: str
    per: str
    ratio: str
    at: str
    on: str
    one_feminine: str
    feminine: str
    counted: str
    ruler: tuple[str, int]
    numbered: dict[str, str]
    compounds: dict[str, str] = field(default_factory=dict)
    """Ends of words that are shortened, without the full stop: "str" of "Hauptstr."."""
    of: str = ""
    out_of: str = ""
    """ "8/10"."""
    ones: dict[str, str] = field(default_factory=dict)
    nth: str = r"(?!)"
    phone: str = r"(?!)"
    short_months: dict[str, str] = field(default_factory=dict)
    """Those that are not the first letters of a month, without the full stop."""
    ordinals: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Ending behind the digits -> the end of the ordinal, and what is said in its place."""


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


def _wording(language: str, numbers: Any) -> Wording:
    fields = {
        key: _READERS.get(key, str if isinstance(value, str) else dict)(value)
        for key, value in words_of(language).items()
        if key in Wording.__dataclass_fields__
    }
    return Wording(numbers=numbers, **fields)


WORDINGS = {
    "de": _wording("de", Num2Word_DE()),
    "es": _wording("es", Num2Word_ES()),
    "fr": _wording("fr", Num2Word_FR()),
    "it": _wording("it", Num2Word_IT()),
    "nl": _wording("nl", Num2Word_NL()),
    "pt": _wording("pt", Num2Word_PT()),
}
"""By language, ISO 639-1."""
GERMAN, SPANISH = WORDINGS["de"], WORDINGS["es"]
