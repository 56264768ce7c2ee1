"""Numbers as each language writes and says them. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from num2words.lang_DE import Num2Word_DE
from num2words.lang_EN import Num2Word_EN
from num2words.lang_EN_IN import Num2Word_EN_IN
from num2words.lang_ES import Num2Word_ES
from num2words.lang_FR import Num2Word_FR
from num2words.lang_IT import Num2Word_IT
from num2words.lang_NL import Num2Word_NL
from num2words.lang_PT import Num2Word_PT

from pipeline.spoken.words import MATHS_WORDS, pairs, words_of

NUMERAL = r"(?:\d{1,3}(?:[.\u202f\u00a0 ]\d{3})+(?![\d])(?:,\d+)?|\d+(?:[,.]\d+)?)"
"""1.234,5 or 1 234,5 or 1234,5 or 1234.5, without a sign."""
INDIAN = r"[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?![0-9])"
"""12,34,567: groups of two digits before the last three. One counts in lakh and crore there."""
ENGLISH_NUMERAL = (
    rf"(?:(?:{INDIAN}|[0-9]{{1,3}}(?:,[0-9]{{3}})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
)
"""1234.5, 1,234.5, 1,00,000 or .5, without a sign."""
ROMAN = r"(?=[XVI])X{0,3}(?:IX|IV|V?I{0,3})"

_MOST_DIGITS = 27
"""Numbers with more digits are said digit by digit; their names mean nothing to a listener,
and ``num2words`` has none in Spanish and Portuguese."""
_MOST_DIGITS_OF_ORDINALS = {"es": 14, "pt": 18}
"""``num2words`` fails on longer ones in these languages."""
_DECIMALS_AS_ONE_NUMBER = 2
"""French, Spanish, Italian, Dutch and Portuguese read as many decimals as one number, English and
German read each digit."""
_FEMININE = {
    "uma": ((r"\bum$", "uma"), (r"\bdois$", "duas"), ("entos", "entas")),
    "una": (("uno$", "una"), ("cientos", "cientas"), ("quinientos", "quinientas")),
    "une": ((r"\bun$", "une"),),
}
"""The ends of numbers before nouns of which there is "une"."""
_ENGLISH_PARTS = {*range(2, 11), 12, 16, 20, 32, 64, 100, 1000}


class Numerals:
    """Numbers in the words of one language, which ``converter`` of num2words has."""

    def __init__(self, language: str, converter: Any) -> None:
        self._language = language
        self._converter = converter
        self._comma = words_of(language)["comma"]
        signs = pairs(words_of(language).get("signs", ""))
        self._parts = {unicodedata.normalize("NFKC", sign): word for sign, word in signs.items()}

    def cardinal(self, value: int, one: str = "") -> str:
        """The gender follows from the article of ``one`` of the things, such as "une heure". Of 28
        digits and more: digit by digit."""
        if len(str(value)) > _MOST_DIGITS:
            return self.digits(str(value))
        text = self._polished(self._converter.to_cardinal(value))
        if not one:
            return text
        if value == 1:
            return one.partition(" ")[0]
        if one.startswith(("uma ", "una ", "une ")):
            for masculine, feminine in _FEMININE[one[:3]]:
                text = re.sub(masculine, feminine, text)
        elif self._language == "es":
            text = re.sub("uno$", "un", text).replace("veintiun", "veintiún")
        return text

    def ordinal(self, value: int) -> str:
        """A number that is too long for an ordinal is said as a cardinal."""
        if len(str(value)) > _MOST_DIGITS_OF_ORDINALS.get(self._language, _MOST_DIGITS):
            return self.cardinal(value)
        return self._polished(self._converter.to_ordinal(value))

    def year(self, value: int) -> str:
        """1999 -> "nineteen ninety-nine"."""
        if value < 1000:
            return self.cardinal(value)
        return self._polished(self._converter.to_year(value))

    def digits(self, text: str) -> str:
        """ "007" -> "zero zero seven"; other characters are dropped."""
        return " ".join(self.cardinal(int(sign)) for sign in text if sign in "0123456789")

    def phone(self, text: str) -> str:
        """Each group of digits, with pauses between."""
        plus = f"{MATHS_WORDS[self._language]['+']} " if text.startswith("+") else ""
        return plus + ", ".join(map(self.digits, re.findall(r"\d+", text)))

    def version(self, text: str, point: str) -> str:
        """ "3.11" -> "three point eleven"."""
        return f" {point} ".join(self.cardinal(int(part)) for part in text.split("."))

    def number(self, text: str, one: str = "") -> str:
        """The words of a text that ``NUMERAL`` matches, in English ``ENGLISH_NUMERAL``. With a zero
        in front, such as "007", digit by digit."""
        whole, point, part = self._divided(text)
        by_digit = len(whole) > _MOST_DIGITS or (whole.startswith("0") and len(whole) > 1)
        words = (
            self.digits(whole) if by_digit else self.cardinal(int(whole or 0), "" if point else one)
        )
        return f"{words} {self._comma} {self._decimals(part)}" if point else words

    def part(self, over: int, under: int) -> str:
        """ "drei Viertel"; empty if one would not say it so."""
        return self._parts.get(f"{over}\N{FRACTION SLASH}{under}", "")

    def _divided(self, text: str) -> tuple[str, str, str]:
        """Digits, and those behind the sign between them."""
        if re.fullmatch(r"\d+\.\d+", text) and not re.fullmatch(r"\d{1,3}\.\d{3}", text):
            text = text.replace(".", ",")
        return re.sub(r"[^\d,]", "", text).partition(",")

    def _decimals(self, part: str) -> str:
        each = self._language == "de" or part[:1] == "0" or len(part) > _DECIMALS_AS_ONE_NUMBER
        return self.digits(part) if each else self.cardinal(int(part))

    def _polished(self, words: object) -> str:
        """Italian "duemilaventitré": ``num2words`` forgets the accent above 1000."""
        return re.sub(r"(?<=[ai])(?<!qua)tre$", "tré", str(words))


class EnglishNumerals(Numerals):
    """As in America: without the commas and the "and" of ``num2words``."""

    def number(self, text: str, one: str = "") -> str:
        if re.match(INDIAN, text):
            return _INDIAN_ENGLISH.number(text.replace(",", ""))
        return super().number(text, one)

    def count(self, number: str, one: str, many: str) -> str:
        """ "5", "pound", "pounds" -> "five pounds"."""
        return f"{self.number(number)} {one if number == '1' else many}"

    def part(self, over: int, under: int) -> str:
        """ "three quarters"; empty if one would not say it so."""
        if under not in _ENGLISH_PARTS or over >= 2 * under:
            return ""
        one, many = {2: ("half", "halves"), 4: ("quarter", "quarters")}.get(
            under, (self.ordinal(under), f"{self.ordinal(under)}s")
        )
        return f"{self.cardinal(over)} {one if over == 1 else many}"

    def pairs(self, text: str) -> str:
        """The number in a name, such as a flight: "320" -> "three twenty", "9700" -> "ninety-seven
        hundred"; with a zero in front, digit by digit."""
        if text.startswith("0") or len(text) > 4:
            return self.digits(text)
        if len(text) <= 2 or int(text) % 1000 == 0:
            return self.cardinal(int(text))
        head, rest = self.cardinal(int(text[:-2])), int(text[-2:])
        if not rest:
            return f"{head} hundred"
        return f"{head} {'oh ' if rest < 10 else ''}{self.cardinal(rest)}"

    def _divided(self, text: str) -> tuple[str, str, str]:
        return text.replace(",", "").partition(".")

    def _decimals(self, part: str) -> str:
        return self.digits(part)

    def _polished(self, words: object) -> str:
        return str(words).replace(" and ", " ").replace(",", "").replace("oh-", "oh ")


def roman(text: str) -> int:
    """The value of a numeral of C, L, X, V and I."""
    values = [{"C": 100, "L": 50, "X": 10, "V": 5, "I": 1}[sign] for sign in text]
    signs = zip(values, [*values[1:], 0], strict=True)
    return sum(-value if value < after else value for value, after in signs)


ENGLISH = EnglishNumerals("en", Num2Word_EN())
_INDIAN_ENGLISH = EnglishNumerals("en", Num2Word_EN_IN())
NUMERALS = {
    "en": ENGLISH,
    "de": Numerals("de", Num2Word_DE()),
    "es": Numerals("es", Num2Word_ES()),
    "fr": Numerals("fr", Num2Word_FR()),
    "it": Numerals("it", Num2Word_IT()),
    "nl": Numerals("nl", Num2Word_NL()),
    "pt": Numerals("pt", Num2Word_PT()),
}
"""By language, ISO 639-1."""
