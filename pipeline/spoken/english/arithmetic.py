"""Fractions, ranges, sums, ordinals and all numbers that nothing else has claimed, in English."""

from __future__ import annotations

import re
import unicodedata

from pipeline.spoken.numerals import ENGLISH, ENGLISH_NUMERAL, INDIAN
from pipeline.spoken.rules import NO_FACTOR, minus, rule

# --- fractions ------------------------------------------------------------------------------------

_OUT_OF = {5, 10, 20, 50, 100}
_SET_PHRASES = {"24/7", "9/11", "50/50", "20/20"}


def _vulgar(match: re.Match[str]) -> str:
    """ "2½" -> "2 1/2"."""
    fraction = unicodedata.normalize("NFKC", match[2]).replace("\N{FRACTION SLASH}", "/")
    return f"{match[1] or ''} {fraction}"


def _slash(match: re.Match[str]) -> str:
    over, under = int(match[1]), int(match[2])
    rated = under in _OUT_OF and re.match(r"\s(?:stars?|points?)\b", match.string[match.end() :])
    if match[0] in _SET_PHRASES:
        link = " "
    elif rated or over == under or (under == 10 and over > 3):
        link = " out of "
    elif part := ENGLISH.part(over, under):
        return part
    else:
        link = " over "
    return link.join(map(ENGLISH.cardinal, (over, under)))


def _mixed(match: re.Match[str]) -> str:
    over, under = int(match[2]), int(match[3])
    part = "a half" if under == 2 else ENGLISH.part(over, under).replace("one q", "a q")
    if not part or not 0 < over < under:
        return match[0]
    return f"{ENGLISH.cardinal(int(match[1]))} and {part}"


FRACTIONS = (
    rule(r"(?:(\d)\s?)?([½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])", _vulgar),
    rule(r"(?<![\w.,/-])(\d{1,4})\s(\d{1,2})/(\d{1,3})(?![\w/])", _mixed),
    rule(r"(?<![\w.,/])(\d{1,5})/(\d{1,4})(?![\w/]|\.\d)", _slash),
    rule(r"(?<![\w.,/])(\d+\.\d+)/(?=(?:5|10|20|100)(?![\w/]|\.\d))", r"\1 out of "),
)

# --- ranges ---------------------------------------------------------------------------------------

_END = r"(?:\s?[ap]\.?m\.?|\s?(?:km|m|cm|kg|g|°C|°F|°|%)|[kKMBT]\b|bn\b|\s(?:[mb]|tr)illion\b)?"

_FROM = rf"((?:[$€£¥₹]\s?)?{ENGLISH_NUMERAL}{_END}|\d\d?:\d\d{_END})"

RANGES = (
    rule(r"(?<=\d(?:st|nd|rd|th))\s?[-–—]\s?(?=\d+(?:st|nd|rd|th)\b)", " to "),
    rule(r"(?<=\d)(?<!\b0)x(?=\d)", " by "),
    rule(r"(\d\s?(?:[cmk]?m|ft|in))\s?[x×]\s?(?=\d)", r"\1 by "),
    rule(
        rf"(?<![\w.,-]){_FROM}\s?[–—]\s?(?=[$€£¥₹]?\d)",
        r"\1 to ",
    ),
    rule(
        rf"(?<![\w.,+×÷=√^-])(?<![+÷=]\s){_FROM}(?:-|\s-\s)(?=[$€£¥₹]?\d[\d.,:]*(?!\s?[=+×÷]|\d))",
        r"\1 to ",
    ),
)  # fmt: skip
"""3-5, 3–5, $3–5, 9am-5pm; 5-3=2 is a sum."""

# --- sums -----------------------------------------------------------------------------------------

_BOUNDS = {"<": "less than", ">": "more than", "≤": "at most", "≥": "at least"}
"""Signs that begin an amount: "<1%"."""
_POWERS = {"2": " squared", "3": " cubed", "²": " squared", "³": " cubed"}


