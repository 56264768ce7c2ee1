"""Dates, years and times of day, as American English says them."""

from __future__ import annotations

import re

from pipeline.spoken.numerals import ENGLISH, ENGLISH_NUMERAL
from pipeline.spoken.rules import any_of, full_stop, rule
from pipeline.spoken.weekdays import short_days
from pipeline.spoken.words import words_of

_MONTHS = words_of("en")["months"].split()
_MONTH_OF = {short: name for name in _MONTHS for short in (name, name[:3])} | {"Sept": "September"}
MONTH_NAMES = any_of(_MONTH_OF)
_MONTH = rf"(?P<month>{MONTH_NAMES})\b\.?"
DAYS = short_days("en")
_DAY = r"(?P<day>[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_TO_DAY = r"(?:\s?[-–—]\s?(?P<last>[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?)?"
_YEAR = r"(?:,?\s(?P<year>1\d{3}|20\d\d))?(?![\w:/-])(?!\.\d)"


def _named_date(match: re.Match[str]) -> str:
    """ "November twenty-first, twenty twenty-six" or "the twenty-first of November", as written."""
    month, day = _MONTH_OF[match["month"]], ENGLISH.ordinal(int(match["day"]))
    days = f"{day} to {ENGLISH.ordinal(int(match['last']))}" if match["last"] else day
    day_first = match.start("day") < match.start("month")
    date = f"{match['the'] or 'the '}{days} of {month}" if day_first else f"{month} {days}"
    return date + _with_year(match)


def _month_year(match: re.Match[str]) -> str:
    return f"{_MONTH_OF[match['month']]} {ENGLISH.year(int(match['year']))}"


def _with_year(match: re.Match[str]) -> str:
    return f", {ENGLISH.year(int(match['year']))}" if match["year"] else ""


def _dated(day: str, month: str, years: str) -> str | None:
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return None
    full = int(years or 0) + (2000 if len(years) == 2 else 0)
    date = f"{_MONTHS[int(month) - 1]} {ENGLISH.ordinal(int(day))}"
    return f"{date}, {ENGLISH.year(full)}" if full else date


def _iso(match: re.Match[str]) -> str:
    date = _dated(match[3], match[2], match[1]) or match[0]
    return f"{date}, at {match[4]}" if match[4] else date


def _month_first(first: str, second: str, years: str = "") -> str | None:
    """As in America, unless ``first`` can only be the day."""
    return _dated(second, first, years) or _dated(first, second, years)


def _slashed_day(match: re.Match[str]) -> str:
    """ "11/21" and "21/11"; "3/4" is a fraction, but not behind "on"."""
    on, first, second = match.groups()
    if on or int(first) > 12 or int(second) > 16:
        date = _month_first(first, second)
        if date and f"{first}/{second}" not in ("9/11", "24/7"):
            return (on or "") + date
    return match[0]


DATES = (
    rule(
        r"(?<![\w/-])(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d:\d\d)(?::\d\d(?:\.\d+)?)?Z?)?(?![\w/-])",
        _iso,
    ),
    rule(
        r"(?<![\w/.-])(\d\d?)([/-])(\d\d?)\2((?:1\d|20)\d\d|\d\d)(?![\w/-])",
        lambda m: _month_first(m[1], m[3], m[4]) or m[0],
    ),
    rule(
        r"(?<![\w/.-])(\d\d?)\.(\d\d?)\.((?:1\d|20)\d\d)(?![\w/-])",
        lambda m: _dated(m[1], m[2], m[3]) or m[0],
    ),
    rule(
        rf"\b({any_of(DAYS)})\b\.?"
        rf"(?=,?\s(?:{MONTH_NAMES})\b|,?\s\d|(?<=\.),)",
        lambda m: DAYS[m[1]],
    ),
    rule(
        rf"\b((?:{MONTH_NAMES})\.?\s\d\d?|\d\d?\s(?:{MONTH_NAMES})\.?)\s?[-–—]\s?"
        rf"(?=(?:{MONTH_NAMES})\.?\s\d|\d\d?\s(?:{MONTH_NAMES})\b)",
        r"\1 to ",
    ),
    rule(rf"\b{_MONTH}\s(?:the\s)?{_DAY}{_TO_DAY}(?:(?=\sto\s)|{_YEAR})", _named_date),
    rule(
        rf"(?<![\w.,:$/])(?P<the>[Tt]he\s)?{_DAY}{_TO_DAY}\s(?:of\s)?{_MONTH}{_YEAR}(?!\s\d)",
        _named_date,
    ),
    rule(rf"\b{_MONTH},?\s(?P<year>1\d{{3}}|20\d\d)(?![\w:/-])", _month_year),
    rule(
        rf"(\b(?:on|by|until|since|before|after|from|(?:{'|'.join(DAYS.values())}),?)\s)?"
        r"(?<![\w/.])(\d\d?)/(\d\d?)(?![\w/])",
        _slashed_day,
    ),
)


# --- times of day ---------------------------------------------------------------------------------

_HALF = r"(?:\s?(?P<half>[ap])\.?m\b\.?)"


def _minutes(text: str) -> str:
    minutes = int(text)
    return f"oh {ENGLISH.cardinal(minutes)}" if minutes < 10 else ENGLISH.cardinal(minutes)


def _clock(match: re.Match[str]) -> str:
    hour, half = int(match["hour"]), (match["half"] or "").upper()
    minute = match.groupdict().get("minute", "00")
    if hour > 24 or int(minute) > 59:
        return match[0]
    full = int(minute) == 0
    if not half and hour in (0, 24):
        if full:
            return "midnight"
        hour, half = 12, "A"
    if not half and full:
        if hour <= 12:
            return f"{ENGLISH.cardinal(hour)} o'clock"
        hour, half = hour - 12, "P"
    time = ENGLISH.cardinal(hour) if full else f"{ENGLISH.cardinal(hour)} {_minutes(minute)}"
    return time + (f" {half} M" if half else "") + full_stop(match)


def _with_seconds(match: re.Match[str]) -> str:
    parts = [ENGLISH.cardinal(int(match[1])), _minutes(match[2]), _minutes(match[3])]
    return " ".join(parts) if int(match[2]) < 60 and int(match[3]) < 60 else match[0]


TIMES = (
    rule(r"(?<![\w:.,$])(\d\d?)\.([0-5]\d)(?=\s?[ap]\.?m\b)", r"\1:\2", any_case=True),
    rule(r"(?<![\w:.,])(\d\d?):(\d\d):(\d\d)(?:\.\d+)?(?![\w:])", _with_seconds),
    rule(
        rf"(?<![\w:.,])(?P<hour>\d\d?):(?P<minute>\d\d){_HALF}?(?:\s?h(?:rs)?\b|\so['’]clock)?"
        r"(?![\w:]|,\d{3})",
        _clock,
        any_case=True,
    ),
    rule(rf"(?<![\w:.,$])(?P<hour>\d\d?){_HALF}(?!\w)", _clock, any_case=True),
    rule(
        rf"(?<![\w:.,])({ENGLISH_NUMERAL}):({ENGLISH_NUMERAL})(?![\w:])",
        lambda m: f"{ENGLISH.number(m[1])} to {ENGLISH.number(m[2])}",
    ),
)
"""Also ratios, such as 16:9 and 3:1."""

# --- years ----------------------------------------------------------------------------------------


def _plural(words: str) -> str:
    """ "nineteen ninety" -> "nineteen nineties", "two thousand" -> "two thousands"."""
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"


_COUNTED = re.compile(
    r"\s(?:[a-z]+[^s\W]s|people|men|women|children|percent|more|times|of\s(?:them|the|these))\b"
    r"|\s?[%°]|\s(?:km|m|cm|mm|kg|g|mg|l|ml|ft|mi|lb|lbs|oz|h|s|ms|min|kWh|W|kW|V|Hz|MHz|GHz|MB|GB)\b"
)
_NO_PLURALS = re.compile(r"\s(?:was|is|has|as|its|this|his|always|perhaps|does|us|yes)\b")


def _year(match: re.Match[str]) -> str:
    after = match.string[match.end() :]
    if _COUNTED.match(after) and not _NO_PLURALS.match(after):
        return match[0]
    return ENGLISH.year(int(match[0]))


def _span(match: re.Match[str]) -> str:
    """ "1939–45"."""
    first, second = match.groups()
    return f"{ENGLISH.year(int(first))} to {ENGLISH.year(int(first[: 4 - len(second)] + second))}"


YEARS = (
    rule(r"(?<=\d0s)\s?[-–—]\s?(?=[12]\d{2}0['’]?s\b)", " to "),
    rule(
        r"(?<=\d0s)\s?[-–—]\s?['’]?([2-9]0)s\b",
        lambda m: f" to {_plural(ENGLISH.cardinal(int(m[1])))}",
    ),
    rule(r"(?<![\w.,$€£])([12]\d{2}0)['’]?s\b", lambda m: _plural(ENGLISH.year(int(m[1])))),
    rule(r"(?<!\w)['’]([2-9]0)s\b", lambda m: _plural(ENGLISH.cardinal(int(m[1])))),
    rule(
        r"(?i:\b((?:the|his|her|their|my|your|early|mid|late)[ -]))([2-9]0)['’]?s\b"
        r"(?!\s?(?:timer|delay))",
        lambda m: m[1] + _plural(ENGLISH.cardinal(int(m[2]))),
    ),
    rule(
        r"(?<![\w.,$€£:/-])(1[1-9]\d\d|20\d\d)\s?[-–—]\s?((?:1[1-9]|20)\d\d|\d\d)"
        r"(?![\w-]|[.,:/]\d)",
        _span,
    ),
    rule(
        r"(?<![\w.,$€£:/+×÷=√^-])(?<![=+×÷<>]\s)(?:1[1-9]\d\d|20\d\d)"
        r"(?![\w/]|[.,:-]\d|\s?[=+×÷<>^])",
        _year,
    ),
    rule(r"(?<=\s)(BC|BCE|AD|CE)\b(?!\w)", lambda m: " ".join(m[1])),
)
