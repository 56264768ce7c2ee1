"""Recognises calls of the robot, and farewells, in transcripts. Pure.

Recognisers spell the name of a robot as they like ("Hey Richie"), so a call is compared by how it
sounds (``pipeline.spoken.sounds``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from pipeline.hearing.recognition import plain_words
from pipeline.settings import Lexicon
from pipeline.spoken.sounds import difference, sounds_of
from pipeline.turn_record import Aside
from pipeline.waking import tuning


class Calls:
    """The words that wake the robot, and those that send it to sleep."""

    def __init__(self, calls: Sequence[str], lexicons: Iterable[Lexicon]) -> None:
        self.texts = calls
        self._calls = [_CallSounds.of(call) for call in calls]
        names = tuple(name for call in calls for name in plain_words(call)[-1:])
        name = "|".join(map(re.escape, names)) or "(?!)"
        self._name = re.compile(rf"^\W*(?:{name})\b|\b(?:{name})\W*$", re.IGNORECASE)
        farewells = (_farewell(each, names) for each in lexicons if each.farewells)
        self._farewell = re.compile("|".join(farewells) or "(?!)")

    def begins(self, text: str, most_before: int = tuning.WORDS_BEFORE_CALL) -> bool:
        """Whether the text begins with a call, after at most ``most_before`` other words."""
        return self._after_call(plain_words(text), most_before) is not None

    def without(self, text: str) -> str:
        """The text without the call that it may begin with."""
        words = plain_words(text)
        rest = self._after_call(words)
        return _after(text, words[: len(words) - len(rest)] if rest else ())

    def without_name(self, text: str) -> str:
        """The text without the last word of a call, usually a name, before or behind it."""
        return self._name.sub("", text)

    def corrected(self, text: str) -> str:
        """``text``, whose first words are a misheard call, with the call in their place."""
        words = plain_words(text)
        if not words or self._after_call(words, len(words)) is not None:
            return text
        _, left, call = min(
            (_share(words[:count], known.sounds), len(words) - count, call)
            for call, known in zip(self.texts, self._calls, strict=True)
            for count in range(1, min(len(words), known.words + 2) + 1)
        )
        return call + _after(text, words[: len(words) - left])

    def aside(self, text: str) -> Aside | None:
        """``farewell`` or ``call`` if the text is nothing else; ``None``: it is a turn."""
        words = plain_words(text)
        rest = self._after_call(words)
        tells = len(words) <= tuning.MOST_FAREWELL_WORDS and not text.rstrip().endswith("?")
        if tells and any(self._farewell.fullmatch(_spaced(each)) for each in (words, rest or ())):
            return "farewell"
        return "call" if rest == [] else None

    def _after_call(
        self, words: Sequence[str], most_before: int = tuning.WORDS_BEFORE_CALL
    ) -> list[str] | None:
        """The words after a call, said once or twice; ``None``: there is no call."""
        best: tuple[float, int] | None = None
        for call in self._calls:
            for first in range(min(len(words), most_before + 1)):
                for end in range(first + 1, min(len(words), first + call.words + 2) + 1):
                    found = call.difference(words[first:end])
                    if found is not None and (best is None or (found, end) < best):
                        best = found, end
        if best is None:
            return None
        rest = list(words[best[1] :])
        again = self._after_call(rest, 0)
        return rest if again is None else again


def _farewell(lexicon: Lexicon, names: Sequence[str]) -> str:
    """A pattern that matches one or more farewells, and what may stand around them, ``_spaced``."""
    after = (*lexicon.after_farewells, *names)
    groups = (lexicon.before_farewells + after, lexicon.farewells, lexicon.farewells + after)
    before, farewell, later = ("|".join(_spaced(plain_words(p)) for p in g) for g in groups)
    return f"(?:{before})*(?:{farewell})(?:{later})*"


def _after(text: str, words: Sequence[str]) -> str:
    """The rest of ``text``, which begins with ``words``."""
    for word in words:
        text = text[text.lower().index(word) + len(word) :]
    return text


def _spaced(words: Sequence[str]) -> str:
    return "".join(f"{word} " for word in words)


class _CallSounds(NamedTuple):
    """A call: its number of words, its sounds, and those of its last word, usually a name."""

    words: int
    sounds: str
    name: str

    @classmethod
    def of(cls, call: str) -> _CallSounds:
        words = plain_words(call)
        return cls(len(words), spelling(call), spelling(words[-1] if words else ""))

    def difference(self, heard: Sequence[str]) -> float | None:
        """Share of the call's sounds that differ in these words; ``None``: too many. Their end must
        sound like the name, because "here we go" sounds like "hey Reachy"."""
        share = _share(heard, self.sounds)
        if share > tuning.CALL_DIFFERENCE:
            return None
        name = min(_share(heard[first:], self.name) for first in range(len(heard)))
        return share if name <= tuning.NAME_DIFFERENCE else None


def _share(heard: Sequence[str], sounds: str) -> float:
    return difference(spelling("".join(heard)), sounds, inf) / max(len(sounds), 1)


def spelling(text: str) -> str:
    """The sounds of ``text``, or its letters if the script is not Latin."""
    return sounds_of(text) or "".join(plain_words(text))


def too_short(call: str) -> bool:
    """Whether a call has so few sounds that other words resemble it."""
    least = tuning.LEAST_SOUNDS if sounds_of(call) else tuning.LEAST_LETTERS
    return len(spelling(call)) < least