def _power(match: re.Match[str]) -> str:
    exponent = match[1].strip("{}() ")
    if exponent in _POWERS:
        return _POWERS[exponent]
    return f" to the power of {exponent} ".replace("-", "minus ")


MINUS = (
    *(rule(rf"(?<![^\s(]){sign}(?=[$€£]?\d)", f"{words} ") for sign, words in _BOUNDS.items()),
    rule(r"(?<![\w.,])(\d+)\s?[-–]\s?(?=\d+[xX]\s(?:a\s|[a-z]{2}))", r"\1 to "),
    rule(
        rf"(?<![\w.,])(\d+(?:\.\d+)?)[xX](?!\w){NO_FACTOR}",
        lambda m: f"{ENGLISH.number(m[1])} times",
    ),
    rule(r"(?<!\w)~\s?(?=[$€£¥₹]?\d)", "about "),
    *minus("minus"),
    rule(r"(?<![^\s(=×÷+*/^<>≤≥≈~\"'])[-−](?=[$€£¥₹]?(?:\d|\.\d))(?!\d+-)", "minus "),
    rule(
        r"(?<=[\d)²³])(?<!:\d\d)\s+[-−]\s+(?=[\d(])(?!\d[\d.,]*(?::|\s?(?:[^\W\d_]{2}|%)))",
        " minus ",
    ),
    rule(r"(?<=\b[a-z])\s[-−]\s(?=\w\b)", " minus "),
)

SUMS = (
    rule(r"\b([fgh])\(([a-z])\)", r"\1 of \2"),
    rule(r"(?<=[\w)])\s?\^\s?(\{[^{}]*\}|\([^()]*\)|-?\w+)", _power),
    rule(r"(?<=[\w)])([²³])", _power),
    rule(r"\s*(?:!=|≠)\s*", " is not equal to "),
    rule(r"\s*(?:<=|≤)\s*", " is at most "),
    rule(r"\s*(?:>=|≥)\s*", " is at least "),
    rule(r"\s*(?:≈)\s*(?=\S)", " is about "),
    rule(r"\s*={1,3}\s*", " equals "),
    rule(r"(?<=\w)\s?<\s?(?=-?\w)", " is less than "),
    rule(r"(?<=\w)\s?>\s?(?=-?\w)", " is greater than "),
    rule(r"(?<!\w)<\s?(?=\d)", "less than "),
    rule(r"(?<!\w)>\s?(?=\d)", "more than "),
    rule(r"(?<=\d)\s?[×·]\s?(?=[\d(])|(?<=[\w)])\s[×·]\s(?=[\w(])|(?<=[\w)])×(?=[\w(])", " times "),
    rule(r"(?<=\d)\sx\s(?=\d)", " times "),
    rule(r"(?<=[\w)])\s?÷\s?(?=[\w(])|(?<=\d)\s/\s(?=\d)", " divided by "),
    rule(r"\s*±\s*", " plus or minus "),
    rule(r"√\s?\(?(?=\w)", "the square root of "),
    rule(r"(?<=[\w)])\s*\+\s*(?=[\w(])", " plus "),
    rule(r"(?<!\w)\+(?=[\w.])", "plus "),
    rule(r"(?<=\w)\+(?!\w)", " plus"),
    rule("∞", " infinity "),
    rule("π", " pi "),
)

# --- what is left ---------------------------------------------------------------------------------

NUMBERS = (
    rule(
        rf"(?<![\w.,])({INDIAN}|\d{{1,3}}(?:,\d{{3}})+|\d{{1,15}})(?:st|nd|rd|th)\b",
        lambda m: ENGLISH.ordinal(int(m[1].replace(",", ""))),
        any_case=True,
    ),
    rule(rf"(?<![\d.,]){ENGLISH_NUMERAL}(?![\d])", lambda m: f" {ENGLISH.number(m[0])} "),
    rule(r"\d+", lambda m: f" {ENGLISH.number(m[0])} "),
)
