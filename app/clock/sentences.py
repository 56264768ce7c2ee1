"""The robot's sentences about timers, from ``config/languages``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from app.clock.timers import ClockEntry
from pipeline.spoken.weekdays import short_days

LATE_S = 90.0
"""Later than this, the sentence also says when the timer was due."""


class Sentences:
    def __init__(self, languages: Mapping[str, Mapping[str, str]]) -> None:
        """``languages``: the tables of each language (``app.settings.languages.read_clock``)."""
        self._languages = {
            language: dict(line.split(" = ", 1) for line in tables["clock_sentences"].splitlines())
            for language, tables in languages.items()
        }

    def say(self, name: str, language: str, **fields: object) -> str:
        """The sentence ``name``, in English if the language has none."""
        sentences = self._languages.get(language) or self._languages["en"]
        return sentences[name].format(**fields)

    def now(self, at: datetime, language: str) -> str:
        return self.say("now", language, **_fields(at, language))

    def when(self, at: datetime, now: datetime, language: str) -> str:
        if at.date() == now.date():
            return _time(at)
        name = "tomorrow" if at.date() == now.date() + timedelta(days=1) else "later"
        return self.say(name, language, **_fields(at, language))

    def of(self, name: str, entry: ClockEntry, wall: float) -> str:
        """The sentence ``name``, such as ``set``, about ``entry`` at the time ``wall``."""
        at, now = datetime.fromtimestamp(entry.due), datetime.fromtimestamp(wall)
        text = self.say(
            f"{entry.kind}_{name}",
            entry.language,
            time=_time(now),
            when=self.when(at, now, entry.language),
            length=_length(entry.length_s),
            left=_length(max(1.0, entry.due - wall)),
            text=entry.text,
        )
        named = entry.kind == "timer" and entry.text
        return f"{entry.text[0].upper()}{entry.text[1:]}: {text}" if named else text

    def due(self, entry: ClockEntry, wall: float) -> str:
        text = self.of("due", entry, wall)
        if wall - entry.due < LATE_S:
            return text
        at, now = datetime.fromtimestamp(entry.due), datetime.fromtimestamp(wall)
        return f"{text} {self.say('late', entry.language, when=self.when(at, now, entry.language))}"


def _fields(at: datetime, language: str) -> dict[str, str]:
    days = list(dict.fromkeys(short_days(language or "en").values())) or [at.strftime("%A")] * 7
    return {"time": _time(at), "day": days[at.weekday()], "date": at.date().isoformat()}


def _time(at: datetime) -> str:
    return f"{at.hour}:{at.minute:02}"


def _length(seconds: float) -> str:
    """A length of time in units that every voice reads in its own language."""
    minutes, s = divmod(max(1, round(seconds)), 60)
    h, m = divmod(minutes, 60)
    return ", ".join(f"{n} {unit}" for n, unit in ((h, "h"), (m, "min"), (s, "s")) if n)
