"""Dates and times of day, in the words of one language of ``pipeline.spoken.wording``. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.spoken import german
from pipeline.spoken.numerals import Numerals
from pipeline.spoken.rules import Rule, any_of, full_stop, rule
from pipeline.spoken.wording import GERMAN, Wording

_NO_WORDS = re.compile("(?:jan|f[eé][bv]|apr|a[bv]r|ju[nl]|aug|o[ck]t|nov|dec)", re.IGNORECASE)
"""How shortened months begin that are no words, and need no full stop."""


class WordedCalendar:
    def __init__(self, wording: Wording, numerals: Numerals) -> None:
        self._w = wording
        self._numerals = numerals

    def dates(self) -> Sequence[Rule]:
        before, day = r"(?P<before>\b[^\W\d_]+\s)?", r"(?P<day>[12]\d|3[01]|0?[1-9])"
        year = r"(?P<year>1\d{3}|20\d\d)"
        shorter = {m[:n] for m in self._w.months for n in range(3, len(m))}
        short = any_of(shorter | {*self._w.short_months})
        months = rf"{any_of(self._w.months)}|(?:{short})\."
        months += rf"|(?:{any_of(m for m in shorter if _NO_WORDS.match(m))})"
        at = rf"\b({self._w.at})\s"
        return (
            rule(
                rf"{at}(\d\d?)\.([0-5]\d)(?!\d|\.\d)(?:(\s?[–-]\s?\d\d?)\.([0-5]\d))?",
                lambda m: f"{m[1]} {m[2]}:{m[3]}" + (f"{m[4]}:{m[5]}" if m[4] else ""),
            ),
            rule(r"\b(\d\d?\.)\s(\d\d?\.)\s(?=(?:1\d{3}|20\d\d)\b)", r"\1\2"),
            rule(rf"\b((?:{self._w.on})\s\d\d?\.)\s(\d\d?\.)(?=[,;:)]|\s(?![A-Z])|$)", r"\1\2"),
            rule(
                rf"(?P<before>\b(?:{self._w.on})\s){day}/(?P<month>1[0-2]|0?[1-9])(?![\d/])",
                self._numeric_date,
            ),
            rule(
                rf"{before}\b{year}-(?P<month>[01]\d)-(?P<day>[0-3]\d)\b",
                self._numeric_date,
            ),
            rule(
                rf"{before}(?<![\d.,/])\b{day}(?P<sep>[./-])(?P<month>1[0-2]|0?[1-9])"
                r"(?:(?P=sep)(?P<year>1\d{3}|20\d\d|\d\d)\b|\.(?=[\s,;:)]|$))(?![\d/]|[.-]\d)",
                self._numeric_date,
            ),
            rule(
                rf"(\d\.?\s(?:de\s)?(?:{months}))\s?[-–—]\s?(?=\d\d?\.?\s(?:de\s)?(?:{months}))",
                rf"\1 {self._w.to} ",
            ),
            rule(
                rf"{before}\b(?:(?P<first>\d\d?)(?:\.|er|º)?\s?(?P<link>[-–—/]|und|bis|oder)\s?)?"
                rf"{day}(?:\.|er|º|°)?\s(?:de\s)?(?P<month>{months})(?!\w)"
                rf"(?:\s(?:del?\s)?{year}\b)?",
                self._named_date,
                any_case=True,
            ),
            rule(
                rf"\b(?P<month>(?:{short})\.)(?=\s(?:de\s)?(?:1\d{{3}}|20\d\d)\b)",
                lambda m: self._month(m["month"]),
                any_case=True,
            ),
        )

    def times(self) -> Sequence[Rule]:
        hour, minute = r"(?<![\d.,:])(?P<hour>\d\d?)", r"(?P<minute>[0-5]\d)"
        word = self._w.hour_word
        before = rf"\d\d?(?:[:.h]\s?[0-5]\d)?(?:{word})?"
        after = rf"\d\d?(?::[0-5]\d|h\s?[0-5]\d|\.\s?[0-5]\d(?={word})|{word})"
        link = rf"(?:\s?[–—-]\s?|\s{self._w.to}\s)"
        span = rule(
            rf"(?<![\d.,:-])({before}){link}(?={after}(?![:\d-]))",
            lambda m: f"{m[1].replace('.', ':')} {self._w.to} ",
        )
        spans = rule(
            rf"(?<![\d.,:-])(\d\d?)\.(00|15|30|45){link}(\d\d?)\.(00|15|30|45)(?!\d|[.,]\d|\s?[^\W_]|\s?[€$%])",
            rf"\1:\2 {self._w.to} \3:\4",
        )
        clock = rule(
            rf"{hour}:{minute}(?:{word}|\s?h\b)?(?![:\d]|[.,\u202f]\d{{3}}| 000)", self._time
        )
        if self._w.hour == "{hour}":  # "15 h" is how long something takes
            return (span, spans, rule(rf"{hour}\.{minute}{word}", self._time), clock)
        return (
            *((german.OPENING_HOURS,) if self._w is GERMAN else ()),
            span,
            spans,
            clock,
            rule(rf"{hour}\.{minute}{word}", self._time),
            rule(rf"{hour}{word}(?:\s?{minute}(?!\w|\smin))?(?!\w)", self._time),
        )

    def _date(self, day: int, month: str, year: str, before: str = "") -> str:
        date = self._w.date.format(day=self._day(day, before), month=month)
        if not year:
            return date
        full = int(year) + (2000 if len(year) == 2 else 0)
        return date + self._w.year.format(year=self._numerals.year(full))

    def _day(self, day: int, before: str) -> str:
        if self._w is GERMAN:
            return german.ordinal(day, before)
        return self._w.first if day == 1 else self._numerals.cardinal(day)

    def _numeric_date(self, match: re.Match[str]) -> str:
        day, month = int(match["day"]), int(match["month"])
        if not (1 <= day <= 31 and 1 <= month <= 12):
            return match[0]
        year = match.groupdict().get("year") or ""
        date = self._date(day, self._w.months[month - 1], year, match["before"] or "")
        return f"{match['before'] or ''}{date}"

    def _month(self, written: str) -> str:
        name = written.rstrip(".").lower()
        name = self._w.short_months.get(name.title(), name).lower()
        return next(m for m in self._w.months if m.lower().startswith(name))

    def _named_date(self, match: re.Match[str]) -> str:
        year, before = match["year"] or "", match["before"] or ""
        date = self._date(int(match["day"]), self._month(match["month"]), year, before)
        first = match["first"] and self._day(int(match["first"]), before)
        return f"{before}{self._w.linked(first, match['link'], date)}{full_stop(match)}"

    def _time(self, match: re.Match[str]) -> str:
        hour, minute = int(match["hour"]), int(match["minute"] or 0)
        if hour > 24 or minute > 59:
            return match[0]
        template = self._w.time if minute else self._w.hour
        words = self._numerals.cardinal(hour, self._w.one_hour)
        time = template.format(hour=words, minute=self._numerals.cardinal(minute))
        return re.sub(r"\b(heure|hora)s\b", r"\1", time) if hour <= 1 else time
