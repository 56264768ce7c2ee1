"""Numbers as American English says them. Pure; ``num2words`` agrees, but for its commas and "and".

Own code and no library, because English alone is this one page.
"""

from __future__ import annotations

import re


def _words(text: str) -> list[str]:
    return text.split()


_SMALL = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_TENS = _words("_ _ twenty thirty forty fifty sixty seventy eighty ninety")
_SCALES = _words(
    "_ thousand million billion trillion quadrillion quintillion sextillion septillion octillion "
    "nonillion decillion"
)
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
MOST_DIGITS = 3 * len(_SCALES)
"""Numbers with more digits than this are said digit by digit."""

NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
"""A regular expression for what ``number`` reads: 1234.5, 1,234.5 or .5, without a sign."""


def cardinal(value: int) -> str:
    """1234 -> "one thousand two hundred thirty-four". Of 37 digits and more: digit by digit."""
    if value < 0:
        return f"minus {cardinal(-value)}"
    if value < 1000:
        return _below_thousand(value)
    if len(str(value)) > MOST_DIGITS:
        return digits(str(value))
    words: list[str] = []
    for scale in range(len(_SCALES) - 1, -1, -1):
        group = value // 1000**scale % 1000
        if group:
            words += [_below_thousand(group), *([_SCALES[scale]] if scale else [])]
    return " ".join(words)


def ordinal(value: int) -> str:
    """21 -> "twenty-first"."""
    head, last = re.fullmatch(r"(.*?)(\w+)", cardinal(value)).groups()  # type: ignore[union-attr]
    if last in _ORDINALS:
        return head + _ORDINALS[last]
    return head + (f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th")


def year(value: int) -> str:
    """1999 -> "nineteen ninety-nine", 2007 -> "two thousand seven", 2026 -> "twenty twenty-six"."""
    century, rest = divmod(value, 100)
    if value < 1000 or value > 9999 or (century % 10 == 0 and rest < 10):
        return cardinal(value)
    if not rest:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {_pair(rest)}"


def digits(text: str) -> str:
    """ "007" -> "zero zero seven"; what is no digit is left out."""
    return " ".join(_SMALL[int(sign)] for sign in text if sign in "0123456789")


def pairs(text: str) -> str:
    """The number in a name, such as a flight: "320" -> "three twenty", "9700" -> "ninety-seven
    hundred"; with a zero in front, digit by digit."""
    if text.startswith("0") or len(text) > 4:
        return digits(text)
    if len(text) <= 2 or int(text) % 1000 == 0:
        return cardinal(int(text))
    head, rest = int(text[:-2]), int(text[-2:])
    return f"{cardinal(head)} {_pair(rest) if rest else 'hundred'}"


def number(text: str) -> str:
    """What ``NUMBER`` matches: "1,234.50" -> "one thousand two hundred thirty-four point five
    zero". With a zero in front, such as "007", digit by digit."""
    whole, point, part = text.replace(",", "").partition(".")
    by_digit = len(whole) > MOST_DIGITS or (whole.startswith("0") and len(whole) > 1)
    said = digits(whole) if by_digit else cardinal(int(whole or 0))
    return f"{said} point {digits(part)}" if point else said


def _below_thousand(value: int) -> str:
    hundreds, rest = divmod(value, 100)
    words = [f"{_SMALL[hundreds]} hundred"] if hundreds else []
    if rest >= 20:
        tens, ones = divmod(rest, 10)
        words.append(_TENS[tens] + (f"-{_SMALL[ones]}" if ones else ""))
    elif rest or not hundreds:
        words.append(_SMALL[rest])
    return " ".join(words)


def _pair(value: int) -> str:
    """Two digits at the end of a year: 5 -> "oh five"."""
    return f"oh {_SMALL[value]}" if value < 10 else cardinal(value)
