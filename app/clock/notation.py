"""Reads the tables for timers (``config/languages``), and normalises texts to compare. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pipeline.spoken.numerals import NUMERALS
from pipeline.spoken.weekdays import short_days
from pipeline.spoken.words import pairs, words_of

_ELISIONS = re.compile(r"\b([dl]|(?:a|da|de|ne|su)ll|qu|un|mezz)'\s?(?=\w)")
_GAP = "(?:(?<= )| )"
"""A space, unless one was just matched: some patterns end with theirs."""
_SIGNS = re.compile(r"[^\w' .]|(?<!\d)\.|\.(?!\d)|_")


def plain(text: str) -> str:
    """``text`` in lower case, with single spaces: "7:30" becomes "7 30", "7h30" "7 h 30"."""
    text = text.lower().replace("’", "'")
    text = re.sub(r"\b([ap])\.\s?m\b\.?", r"\1m", text)
    text = re.sub(r"(?<=\d)\s?[.:](?=\d\d(?!\d))", " ", text)
    text = re.sub(r"(?<=\d)\s?h(?=\d\d(?!\d))", " h ", text)
    text = re.sub(r"(?<=\d)(?=h\b|[ap]m\b|min\b)", " ", text)
    text = _ELISIONS.sub(r"\1' ", re.sub(r"(?<=\d),(?=\d)", ".", text))
    return " ".join(_SIGNS.sub(" ", text).split())


def any_of(patterns: Iterable[str]) -> str:
    """A pattern that tries the longest of ``patterns`` first."""
    return f"(?:{'|'.join(sorted(patterns, key=len, reverse=True)) or '(?!)'})"


class Notation:
    """The notation of one language's tables."""

    def __init__(self, language: str, numbers: str) -> None:
        """``numbers``: the table ``clock_numbers``."""
        values = {
            plain(w.replace("_", " ")): n
            for words, n in pairs(numbers).items()
            for w in words.split("|")
        }
        self._digits = _cardinals(language) | {
            word: n for word, n in values.items() if n.isdigit() and n != "1"
        }
        self._token = re.compile(rf"{any_of(self._digits)}(?!\S)|\S+")
        self._names = _calendar(language)
        self._name = re.compile(f"^{any_of(self._names)}")
        self._small = {
            self.words(word): float(n)
            for word, n in values.items()
            if not n.startswith("+") and word not in self._digits
        }
        self.joints = any_of(word for word, n in values.items() if n == "+")
        self.halves = any_of(word for word, n in values.items() if n == "+0.5")
        self.number = any_of([r"\d+(?:\.\d)?", *self._small])

    def tokens(self, text: str) -> list[tuple[str, str]]:
        """Each word of ``text``, or number of several words, as it is and with digits. Monday
        becomes w0, January m1; words for 1 ("a", "un") stay words."""
        return [
            (each, self._digits.get(each) or self._name.sub(lambda m: self._names[m[0]], each))
            for each in self._token.findall(plain(text))
        ]

    def words(self, text: str) -> str:
        """``text`` with digits for numbers; _ stands for a space."""
        return " ".join(digits for _, digits in self.tokens(text.replace("_", " ")))

    def value(self, number: str) -> float:
        """The value of a text that the pattern ``number`` matches."""
        return self._small[number] if number in self._small else float(number)

    def pattern(self, text: str, names: Mapping[str, str]) -> str:
        """A pattern for words with a space behind each. ``names``: the one for each ``<name>``."""
        return "".join(self._slot(token, names) for token in text.split())

    def _slot(self, token: str, names: Mapping[str, str]) -> str:
        optional = "?" if token.startswith("(") else ""
        choice = any_of(self._choice(each, names) for each in token.strip("()").split("|"))
        return f"(?:{choice}{_GAP if '>' in token else ' '}){optional}"

    def _choice(self, text: str, names: Mapping[str, str]) -> str:
        parts = (re.split(r"(<\w+>)", part) for part in text.split("_"))
        joint = _GAP if ">" in text else " "
        return joint.join("".join(names.get(p) or self.words(p) for p in part) for part in parts)


def _calendar(language: str) -> dict[str, str]:
    """The names of weekdays and months, and their marks: w0 to w6, m1 to m12."""
    weekdays = dict.fromkeys(short_days(language).values())
    months = words_of(language)["months"].split()
    marked = {plain(name): f"m{n}" for n, name in enumerate(months, 1)}
    return marked | {plain(name): f"w{n}" for n, name in enumerate(weekdays)}


def _cardinals(language: str) -> dict[str, str]:
    """The words of each number below 100, and its digits. 1 is left out: often an article."""
    words = words_of(language)
    ones = ("", *(f"{words[key]} " for key in ("one", "one_feminine") if key in words))
    numbers = [n for n in range(100) if n != 1]
    return {plain(NUMERALS[language].cardinal(n, one)): str(n) for one in ones for n in numbers}
