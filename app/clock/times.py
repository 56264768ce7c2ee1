"""Recognises times in one language, such as "tomorrow at half past six". Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from app.clock.notation import Notation
from pipeline.spoken.words import pairs

HALF_DAY, DAY = 720, 1440
"""Minutes."""
MOST_PARTS = 4
"""Of a time: "on Friday", "morning", "at seven", "am". More would take long to read."""


class Usual(NamedTuple):
    """The hour from which "at seven", which may be in either half of the day, is looked for:
    ``start_h`` if the user names no day (``None``: now), ``other_day_h`` on a later day."""

    start_h: int | None
    other_day_h: int


class _Day(NamedTuple):
    ahead: int | None
    """Days from now; ``None``: no day is named."""
    weekday: bool
    starts_h: frozenset[int]
    """The hours at which the half days that "tonight" and "pm" name begin."""


class _Time(NamedTuple):
    """``minutes`` after midnight; the time recurs every ``period`` minutes."""

    minutes: int
    period: int


class TimePatterns:
    def __init__(self, words: Notation, tables: Mapping[str, str], at: str, to: str) -> None:
        """``tables``: those of ``config/languages``. ``at`` and ``to``: patterns of words before a
        time; those of ``to`` also stand before the day of an alarm."""
        self._words = words
        names = {
            "<weekday>": r"w\d",
            "<month>": r"m\d+",
            "<word>": r"\S+",
            "<nth>": r"\d+\S*",
            "<h>": words.number,
            "<m>": r"\d+",
            "<mm>": r"[0-5]\d",
        }
        marked = names | {
            "<weekday>": r"w(?P<weekday>\d)",
            "<h>": f"(?P<h>{words.number})",
            "<m>": r"(?P<m>\d+)",
            "<mm>": r"(?P<m>[0-5]\d)",
        }
        days = [
            (each, value)
            for line, value in pairs(tables["clock_days"]).items()
            for each in line.split("|")
        ]
        times = sorted(pairs(tables["clock_times"]).items(), key=_least_words, reverse=True)
        self._days = [(re.compile(words.pattern(each, marked)), value) for each, value in days]
        self._times = [(re.compile(words.pattern(each, marked)), value) for each, value in times]
        day = words.pattern("|".join(each for each, _ in days), names)
        time = "|".join(words.pattern(each, names) for each, _ in times)
        to, most = f"(?:{at}|{to})?", f"{{1,{MOST_PARTS}}}"
        around = f"(?:{to}{day})*"
        self._when = re.compile(f"(?P<before>{around}){to}(?P<time>{time})(?P<after>{around})")
        self._day_at = re.compile(rf"\b{day}")
        self._last_day = re.compile(f"(?:.* )?{day}")
        self.with_at = f"(?:{day}|{at}(?:{time})){most}"
        """A pattern of days, and of times behind ``at``; behind each word is a space."""
        self.days = f"{day}{most}"
        self.alone = f"(?:{to}(?:{day}|{time})){most}"

    def without_day(self, text: str) -> bool:
        """Whether a match names no day."""
        return not self._day_at.search(text)

    def ends(self, text: str) -> bool:
        """Whether ``text`` ends with a day."""
        return bool(self._last_day.fullmatch(f"{text} "))

    def moment(self, text: str, now: datetime, usual: Usual) -> datetime | None:
        """The time that ``text``, a match, names: local, perhaps in the past; ``None``: there is no
        such time."""
        if not (when := self._when.fullmatch(text)):
            return None
        day = self._day(when["before"] + when["after"], now)
        for pattern, value in self._times if day else ():
            match = pattern.fullmatch(when["time"])
            if match and day and (time := self._time(match.groupdict(), value)):
                return _moment(time, day, now, usual)
        return None

    def _time(self, groups: Mapping[str, str | None], value: str) -> _Time | None:
        h, m = groups.get("h"), groups.get("m")
        hour, minute = (self._words.value(each) if each else 0.0 for each in (h, m))
        if hour > 24 or minute >= 60 or hour % 1 or minute % 1:
            return None
        shifts = {"m": minute, "-m": -minute}
        late = sum(shifts[part] if part in shifts else int(part) for part in value.split())
        either = h is not None and 1 <= hour <= 12 and not h.startswith("0")
        return _Time(int(hour * 60 + late), HALF_DAY if either else DAY)

    def _day(self, text: str, now: datetime) -> _Day | None:
        """The day that ``text`` names; ``None``: it is not understood ("every day"), or two."""
        ahead, weekday, starts_h = set[int](), False, set[int]()
        for part, match in self._day_values(text):
            if part == "no":
                return None
            if part == "week":
                weekday = True
                ahead.add((int(match["weekday"]) - now.weekday()) % 7)
            else:
                (ahead if part.startswith("+") else starts_h).add(int(part))
        if len(ahead) > 1:
            return None
        return _Day(min(ahead, default=None), weekday, frozenset(starts_h))

    def _day_values(self, text: str) -> Iterator[tuple[str, re.Match[str]]]:
        at = 0
        while at < len(text):
            found = [(m, value) for each, value in self._days if (m := each.match(text, at))]
            if not found:  # "for", "auf"
                at = text.index(" ", at) + 1
                continue
            match, value = max(found, key=lambda each: each[0].end())
            yield from ((part, match) for part in value.split())
            at = match.end()


def _least_words(entry: tuple[str, str]) -> int:
    """How many words a time has at least: "seven thirty" is tried before "seven (o'clock)"."""
    return sum(not each.startswith("(") for each in entry[0].split())


def _moment(time: _Time, day: _Day, now: datetime, usual: Usual) -> datetime | None:
    """``time`` on ``day``; ``None``: it is not in that half of the day."""
    minutes = _minutes(time, day, now, usual)
    if minutes is None:
        return None
    midnight, one_day = datetime.combine(now, datetime.min.time()), timedelta(days=1)
    at = midnight + timedelta(days=day.ahead or 0, minutes=minutes)
    if day.ahead == 0 and not day.starts_h and at - midnight > one_day:
        return at - one_day
    if not day.ahead and at - one_day > now:
        at -= one_day
    if day.weekday and at <= now:
        at += 7 * one_day
    while day.ahead is None and at <= now:
        at += one_day
    return at


def _minutes(time: _Time, day: _Day, now: datetime, usual: Usual) -> int | None:
    """Minutes after midnight of ``day``, perhaps more than a day; ``None``: as for ``_moment``."""
    starts = {60 * each for each in day.starts_h}
    if not starts and time.period == HALF_DAY:
        today = day.ahead == 0 and not day.weekday
        hour = usual.other_day_h if day.ahead is not None else usual.start_h
        starts = {now.hour * 60 + now.minute + 1 if hour is None or today else 60 * hour}
    after = {start: (time.minutes - start) % time.period for start in starts}
    found = {start + minutes for start, minutes in after.items()} or {time.minutes}
    if max(after.values(), default=0) >= HALF_DAY or len({each % DAY for each in found}) > 1:
        return None
    return max(found)
