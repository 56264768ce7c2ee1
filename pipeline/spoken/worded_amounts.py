"""Money and measures, in the words of one language of ``pipeline.spoken.wording``. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.spoken.language import SMALL_WORDS
from pipeline.spoken.numerals import NUMERAL, Numerals
from pipeline.spoken.rules import NO_FACTOR, Rule, any_of, full_stop, last_stop, minus, rule
from pipeline.spoken.wording import Wording
from pipeline.spoken.words import pairs

_LARGE = (
    r"(?:(?:lakh\s)?(?:lakh|crore)s?|mille|mila|[Tt]ausend|Tsd\.?|duizend|(?:mil\s)?[Mm]il(?:l?ion[ei]"
    r"|lionen|lions?|l[óo]n(?:es)?|h[ãõ](?:o|es)|joen)|[Mm]il(?:li|i|j)ard(?:e|en|s|o|i)?"
    r"|[Bb]il(?:h[ãõ](?:o|es)|liones)|(?:Mio|Mrd)\.?|ml[nd]|mil)"
)
"""What thousands are counted in, between a currency and the end of its amount."""
_HALVES = pairs(
    "ein halb = eine halbe; un demi = une demi; medio = media; mezzo = mezza; meio = meia"
)
"""Before a feminine noun."""
_SENTENCE_STARTS = SMALL_WORDS["de"].split()
"""No noun, though they have a capital behind "5 Min."."""
_WITH_CENTS = ("€", "EUR", "$", "USD", "US$")


class WordedAmounts:
    def __init__(self, wording: Wording, numerals: Numerals) -> None:
        self._w = wording
        self._numerals = numerals

    def amounts(self) -> Sequence[Rule]:
        units, money = any_of(self._w.units), any_of(self._w.currencies)
        return (
            rule(
                rf"((?:{money})\s?{NUMERAL}|\d\s{self._w.times})\s?/"
                rf"(?=[^\W\d_]{{3}}|(?:{units})(?!\w))",
                rf"\1 {self._w.per} ",
            ),
            rule(
                rf"(?<![\w.,])(?P<n>{NUMERAL})\s?(?!(?:{units})(?![\w/]))(?P<of>{units}|{money})/(?:(?P<count>\d+)\s?)?(?P<unit>{units})(?!\w)",
                self._rate,
            ),
            rule(
                rf"(?<![\w.,])(?P<n>{NUMERAL})\s?(?:(?P<unit>{units})|(?P<sign>{money}))/(?=[^\W\d_]{{3}})",
                lambda m: f"{(self._amount if m['unit'] else self._money)(m)} {self._w.per} ",
            ),
            rule(rf"(?P<part>[½¼¾⅓⅔])\s?(?P<unit>{units})(?![\w²³/°'’])", self._part),
            rule(
                rf"(?<=\b{self._w.per}\s)(?P<unit>{units})(?![\w²³/'’])",
                lambda m: self._noun(m["unit"]),
            ),
            rule(
                rf"(?<![\w.,])(?P<n>{NUMERAL})\s?(?:(?P<large>{_LARGE})\s?)?(?P<sign>{money})(?!\w)",
                self._money,
            ),
            rule(
                rf"(?<!\w)(?P<sign>{money})\s?(?P<n>{NUMERAL})(?:\s?(?P<large>{_LARGE}))?(?!\w|[.,]\d)",
                self._money,
            ),
            rule(
                rf"(?<![\w.,])(?P<n>{NUMERAL})[\s\u202f-]?(?P<unit>{units})\.?(?![\w²³/°])",
                self._amount,
            ),
        )

    def ranges(self) -> Sequence[Rule]:
        money = any_of(self._w.currencies)
        amount = rf"(?:{money})?\s?{NUMERAL}\s?(?:{_LARGE})?\s?(?:{any_of(self._w.units)}|{money})?"
        return (
            rule(r"(?<![\w.,])(\d+)\s?[–-]\s?(?=\d+\s?[x×]\s[a-zà-ÿ]{2})", rf"\1 {self._w.to} "),
            rule(r"(?<=\d)\s?[x×·⋅]\s?(?=\d)", f" {self._w.signs['×']} "),
            rule(r"(\d\s?[cmk]?m)\s?[x×]\s?(?=\d)", rf"\1 {self._w.signs['×']} "),
            rule(rf"(?<=\d)\s?[x×](?!\w){NO_FACTOR}", f" {self._w.times} "),
            rule(rf"(?<!\w)~\s?(?=(?:{money})?\s?\d)", f"{self._w.signs['≈']} "),
            *minus(self._w.minus),
            rule(rf"(?<![^\s(=×÷+*/^<>≈~\"'])[-−](?=(?:{money})?\d)", f"{self._w.minus} "),
            rule(rf"(?<=\d)\s+[-−]\s+(?=\d)(?!{amount}\s?[^\W\d_]{{2}})", f" {self._w.minus} "),
            rule(
                rf"(?<![\w.,-])({amount})\s?[–—-]\s?(?=(?:{money})?\s?{NUMERAL}(?![-–]\d))",
                rf"\1 {self._w.to} ",
            ),
        )

    def _count(self, number: str, one: str, several: str, large: str = "", single: str = "") -> str:
        """ "un euro", "deux euros", "deux millions d'euros". ``single``: one million."""
        if number == "1" and not large:
            return one
        words = self._numerals.number(number, self._w.one_before(large) if large else one)
        words = f"{words} {large}" if large else words
        words = single if single and number == "1" else words
        counts_of = re.search(r"[mb]il(?:l?i|l[óo]|h[ãõ])\w*$", words)
        return f"{words} {self._of(several) if counts_of else several}"

    def _of(self, noun: str) -> str:
        elided = self._w.of == "de " and self._w.to == "à" and noun[0] in "aeiouh"
        return f"d'{noun}" if elided else f"{self._w.of}{noun}"

    def _noun(self, unit: str) -> str:
        return re.split(r"[ ']", self._w.units[unit][0], maxsplit=1)[1]

    def _part(self, match: re.Match[str]) -> str:
        """ "½ h" -> "une demi heure", "¾ l" -> "trois quarts de litre"."""
        words, noun = self._w.signs[match["part"]], self._noun(match["unit"])
        if match["part"] != "½":
            return f"{words} {self._of(noun)}"
        return f"{self.half(self._w.units[match['unit']][0])} {noun}"

    def half(self, one: str) -> str:
        """ "une heure" -> "une demi"."""
        words = self._w.signs["½"]
        return _HALVES.get(words, words) if re.match(r"(?:une|una|uma|eine)\s|un'", one) else words

    def _amount(self, match: re.Match[str]) -> str:
        amount = self._count(match["n"], *self._w.units[match["unit"]])
        shortened = match["unit"].isalpha() and match["unit"].istitle()
        after = re.match(r"\s+([A-Z]\w*)", match.string[match.end() :])
        noun = after and after[1].lower() not in _SENTENCE_STARTS
        return amount + (last_stop(match) if shortened and noun else full_stop(match))

    def _money(self, match: re.Match[str]) -> str:
        return self._price(match["n"], match["sign"], match.groupdict().get("large"))

    def _price(self, amount: str, sign: str, large: str | None = None) -> str:
        one, several = self._w.currencies[sign]
        amount = re.sub(r"^(\d{1,3}),(\d{3})$", r"\1.\2", amount)  # no money has 3 decimals
        amount = re.sub(r"\.(\d\d)$", r",\1", amount)
        if large:
            single, large = self._w.units.get(large.rstrip("."), ("", large))
            return self._count(amount, one, several, large, single)
        whole, _, part = amount.rpartition(",") if "," in amount else (amount, "", "")
        if len(part) != 2 or (whole == "0" and sign not in _WITH_CENTS):
            return self._count(amount, one, several)
        words = self._count(whole, one, several)
        cents = self._numerals.cardinal(int(part))
        if whole == "0" and int(part):
            return f"{cents} {self._w.cents_alone}"
        return words if part == "00" else f"{words}{self._w.cents}{cents}"

    def _rate(self, match: re.Match[str]) -> str:
        """ "4 €/kg" -> "vier Euro pro Kilogramm"."""
        if match["of"] in self._w.currencies:
            amount = self._price(match["n"], match["of"])
        else:
            amount = self._count(match["n"], *self._w.units[match["of"]])
        if count := match["count"]:
            return f"{amount} {self._w.per} {self._count(count, *self._w.units[match['unit']])}"
        return f"{amount} {self._w.per} {self._noun(match['unit'])}"
