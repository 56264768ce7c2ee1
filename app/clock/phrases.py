"""Recognises plain requests for timers, as the tool calls that a model would make. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from math import inf

from app.clock.notation import Notation, any_of, plain
from app.clock.times import TimePatterns, Usual
from pipeline.spoken.words import pairs
from pipeline.waking.calls import Calls

Call = tuple[str, str]
"""The tool and its arguments, as JSON."""
Tokens = list[tuple[str, str]]
"""Each word, as the user said it and with digits."""
LONGEST_LENGTH_S = 7 * 86_400.0
"""Of a timer or reminder; "an alarm for 1900 hours" is a time of day."""
MOST_CHARS = 300
MOST_TOGETHER = 8
"""Most messages in a row that may be one request."""
UNCLEAR = "unclear"
"""The tool for requests about timers that are not understood."""

_USUAL = {
    "set_alarm:wake": Usual(1, 1),
    "set_alarm": Usual(None, 1),
    "set_reminder": Usual(None, 7),
}
"""People wake up in the morning, and are reminded of something on a later day by daylight."""
_TEXT = ("text", "rest")
_PART = re.compile(r"\W*([^,.!?]+)[,.!?]+(.+)", re.DOTALL)
"""What stands before the first comma or dot, and what follows."""


class Phrases:
    """The phrases of one language."""

    def __init__(self, language: str, tables: Mapping[str, str]) -> None:
        """``tables``: those of ``config/languages`` that begin with ``clock_``."""
        words = self._words = Notation(language, tables["clock_numbers"])
        names = {
            "<length>": self._length(tables["clock_lengths"]),
            "<text>": r"(?P<text>\S.*?)",
            "<rest>": r"(?P<rest>\S.*?)",
            "<name>": r"(?P<text>\S+(?: \S+)??)",
            "<stem>": r"(?P<text>\w+?)",
            "<word>": r"\w+",
            "<digit>": r"\d",
            "<some>": r"\S+(?: \S+){0,2}",
            "<any>": r"\S.*",
        }
        lines = [line.split(" = ", 1) for line in tables["clock_phrases"].strip().splitlines()]
        macros = {name: line for name, line in lines if name.startswith("<")}
        at, to = (words.pattern(macros[name], {}) for name in ("<at>", "<to>"))
        self._times = TimePatterns(words, tables, at, to)
        names["<when>"] = f"(?P<when>{self._times.with_at})"
        names["<time>"] = f"(?P<when>{self._times.alone})"
        names["<days>"] = f"(?P<days>{self._times.days})"
        for name, line in macros.items():
            names[name] = words.pattern(line, names)
        self._uh = re.compile(rf"(?<!\S){names['<uh>']}")
        self._first = re.compile(rf"(?<!\S){names['<due>']}")
        before = f"{names['<before>']}|{names['<polite>']}"
        self._before = re.compile(f"(?:{before})*")
        self._no = re.compile(f"(?:{names['<no>']}|{names['<uh>']}|{before})*")
        self._behind = re.compile(rf"(?<!\S){names['<polite>']}*$")
        self._rules = [
            (tool, re.compile(words.pattern(line, names)))
            for tool, line in lines
            if tool not in macros
        ]

    def _length(self, table: str) -> str:
        """A pattern that matches lengths of time."""
        words, units, wholes = self._words, dict[str, float](), dict[str, float]()
        for line, value in pairs(table).items():
            each = wholes if line.startswith("*") else units
            each.update({words.words(w): float(value) for w in line.lstrip("*").split("|")})
        self._units = units | wholes
        number, unit, half = words.number, any_of(units), f"(?: {words.halves})?"
        self._parts = re.compile(f"({number})({half}) ({unit})({half})")
        amount = rf"(?<!\w)(?:{any_of(wholes)}|{number}{half} {unit}{half})(?!\w)"
        self._amount = re.compile(amount)
        return rf"(?P<length>{amount}(?: (?:{words.joints} )?{amount})*(?: [1-5]\d(?!\S))?)"

    def call(self, text: str, now: datetime) -> Call | None:
        """The call that ``text`` asks for, if it is a plain request. ``now``: local time."""
        text = text if len(text) <= MOST_CHARS else ""
        while (part := _PART.match(text)) and self._no.fullmatch(f"{plain(part[1])} "):
            text = part[2]  # "No, stop the timer", unlike "no timer"
        said = self._uh.sub("", f"{plain(text)} ")
        tokens = self._without_polite(self._words.tokens(said))
        if when := self._first.match(_joined(tokens)):  # "at five remind me to call": time last
            n = when[0].count(" ")
            tokens = self._without_polite(tokens[n:]) + tokens[:n]
        words = _joined(tokens)
        for tool, rule in self._rules:
            if not (match := rule.fullmatch(words)):
                continue
            arguments = self._arguments(tool, match, now)
            if arguments is not None:
                return tool.partition(":")[0], json.dumps(
                    _text(tokens, match) | arguments, ensure_ascii=False
                )
        return None

    def _without_polite(self, tokens: Tokens) -> Tokens:
        words = _joined(tokens)
        before, behind = self._before.match(words), self._behind.search(words)
        first, last = before.end() if before else 0, behind.start() if behind else len(words)
        return tokens[words.count(" ", 0, first) : words.count(" ", 0, last)]

    def _arguments(
        self, tool: str, match: re.Match[str], now: datetime
    ) -> dict[str, object] | None:
        """The arguments except ``text``; ``None``: the time is not understood, or years away."""
        name, _, kind = tool.partition(":")
        groups = match.groupdict()
        arguments: dict[str, object] = {"kind": kind} if name == "cancel_timer" else {}
        if length := groups.get("length"):
            seconds = self._seconds(length)
            if seconds is None or seconds > LONGEST_LENGTH_S:
                return None
            arguments["seconds"] = seconds
        text = groups.get("text") or ""
        times = self._times_in(match.string[match.start("text") :], length) if text else 0
        if text.isdigit() or times > 1:
            return None  # in German, "two timers"; or "to call Anna at five and Tom at six"
        if when := groups.get("when"):
            when = (groups.get("days") or "") + when
            at = self._times.moment(when, now, _USUAL[tool])
            # "Remind me at five to buy tickets for Friday": which day is meant?
            texts = (groups.get(each) or "" for each in _TEXT)
            if at is None or (self._times.without_day(when) and any(map(self._times.ends, texts))):
                return None
            arguments |= {"time": f"{at:%H:%M}", "date": f"{at:%Y-%m-%d}"}
        return arguments

    def _times_in(self, words: str, length: str | None) -> int:
        """How many lengths, and without a ``length`` times of day, stand in ``words``. Days do not
        count, nor does "at a shop"."""
        found = self._first.finditer(words)
        return sum(bool(m["length"] or (not length and re.search(r"\b\d", m[0]))) for m in found)

    def _seconds(self, length: str) -> int | None:
        """A length in seconds; ``None``: its units do not get smaller ("a minute, ten minutes")."""
        seconds, last, smaller = 0.0, inf, 0.0
        for amount in self._amount.findall(length):
            count, unit, smaller = 1.0, amount, 0.0
            if match := self._parts.fullmatch(amount):
                number, half, unit, half_unit = match.groups()
                count = self._words.value(number) + 0.5 * bool(half or half_unit)
                smaller = self._units[unit] / 60
            if self._units[unit] >= last:
                return None
            last = self._units[unit]
            seconds += count * last
        said = length.split()[-1]  # "an hour thirty"
        return round(seconds + (smaller * int(said) if said.isdigit() else 0))


class PlainRequests:
    """The rule for plain requests in all languages, a ``pipeline.settings.Rule``."""

    def __init__(
        self,
        tables: Mapping[str, Mapping[str, str]],
        usual: Sequence[str],
        calls: Calls,
        now: Callable[[], float],
    ) -> None:
        """``tables``: those of each language. ``usual``: languages to prepare, and to try while the
        user's is unknown. ``calls``: the robot's, before a request. ``now``: the Unix time."""
        self._phrases = cache(lambda language: Phrases(language, tables[language]))
        for language in usual:
            self._phrases(language)  # takes 0.2 s, which no turn should wait for
        self._tables = tables
        self._usual = usual
        self._calls = calls
        self._now = now

    def __call__(self, texts: Sequence[str], language: str, tools: Collection[str]) -> Call | None:
        """The call that the last of ``texts`` asks for, with those before it or alone. With
        ``tools`` for times, requests that no rule understands are left to the model."""
        now = datetime.fromtimestamp(self._now())
        known = [language] if language in self._tables else self._usual
        texts = texts[-MOST_TOGETHER:]
        ends = (" ".join(texts[first:]) for first in range(len(texts)))
        asked = [form for end in ends for form in (end, self._calls.without(end))]
        forms = dict.fromkeys([*asked, *map(self._calls.without_name, asked)])
        found = [self._phrases(each).call(form, now) for form in forms for each in known]
        call = min(filter(None, found), key=lambda call: call[0] == UNCLEAR, default=None)
        has_tools = any(re.search("timer|alarm|remind", tool) for tool in tools)
        return None if call and call[0] == UNCLEAR and has_tools else call


def _joined(tokens: Tokens) -> str:
    return "".join(f"{digits} " for _, digits in tokens)


def _text(tokens: Tokens, match: re.Match[str]) -> dict[str, object]:
    """The argument ``text``, its numbers as the user said them."""
    words_said: list[str] = []
    for group in _TEXT:
        if words := match.groupdict().get(group):
            first = match.string.count(" ", 0, match.start(group))
            words_said += (each for each, _ in tokens[first : first + len(words.split())])
    return {"text": " ".join(words_said).replace("' ", "'")} if words_said else {}
