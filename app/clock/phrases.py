"""The plain forms in which people ask for timers, as the calls that a model would make. Pure. Words
and notation: ``config/languages``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from app.clock.timers import LONGEST_S
from pipeline.spoken.numbers import cardinal
from pipeline.spoken.numerals import Numerals
from pipeline.spoken.wording import WORDINGS

Call = tuple[str, str]
"""The tool and its arguments, as JSON."""
MOST_CHARS = 300

_ELISIONS = re.compile(r"\b([dl]|all|qu|un|mezz)'\s?(?=\w)")
_SIGNS = re.compile(r"[^\w' .]|(?<!\d)\.|\.(?!\d)|_")


def plain(text: str) -> str:
    """Words in lower case with one space between them: "7:30" is "7 30", "1.5" stays."""
    text = text.lower().replace("’", "'")
    text = re.sub(r"\b([ap])\.\s?m\b\.?", r"\1m", text)
    text = re.sub(r"(?<=\d)\s?(?:[.:]|h(?=\d))(?=\d\d(?!\d))", " ", text)
    text = re.sub(r"(?<=\d)(?=h\b|[ap]m\b|min\b)", " ", text)
    text = _ELISIONS.sub(r"\1' ", re.sub(r"(?<=\d),(?=\d)", ".", text))
    return " ".join(_SIGNS.sub(" ", text).split())


class Phrases:
    """Those of one language."""

    def __init__(self, language: str, tables: Mapping[str, str]) -> None:
        """``tables``: those of ``config/languages`` whose names begin with ``clock_``."""
        values = _table(tables["clock_numbers"])
        numerals = Numerals(WORDINGS[language]).cardinal if language in WORDINGS else cardinal
        self._numbers = {plain(numerals(n)): float(n) for n in range(100)}
        self._numbers |= {word: float(n) for word, n in values.items() if not n.startswith("+")}
        joints = [word for word, value in values.items() if value == "+"]
        halves = [word for word, value in values.items() if value == "+0.5"] or [r"(?!)"]
        lengths = _table(tables["clock_lengths"])
        self._units = {word.lstrip("*"): float(s) for word, s in lengths.items()}
        wholes = [word.lstrip("*") for word in lengths if word.startswith("*")]
        units = [word for word in lengths if not word.startswith("*")]
        number = rf"\d+(?:\.\d)?|{_any(self._numbers)}"
        half = rf"(?: (?:{_any(halves)}))?"
        whole = _any(wholes or ["(?!)"])
        amount = rf"(?<!\w)(?:(?:{whole})|(?:{number}){half} (?:{_any(units)}){half})(?!\w)"
        self._amount = re.compile(amount)
        parts = rf"(?P<number>{number})(?P<a>{half}) (?P<unit>{_any(units)})(?P<b>{half})"
        self._parts = re.compile(parts)
        self._days = _table(tables["clock_days"])
        self._last_day = re.compile(rf" ({_any(self._days)})$")
        names = {
            "<length>": rf"(?P<length>{amount}(?: (?:(?:{_any(joints)}) )?{amount})*)",
            "<time>": r"(?P<time>.+?)",
            "<text>": r"(?P<text>.+)",
            "<day>": rf"(?P<day>{_any(self._days)})",
            "<h>": rf"(?P<h>{number})",
            "<m>": rf"(?P<m>{number})",
        }
        lines = [line.partition(" = ") for line in tables["clock_phrases"].strip().splitlines()]
        polite = next(_alternatives(words, names) for name, _, words in lines if name == "polite")
        self._rules = [
            (tool, re.compile(rf"(?:{polite} )*{_pattern(words, names)}(?:{polite} )*"))
            for tool, _, words in lines
            if tool != "polite"
        ]
        self._times = [
            (re.compile(_pattern(words, names)), value)
            for words, value in _entries(tables["clock_times"])
        ]

    def call(self, text: str, now: datetime) -> Call | None:
        """``now``: local time."""
        words = f"{plain(text)} " if len(text) <= MOST_CHARS else ""
        for tool, rule in self._rules:
            if match := rule.fullmatch(words):
                arguments = self._arguments(tool, match.groupdict(), now)
                if arguments is not None:
                    return tool.partition(":")[0], json.dumps(arguments, ensure_ascii=False)
        return None

    def _arguments(
        self, tool: str, groups: Mapping[str, str | None], now: datetime
    ) -> dict[str, object] | None:
        """``None``: the time cannot be understood, or is years away."""
        name, _, kind = tool.partition(":")
        arguments: dict[str, object] = {"kind": kind} if name == "cancel_timer" else {}
        day, text = groups.get("day") or "", groups.get("text") or ""
        if groups.get("time") and (later := self._last_day.search(text)):
            day, text = later[1], text[: later.start()]
        if text:
            arguments["text"] = text
        if length := groups.get("length"):
            seconds = round(sum(map(self._seconds, self._amount.findall(length))))
            arguments["seconds"] = seconds
            if seconds > LONGEST_S:
                return None
        if time := groups.get("time"):
            at = self._at(f"{day} {time}".strip(), now, as_said=kind == "wake")
            if at is None:
                return None
            arguments |= {"time": f"{at:%H:%M}", "date": f"{at:%Y-%m-%d}"}
        return arguments

    def _seconds(self, amount: str) -> float:
        if not (match := self._parts.fullmatch(amount)):
            return self._units[amount]
        halves = 0.5 if match["a"] or match["b"] else 0.0
        return (self._number(match["number"]) + halves) * self._units[match["unit"]]

    def _number(self, text: str) -> float:
        return self._numbers[text] if text in self._numbers else float(text)

    def _at(self, text: str, now: datetime, *, as_said: bool) -> datetime | None:
        """The next such time. ``as_said``: "seven" is in the morning; else it is either."""
        shift, days = None, 0
        for words in sorted(self._days, key=len, reverse=True):
            if text.startswith(f"{words} ") or text.endswith(f" {words}"):
                text = text.removeprefix(words).removesuffix(words).strip()
                for value in self._days[words].split():
                    if value == "day":
                        days = 1
                    else:
                        shift = int(value)
        time = self._minutes(text)
        if time is None:
            return None
        minutes, has_hour = time
        if shift is not None and minutes <= 720:
            minutes = minutes % 720 + 60 * shift
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        at = midnight + timedelta(days=days, minutes=minutes)
        halves = has_hour and shift is None and not as_said and minutes <= 720 and not days
        while at <= now:
            at += timedelta(hours=12 if halves else 24)
        return at

    def _minutes(self, text: str) -> tuple[int, bool] | None:
        """After midnight, and whether an hour was said, not noon."""
        for pattern, value in self._times:
            if not (match := pattern.fullmatch(f"{text} ")):
                continue
            groups = match.groupdict()
            extra = self._number(groups["m"]) if groups.get("m") else 0
            hour = self._number(groups["h"]) if groups.get("h") else 0
            late = extra if value == "m" else -extra if value == "-m" else int(value)
            if hour <= 24 and extra < 60 and hour % 1 == 0 == extra % 1:
                return int(hour * 60 + late) % 1440, "h" in groups
        return None


def _entries(text: str) -> Iterable[tuple[str, str]]:
    for entry in text.strip().split(";"):
        words, _, value = entry.strip().partition(" = ")
        yield words, value.strip()


def _table(text: str) -> dict[str, str]:
    """Each of the alternatives, and its value."""
    return {
        f"{'*' * words.startswith('*')}{_words(word)}": value
        for words, value in _entries(text)
        for word in words.split("|")
    }


def _words(text: str) -> str:
    return plain(re.sub("[_*]", " ", text))


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


def _alternatives(token: str, names: Mapping[str, str]) -> str:
    words = (names.get(word) or _words(word) for word in token.split("|"))
    return f"(?:{_any(words)})"


def _pattern(words: str, names: Mapping[str, str]) -> str:
    """For a text with a space behind each word."""
    tokens = words.replace("<day>", "(<day>)").split()
    return "".join(
        f"(?:{_alternatives(token.strip('()'), names)} ){'?' if token.startswith('(') else ''}"
        for token in tokens
    )
