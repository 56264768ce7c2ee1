"""Numbers as American English says them: ``num2words`` without its commas and its "and", and how
digits that count nothing are read. Pure."""

from __future__ import annotations

import re

from num2words.lang_EN import Num2Word_EN
from num2words.lang_EN_IN import Num2Word_EN_IN

_ENGLISH = Num2Word_EN()
_INDIAN_ENGLISH = Num2Word_EN_IN()

MOST_DIGITS = 27
"""Numbers with more digits are said digit by digit; their names mean nothing to a listener,
and ``num2words`` has none in Spanish and Portuguese."""

INDIAN = r"[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?![0-9])"
"""12,34,567: groups of two digits before the last three. One counts in lakh and crore there."""
NUMBER = rf"(?:(?:{INDIAN}|[0-9]{{1,3}}(?:,[0-9]{{3}})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
"""A regular expression for what ``number`` reads: 1234.5, 1,234.5, 1,00,000 or .5, without a
sign."""


def _american(words: str) -> str:
    return words.replace(" and ", " ").replace(",", "").replace("oh-", "oh ")


def cardinal(value: int) -> str:
    """1234 -> "one thousand two hundred thirty-four". Of 28 digits and more: digit by digit."""
    if len(str(value)) > MOST_DIGITS:
        return digits(str(value))
    return _american(_ENGLISH.to_cardinal(value))


def ordinal(value: int) -> str:
    """21 -> "twenty-first"."""
    return _american(_ENGLISH.to_ordinal(value))


def year(value: int) -> str:
    """1999 -> "nineteen ninety-nine", 2007 -> "two thousand seven", 2026 -> "twenty twenty-six"."""
    return _american(_ENGLISH.to_year(value)) if value >= 1000 else cardinal(value)


def digits(text: str) -> str:
    """ "007" -> "zero zero seven"; other characters are dropped."""
    return " ".join(_ENGLISH.to_cardinal(int(sign)) for sign in text if sign in "0123456789")


def pairs(text: str) -> str:
    """The number in a name, such as a flight: "320" -> "three twenty", "9700" -> "ninety-seven
    hundred"; with a zero in front, digit by digit."""
    if text.startswith("0") or len(text) > 4:
        return digits(text)
    if len(text) <= 2 or int(text) % 1000 == 0:
        return cardinal(int(text))
    head, rest = cardinal(int(text[:-2])), int(text[-2:])
    if not rest:
        return f"{head} hundred"
    return f"{head} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def number(text: str) -> str:
    """The words of a text that ``NUMBER`` matches: "1,234.50" is "one thousand two hundred
    thirty-four point five zero". With a zero in front, such as "007", digit by digit."""
    indian = bool(re.match(INDIAN, text))
    whole, point, part = text.replace(",", "").partition(".")
    by_digit = len(whole) > MOST_DIGITS or (whole.startswith("0") and len(whole) > 1)
    if by_digit:
        words = digits(whole)
    else:
        value = int(whole or 0)
        words = _american(_INDIAN_ENGLISH.to_cardinal(value)) if indian else cardinal(value)
    return f"{words} point {digits(part)}" if point else words


def roman(text: str) -> int:
    """The value of a numeral of C, L, X, V and I."""
    values = [{"C": 100, "L": 50, "X": 10, "V": 5, "I": 1}[sign] for sign in text]
    signs = zip(values, [*values[1:], 0], strict=True)
    return sum(-value if value < after else value for value, after in signs)
