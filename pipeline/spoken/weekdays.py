"""Days and months with a dash between: "Mo.–Fr." is "Montag bis Freitag". Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.spoken.rules import Rule, any_of, full_stop, rule
from pipeline.spoken.words import MATHS_WORDS, by_turns, words_of

_BEFORE = "(?:[Aa]m|[Bb]is|[Aa]b|[Vv]om|[Jj]eden|on|by|until|op)"
_LINKS = "bis|to|thru|through|au|à|al?|tot|t/m|oder|or|ou|of?|u\\."
"""Words between two days."""
_CLOCK = r"\d\d?(?:[:.h]\d\d)?\s?(?:[-–—]|Uhr|uur|h\b|[ap]m\b)"
_DATE = (
    r"\d\d?\.?\s(?i:jan|ene|gen|f[eé][bv]|m[aä]r|mrt|a[bpv]r|ma[giy]|mei|jun|jui|giu|jul|lug|aug|ago"
    r"|août|sep|set|o[ck]t|out|ott|nov|d[eé][cz]|dic)"
)


def short_days(language: str) -> dict[str, str]:
    """The day for each short form without its full stop."""
    days = by_turns(words_of(language).get("days", ""))
    return days | {short.capitalize(): day for short, day in days.items()}


def _spans(names: Sequence[str], to: str, least: int = 3) -> Rule:
    """A dash between two of ``names``, which may be shortened to the ``least`` letters."""
    full = {each[:n].lower(): each for each in names for n in (*range(least, len(each)), len(each))}
    one = any_of(full)

    def span(match: re.Match[str]) -> str:
        first, last = (full[each.lower()] for each in match.group(1, 2))
        return f"{first} {to} {last}{full_stop(match)}"

    return rule(rf"\b({one})\.?\s?[-–—]\s?({one})\b(?![’'-])\.?", span, any_case=True)


def weekdays(language: str) -> Sequence[Rule]:
    """A dash between two days or months is said as "to", "+" as "and"."""
    to, both = MATHS_WORDS[language]["to"], MATHS_WORDS[language]["∧"]
    days = short_days(language)
    day = any_of(days)

    def several(match: re.Match[str]) -> str:
        parts = re.split(rf"({between})", match[0])
        names = [days[each.strip(". ")] for each in parts[::2]]
        if len(set(names)) < len(names):
            return match[0]
        for at, mark in enumerate(parts[1::2]):
            link = words.get(mark.strip(" ."), mark.lstrip("."))
            names[at] += f" {to} " if mark.strip(" .") in "-–—" else link
        return "".join(names) + full_stop(match)

    words = {"+": f" {both} ", "&": f" {both} ", "/": ", "}
    between = rf"\.?(?:\s?[-–—/+&]\s?|,\s(?=[A-Z])|\s(?:{both}|{_LINKS})\s)"
    return (
        rule(rf"(?<![\w.-])(?:{day})(?:{between}(?:{day}))+\b(?!['’-])\.?", several),
        rule(
            rf"(?<![\w.])({_BEFORE}\s)?({day})\.(?=,?\s+[\da-zà-ÿ(]|,\s(?:{day})\b)",
            lambda m: (f"{m[1]}" if m[1] else "") + days[m[2]],
        ),
        _spans([*days.values(), *(f"{day}s" for day in days.values())], to, 99),
        rule(rf"(?<![\w.])({_BEFORE}\s)({day})\.", lambda m: m[1] + days[m[2]] + full_stop(m)),
        rule(rf"(?<![\w.])({day})(?=:?,?\s(?:{_CLOCK}|{_DATE}))", lambda m: days[m[1]]),
        _spans(words_of(language)["months"].split(), to),
    )
