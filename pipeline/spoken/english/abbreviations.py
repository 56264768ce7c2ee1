"""Abbreviations and Roman numerals in English, and signs that stand for words."""

from __future__ import annotations

import re

from pipeline.spoken.numerals import ENGLISH, roman
from pipeline.spoken.rules import any_of, full_stop, rule
from pipeline.spoken.words import pairs, words_of

_WORDS = words_of("en")
TITLES = pairs(_WORDS["titles"])
"""Only before a name."""
_BEFORE_NUMBERS = pairs(_WORDS["numbered"])
_ANYWHERE = pairs(_WORDS["abbreviations"])
_AT_ENDS = pairs(_WORDS["at_ends"])
"""These may end a sentence, with one full stop for both."""


_ROMAN = r"(?:(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3}))"


def _initials(match: re.Match[str]) -> str:
    return " ".join(match[0].replace(".", " ").split()) + full_stop(match)


ABBREVIATIONS = (
    rule(r"(?<!\w)PhD\b|(?<!\w)Ph\.\s?D\.", lambda m: "P H D" + full_stop(m)),
    rule(
        rf"(?<![\w.])({any_of(_ANYWHERE)})(?!\w)(,?)",
        lambda m: _ANYWHERE[m[1].lower()] + m[2],
        any_case=True,
    ),
    rule(r"(?<!\w)w/(?=\s?[A-Za-z])\s?", "with "),
    rule(
        rf"(?<![\w.])({any_of(TITLES)})\s+(?=[A-Z])",
        lambda m: m[0] if _is_street(m) else f"{TITLES[m[1]]} ",
    ),
    rule(
        r"\b(Mr|Ms|Dr|Prof)\.?(?= and (?:Missus|Miss|Doctor|Mrs|Ms|Dr)\b)",
        lambda m: TITLES[f"{m[1]}."],
    ),
    rule(r"(?<![\w.])(Mr|Mrs|Dr|Prof)\s+(?=[A-Z][a-z])", lambda m: f"{TITLES[f'{m[1]}.']} "),
    rule(
        rf"(?<![\w.])({any_of(_BEFORE_NUMBERS)}):?\s?(?:(?=[\d(+])"
        rf"|(?-i:(?=[IVX]{{2,}}\b|[VX]\b)({_ROMAN}))\b)",
        lambda m: (
            f"{_BEFORE_NUMBERS[m[1].lower()]} {ENGLISH.cardinal(roman(m[2])) if m[2] else ''}"
        ),
        any_case=True,
    ),
    rule(rf"(?<!\w)({any_of(_AT_ENDS)})", lambda m: _AT_ENDS[m[1]] + full_stop(m)),
    rule(r"(?<![\w.])(?:[A-Z]\.){2,}(?:[A-Z]\b)?", _initials),
    rule(r"(?<![\w.])(?!I\.)([A-Z])\.(?=\s+(?:[A-Z][a-z]|[A-Z]\.))", r"\1"),
)


def _is_street(match: re.Match[str]) -> bool:
    """ "Main St. Then": a street's name or number comes before, and a sentence may end here."""
    return match[1] == "St." and bool(re.search(r"[A-Z0-9]\w*\s$", match.string[: match.start()]))


_RULERS, _COUNTED = _WORDS["rulers"], _WORDS["counted"]


def _roman_numeral(match: re.Match[str]) -> str:
    """ "Henry VIII" -> "Henry the eighth", "Part II" -> "Part two"; not of "as Mary I am"."""
    if match[2] == "I" and _VERB.match(match.string[match.end() :]):
        return match[0]
    value = roman(match[2])
    number = (
        ENGLISH.cardinal(value)
        if re.fullmatch(_COUNTED, match[1])
        else f"the {ENGLISH.ordinal(value)}"
    )
    return f"{match[1]} {number}"


_VERB = re.compile(r"\s(?:am|was|think|have|had|will|would|can|could|do|did|know|see|say)\b")
ROMAN_NUMERALS = (
    rule(
        rf"\b({_RULERS}|{_COUNTED}) (?:the )?(?=L?[XVI])({_ROMAN})(?!\w|['’](?!s\b))",
        _roman_numeral,
    ),
)
"""Only behind words that want a number. "I" is a word, and "MIX" is no number."""
