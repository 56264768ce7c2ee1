"""Amounts of money, as one says them in English."""

from __future__ import annotations

import re

from pipeline.spoken.numerals import ENGLISH, ENGLISH_NUMERAL
from pipeline.spoken.rules import rule
from pipeline.spoken.words import pairs, table, words_of

_CURRENCIES, _CENTS = (table(words_of("en")[key]) for key in ("currencies", "cents"))
_LARGE_NUMBERS = pairs(words_of("en")["large"])
_SIGN = r"(?:(?:(?:US|CA|AU|NZ|HK|[ACS])\$|USD|EUR|GBP|JPY|INR|(?:[Rr]s|RS)\.?|[$€£¥₹])\s?)"
_SIGN_BEHIND = r"(?:\s?(?P<sign>USD|EUR|GBP|JPY|INR|Rs)\b|\s?(?P<sign2>[€£¥₹$])(?!\w))"
_LARGE = (
    r"(?:\s?(?P<large>(?:(?:lakh|thousand|hundred)\s)?"
    r"(?:hundred|thousand|million|billion|trillion|lakh|crore))s?\b"
    r"|(?P<short>k|K|m|M|bn|B|T|L|\s?[Cc]r)\b)?"
)


def _money(match: re.Match[str]) -> str:
    groups = match.groupdict()
    sign = (groups["sign"] or groups.get("sign2") or "").strip(" .").upper()
    sign = "$" if sign.endswith("$") else sign
    large = groups.get("large") or _LARGE_NUMBERS.get((groups.get("short") or "").strip().lower())
    number, several = ENGLISH.number(match["n"]), _CURRENCIES[sign][1]
    if to := groups.get("to"):
        return " ".join(filter(None, (number, "to", ENGLISH.number(to), large, several)))
    if large:
        return f"{number} {large} {several}"
    whole, _, part = match["n"].partition(".")
    if len(part) != 2 or sign not in _CENTS:
        return ENGLISH.count(match["n"], *_CURRENCIES[sign])
    cents = ENGLISH.count(part.lstrip("0"), *_CENTS[sign]) if int(part) else ""
    amount = "" if cents and whole in ("", "0") else ENGLISH.count(whole or "0", *_CURRENCIES[sign])
    return " and ".join(filter(None, (amount, cents)))


MONEY = (
    rule(
        rf"(?<![\w.])(?P<sign>{_SIGN})(?P<n>{ENGLISH_NUMERAL})(?:\s?(?:-|–|to)\s?{_SIGN}?(?P<to>{ENGLISH_NUMERAL}))?"
        rf"{_LARGE}(?:/-)?(?!\d|\.\d)",
        _money,
    ),
    rule(rf"(?<![\w.,])(?P<n>{ENGLISH_NUMERAL}){_SIGN_BEHIND}", _money),
    rule(r"(?<![\w.,])(\d+)\s?¢", lambda m: ENGLISH.count(m[1], *_CENTS["$"])),
    rule(r"(?:(?<=dollars)|(?<=dollar)|(?<=euros)|(?<=pounds)|(?<=cents))/(?=[a-z])", " per "),
)
