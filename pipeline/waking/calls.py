"""Whether words are a call, or a farewell. Pure.

Recognisers spell the name of a robot as they like ("Hey Richie"), so a call is compared by how it
sounds (``pipeline.spoken.sounds``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from math import inf
from typing import NamedTuple

from pipeline.hearing.recognition import plain_words
from pipeline.spoken.sounds import difference, sounds_of
from pipeline.turn_record import Aside
from pipeline.waking import tuning


class Calls:
    """What the robot is called, and how it is sent to sleep."""

    def __init__(
        self, calls: Iterable[str], farewells: Iterable[str], around: Container[str] = ()
    ) -> None:
        """``around``: words that may come before a farewell, and after it: "okay", "please"."""
        self._calls = [_Spelt.of(call) for call in calls]
        self._farewells = {tuple(plain_words(each)) for each in farewells}
        self._around = around

    def begins(self, text: str) -> bool:
        """Whether its first words call the robot."""
        return self._after_call(plain_words(text)) is not None

    def aside(self, text: str) -> Aside | None:
        """What the words are if they are no turn."""
        words = plain_words(text)
        rest = self._after_call(words)
        if rest == []:
            return "call"
        if any(self._is_farewell(each) for each in (words, rest or [])):
            return "farewell"
        return None

    def _is_farewell(self, words: Sequence[str]) -> bool:
        first, end = 0, len(words)
        while first < end and words[first] in self._around:
            first += 1
        while first < end and words[end - 1] in self._around:
            end -= 1
        ends = (e for e in range(end, len(words) + 1))
        return any(tuple(words[f:e]) in self._farewells for e in ends for f in range(first + 1))

    def _after_call(self, words: Sequence[str]) -> list[str] | None:
        """The words after the call, if they begin with one."""
        best: tuple[float, int] | None = None
        for call in self._calls:
            for first in range(min(len(words), tuning.WORDS_BEFORE_CALL + 1)):
                for end in range(first + 1, min(len(words), first + call.words + 2) + 1):
                    found = call.difference(words[first:end])
                    if found is not None and (best is None or (found, end) < best):
                        best = found, end
        return None if best is None else list(words[best[1] :])


class _Spelt(NamedTuple):
    """A call: its words, how it sounds, and how its last word does, which is usually a name."""

    words: int
    sounds: str
    name: str

    @classmethod
    def of(cls, call: str) -> _Spelt:
        words = plain_words(call)
        return cls(len(words), spelling(call), spelling(words[-1] if words else ""))

    def difference(self, heard: Sequence[str]) -> float | None:
        """Share of the call that is wrong in these words; ``None``: too much. Their end must be
        like the name: "here we go" is like "hey Reachy", too."""
        share = _share(heard, self.sounds)
        if share > tuning.CALL_DIFFERENCE:
            return None
        name = min(_share(heard[first:], self.name) for first in range(len(heard)))
        return share if name <= tuning.NAME_DIFFERENCE else None


def _share(heard: Sequence[str], sounds: str) -> float:
    return difference(spelling("".join(heard)), sounds, inf) / max(len(sounds), 1)


def spelling(text: str) -> str:
    """How it sounds; of scripts other than Latin, the letters."""
    return sounds_of(text) or "".join(plain_words(text))


def too_short(call: str) -> bool:
    """Whether it is too much like other words."""
    least = tuning.LEAST_SOUNDS if sounds_of(call) else tuning.LEAST_LETTERS
    return len(spelling(call)) < least
