"""Amounts of money, as one says them in English."""

from __future__ import annotations

import re

from pipeline.spoken.numerals import ENGLISH
from pipeline.spoken.rules import rule

_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "¥": ("yen", "yen", "", ""),
    "₹": ("rupee", "rupees", "paisa", "paise"),
}
_CODES = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹", "RS": "₹"}
_SHORT = {
    "k": "thousand",
    "m": "million",
    "bn": "billion",
    "b": "billion",
    "t": "trillion",
    "l": "lakh",
    "cr": "crore",
}
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
    names = _CURRENCIES["$" if sign.endswith("$") else _CODES.get(sign, sign)]
    large = groups.get("large") or _SHORT.get((groups.get("short") or "").strip().lower(), "")
    if to := groups.get("to"):
        return " ".join(
            filter(None, (ENGLISH.number(match["n"]), "to", ENGLISH.number(to), large, names[1]))
        )
    if large:
        return f"{ENGLISH.number(match['n'])} {large} {names[1]}"
    whole, _, part = match["n"].partition(".")
    if len(part) == 2 and names[2]:
        return _with_cents(whole or "0", int(part), names)
    return f"{ENGLISH.number(match['n'])} {names[0] if match['n'] == '1' else names[1]}"


def _with_cents(whole: str, part: int, names: tuple[str, str, str, str]) -> str:
    """ "5", 20 -> "five dollars and twenty cents"; no word of what is zero."""
    one, many, cent, cents = names
    small = f"{ENGLISH.cardinal(part)} {cent if part == 1 else cents}"
    large = f"{ENGLISH.number(whole)} {one if whole == '1' else many}"
    if whole == "0" and part:
        return small
    return f"{large} and {small}" if part else large


def _cents(match: re.Match[str]) -> str:
    return f"{ENGLISH.number(match[1])} cent{'' if match[1] == '1' else 's'}"


MONEY = (
    rule(
        rf"(?<![\w.])(?P<sign>{_SIGN})(?P<n>{{n}})(?:\s?(?:-|–|to)\s?{_SIGN}?(?P<to>{{n}}))?"
        rf"{_LARGE}(?:/-)?(?!\d|\.\d)",
        _money,
    ),
    rule(rf"(?<![\w.,])(?P<n>{{n}}){_SIGN_BEHIND}", _money),
    rule(r"(?<![\w.,])(\d+)\s?¢", _cents),
    rule(r"(?:(?<=dollars)|(?<=dollar)|(?<=euros)|(?<=pounds)|(?<=cents))/(?=[a-z])", " per "),
)
