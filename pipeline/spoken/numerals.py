"""Numbers in the words of one language of ``pipeline.spoken.wording``. Pure."""

from __future__ import annotations

import re

from pipeline.spoken.numbers import MOST_DIGITS
from pipeline.spoken.wording import GERMAN, SPANISH, Wording

NUMERAL = r"(?:\d{1,3}(?:[.\u202f\u00a0 ]\d{3})+(?![\d])(?:,\d+)?|\d+(?:[,.]\d+)?)"
"""1.234,5 or 1 234,5 or 1234,5 or 1234.5, without a sign."""
_DECIMALS_AS_ONE_NUMBER = 2
"""French, Spanish and Italian read as many decimals as one number, German reads each digit."""
_FEMININE = {
    "uma": ((r"\bum$", "uma"), (r"\bdois$", "duas"), ("entos", "entas")),
    "una": (("uno$", "una"), ("cientos", "cientas"), ("quinientos", "quinientas")),
    "une": ((r"\bun$", "une"),),
}
"""The ends of numbers before nouns of which there is "une"."""


def _accented(words: object) -> str:
    """Italian "duemilaventitré": ``num2words`` forgets the accent above 1000."""
    return re.sub(r"(?<=[ai])(?<!qua)tre$", "tré", str(words))


class Numerals:
    def __init__(self, wording: Wording) -> None:
        self.wording = wording

    def cardinal(self, value: int, one: str = "") -> str:
        """The gender follows from the article of ``one`` of the things, such as "une heure"."""
        if len(str(value)) > MOST_DIGITS:
            return self.digits(str(value))
        text = _accented(self.wording.numbers.to_cardinal(value))
        if not one:
            return text
        if value == 1:
            return one.partition(" ")[0]
        if one.startswith(("uma ", "una ", "une ")):
            for masculine, feminine in _FEMININE[one[:3]]:
                text = re.sub(masculine, feminine, text)
        elif self.wording is SPANISH:
            text = re.sub("uno$", "un", text).replace("veintiun", "veintiún")
        return text

    def digits(self, text: str) -> str:
        return " ".join(self.cardinal(int(sign)) for sign in text if sign.isdigit())

    def number(self, text: str, one: str = "") -> str:
        """The words of a text that ``NUMERAL`` matches."""
        if re.fullmatch(r"\d+\.\d+", text) and not re.fullmatch(r"\d{1,3}\.\d{3}", text):
            text = text.replace(".", ",")
        whole, comma, part = re.sub(r"[^\d,]", "", text).partition(",")
        by_digit = len(whole) > MOST_DIGITS or (whole.startswith("0") and len(whole) > 1)
        words = self.digits(whole) if by_digit else self.cardinal(int(whole), "" if comma else one)
        if not comma:
            return words
        w, most = self.wording, _DECIMALS_AS_ONE_NUMBER
        each = w is GERMAN or part.startswith("0") or len(part) > most
        return f"{words} {w.comma} {self.digits(part) if each else self.cardinal(int(part))}"

    def one(self, noun: str) -> str:
        feminine = re.fullmatch(self.wording.feminine, noun)
        return f"{self.wording.one_feminine if feminine else self.wording.one} "

    def year(self, value: int) -> str:
        to_year = self.wording.numbers.to_year
        return _accented(to_year(value)) if value >= 1000 else self.cardinal(value)

    def linked(self, first: str | None, link: str | None, last: str) -> str:
        """ "3.-5.", "3./4." and "3. und 4."."""
        if not (first and link):
            return last
        w = self.wording
        word = w.to if link in "-–—" else w.signs["&"] if link == "/" else link
        return f"{first} {word} {last}"
