"""Amounts with a unit, and percentages, as one says them in English."""

from __future__ import annotations

import re

from pipeline.spoken.numerals import ENGLISH, ENGLISH_NUMERAL
from pipeline.spoken.rules import any_of, rule
from pipeline.spoken.words import table, words_of

_WINDS = {"N": "north", "S": "south", "E": "east", "W": "west"}
_TIMES = ("second", "minute", "hour", "day", "night", "week", "month", "year", "person")
"""What may stand behind a slash in words."""
_UNITS = table(words_of("en")["units"])
"""Sign -> one, several."""
_UNIT = any_of(_UNITS)
_EACH = any_of((*_UNITS, *_TIMES))


def _amount(match: re.Match[str]) -> str:
    one, many = _UNITS[match["unit"]]
    per = f" per {_each(match['count'], match['per'])}" if match["per"] else ""
    return ENGLISH.count(match["n"], one, one if match["gap"] == "-" else many) + per


def _each(count: str | None, unit: str) -> str:
    """ "m³", or "100 km" in "5 l/100 km"."""
    one, many = _UNITS.get(unit, (unit, unit))
    return f"{ENGLISH.number(count)} {many}" if count else one


def _after_words(match: re.Match[str]) -> str:
    """ "one half tsp", "one and a half lb" and "per m²"."""
    one, many = _UNITS[match["unit"]]
    return f"{match['words']} {many if match['words'].startswith('and ') else one}"


def _area_or_volume(match: re.Match[str]) -> str:
    """ "10 sq ft"."""
    kind = {"sq": "square", "cu": "cubic"}[match["kind"]]
    one, many = _UNITS[match["unit"]]
    return ENGLISH.count(match["n"], f"{kind} {one}", f"{kind} {many}")


def _height(match: re.Match[str]) -> str:
    """5'10" -> "five foot ten"."""
    return f"{ENGLISH.cardinal(int(match[1]))} foot {ENGLISH.cardinal(int(match[2]))}"


def _inches(match: re.Match[str]) -> str:
    """Not of "Apollo 11" in quotation marks."""
    if re.search(r'(?<![^\s(])"[^"]*$', match.string[: match.start()]):
        return match[0]
    return ENGLISH.count(match[1], "inch", "inches")


UNITS = (
    rule(r"(?<![\w.,])(\d{1,2})\s?(?:'|′|ft\.?\s)\s?(\d{1,2})\s?(?:\"|″|''|in\b\.?)", _height),
    rule(rf"(?<![\w.,\"])({ENGLISH_NUMERAL})(?:\"|″)(?!\w)", _inches),
    rule(r"(?<![\w.,'])(\d{1,3})′", lambda m: f"{ENGLISH.number(m[1])} feet"),
    rule(
        rf"(?<![\w.,])(?P<n>{ENGLISH_NUMERAL})\s?(?P<kind>sq|cu)\.?\s(?P<unit>ft|m|km|mi|yd|cm)\b\.?",
        _area_or_volume,
    ),
    rule(r"(?<=\d°)\s?([NSEW])\b", lambda m: f" {_WINDS[m[1]]}"),
    rule(rf"(?<![\w.])({ENGLISH_NUMERAL})[\s-]?%", lambda m: f"{ENGLISH.number(m[1])} percent"),
    rule(rf"(?<![\w.])({ENGLISH_NUMERAL})\s?‰", lambda m: f"{ENGLISH.number(m[1])} per thousand"),
    rule(r"(?<![\w.,])(\d+)k(?!\w)", lambda m: f"{ENGLISH.number(m[1])} thousand"),
    rule(
        rf"(?<![\w.,])({ENGLISH_NUMERAL})M(?=\s[a-z])", lambda m: f"{ENGLISH.number(m[1])} million"
    ),
    rule(rf"(?<![\w.,])({ENGLISH_NUMERAL})\s?bn\b", lambda m: f"{ENGLISH.number(m[1])} billion"),
    rule(
        rf"(?<![\w,])(?<!\d\.)(?P<n>{ENGLISH_NUMERAL})(?P<gap>\s?|-)(?P<unit>{_UNIT})"
        rf"(?:/(?:(?P<count>\d+)\s?)?(?P<per>{_EACH}))?(?![\w²³^°]|/\w|['’]\w)"
        r"(?:\.(?=\s[a-z]))?",
        _amount,
    ),
    rule(
        r"(?P<words>\b(?:per|(?:and\sa|one|two|three|five|seven)"
        rf"\s(?:half|quarters?|thirds?|eighths?)))\s(?P<unit>{_UNIT})(?![\w²³/'’])",
        _after_words,
    ),
    rule(
        rf"(?<=\w)/({'|'.join(_TIMES)})\b",
        r" per \1",
    ),
    rule(r"(?<=\w\s)km/h\b", "kilometers per hour"),
)
