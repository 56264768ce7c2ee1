"""Rules of speech: a pattern, and the words that replace what it matches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

Replacement = str | Callable[[re.Match[str]], str]


_SIGN = "[-+=<>≤≥]"
NO_FACTOR = (
    r"(?!\s?(?:[+=<>≤≥²³^]|-\s?(?:\d|[a-z]\b)|–\s?\w+\s?=))"
    rf"(?<!{_SIGN}\dx)(?<!{_SIGN}\d\dx)(?<!{_SIGN}\s\dx)(?<!{_SIGN}\s\d\dx)"
)
"""Behind "2x": it is no factor of a formula, as in "2x + 3" and "y = 2x"."""

_TERM = r"\(?(?:\d+(?:[.,]\d+)*[a-df-z]?|[A-Za-z])(?:[²³]|\^\d+)?\)?"
_FORMULA = rf"(?<![\w.,]){_TERM}(?:(?:\s?[-+=×÷*/<>≤≥]\s?|\s–\s){_TERM}){{1,20}}(?!\w)"
_OPERATOR = "[=+<>≤≥]"


class Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: Replacement


def rule(pattern: str, replacement: Replacement, *, any_case: bool = False) -> Rule:
    """In ``pattern``, ``\\d`` stands for the digits 0 to 9 only. ``replacement`` may be a function,
    which gives back ``match[0]`` where the rule does not apply after all."""
    flags = re.IGNORECASE if any_case else 0
    return Rule(re.compile(_ascii_digits(pattern), flags), replacement)


def any_of(signs: Iterable[str]) -> str:
    """A pattern for any of ``signs``, the longest first."""
    return "|".join(re.escape(sign) for sign in sorted(signs, key=len, reverse=True))


def spelled(text: str, signs: Mapping[str, str]) -> str:
    """ "a.b" -> "a dot b"."""
    return " ".join("".join(f" {signs[s]} " if s in signs else s for s in text).split())


def _ascii_digits(pattern: str) -> str:
    """``pattern`` with 0-9 for each ``\\d``, which would be the digits of all scripts."""
    parts: list[str] = []
    in_class = False
    for sign in re.findall(r"\\.|.", pattern, re.DOTALL):
        if sign == r"\d":
            parts.append("0-9" if in_class else "[0-9]")
        else:
            parts.append(sign)
        in_class = sign == "[" or (in_class and sign != "]")
    return "".join(parts)


def minus(word: str) -> Sequence[Rule]:
    """The dash of "UTC-5", and those of a formula: between its terms "-" is no range and "–" no
    pause."""

    def replace(match: re.Match[str]) -> str:
        variable = re.search("[nxz]", match[0]) and not re.search(r"–|x\s?-\s?\d+x", match[0])
        if not (variable or re.search(_OPERATOR, match[0])):
            return match[0]
        return re.sub(r"(?<=[\w²³)])\s?[-–]\s?(?=[\w(])", f" {word} ", match[0])

    return (rule(r"(?<=\bUTC|\bGMT)\s?[-–](?=\d)", f" {word} "), rule(_FORMULA, replace))


def apply(rules: Sequence[Rule], text: str) -> str:
    """All rules, one after the other."""
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def full_stop(match: re.Match[str]) -> str:
    """The full stop of an abbreviation, if it also ends the sentence."""
    after = match.string[match.end() :]
    ends = not after.strip(" \"')") or re.match(r"[\"')]*\s+[A-Z]", after)
    return "." if ends and match[0].endswith(".") else ""


def last_stop(match: re.Match[str]) -> str:
    """The full stop of an abbreviation at the end of the text."""
    after = match.string[match.end() :]
    return "." if match[0].endswith(".") and not after.strip(" \"')") else ""
