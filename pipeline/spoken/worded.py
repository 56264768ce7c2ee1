"""Text as it is said in the languages of ``pipeline.spoken.wording``: numbers, dates, times, money,
units and signs become words. Pure.

As in English (``pipeline.spoken.english``), the more particular rules come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from pipeline.spoken.numbers import MOST_DIGITS
from pipeline.spoken.punctuation import PAUSES, TYPOGRAPHY
from pipeline.spoken.rules import Rule, apply, full_stop, rule
from pipeline.spoken.wording import GERMAN, SPANISH, WORDINGS, Wording

_N = r"(?:\d{1,3}(?:[.\u202f\u00a0 ]\d{3})+(?![\d])(?:,\d+)?|\d+(?:[,.]\d+)?)"
"""1.234,5 or 1 234,5 or 1234,5 or 1234.5, without a sign."""
_FEWEST_DIGITS_OF_PHONES = 8
_DECIMALS_AS_ONE_NUMBER = 2
"""French, Spanish and Italian read as many decimals as one number, German reads each digit."""

_AT_ENDS = ("etc.", "usw.", "ecc.")
"""These end most of their sentences; behind others a capital may be a noun's or a name's."""
_FEMININE = re.compile(r"(?!días$|mapas$|planetas$|\w*(?:em|am|om|iom|gram)as$)\w+as")
"""Spanish nouns, as far as their ending shows it."""


def said(text: str, language: str) -> str:
    """``text``, without markup, in words of ``language``, which is one of ``WORDINGS``."""
    for rules in _rules(language):
        text = apply(rules, text)
    return " ".join(text.split())


@cache
def _rules(language: str) -> tuple[Sequence[Rule], ...]:
    words = _Words(WORDINGS[language])
    return (TYPOGRAPHY, *words.rules(), PAUSES)


def _any_of(signs: Iterable[str]) -> str:
    return "|".join(re.escape(sign) for sign in sorted(signs, key=len, reverse=True))


class _Words:
    """The rules of one language."""

    def __init__(self, wording: Wording) -> None:
        self._w = wording

    # -- numbers

    def _cardinal(self, value: int, one: str = "") -> str:
        """``one``: one of what is counted, such as "une heure"; its article decides the gender."""
        if len(str(value)) > MOST_DIGITS:
            return self._digits(str(value))
        text = str(self._w.numbers.to_cardinal(value))
        if not one:
            return text
        if value == 1:
            return one.partition(" ")[0]
        feminine = one.startswith(("une ", "una "))
        if self._w is SPANISH:
            if feminine:
                return re.sub("uno$", "una", text.replace("cientos", "cientas"))
            return re.sub("uno$", "un", text).replace("veintiun", "veintiún")
        return re.sub(r"\bun$", "une", text) if feminine else text

    def _digits(self, text: str) -> str:
        return " ".join(self._cardinal(int(sign)) for sign in text if sign.isdigit())

    def _number(self, text: str, one: str = "") -> str:
        """What ``_N`` matches."""
        if re.fullmatch(r"\d+\.\d+", text) and not re.fullmatch(r"\d{1,3}\.\d{3}", text):
            text = text.replace(".", ",")
        whole, comma, part = re.sub(r"[^\d,]", "", text).partition(",")
        by_digit = len(whole) > MOST_DIGITS or (whole.startswith("0") and len(whole) > 1)
        found = (
            self._digits(whole) if by_digit else self._cardinal(int(whole), "" if comma else one)
        )
        if not comma:
            return found
        each = self._w is GERMAN or part.startswith("0") or len(part) > _DECIMALS_AS_ONE_NUMBER
        return (
            f"{found} {self._w.comma} {self._digits(part) if each else self._cardinal(int(part))}"
        )

    def _plain(self, match: re.Match[str]) -> str:
        """A number that nothing else has claimed; before a word it may count that."""
        counts = re.match(r"\s([^\W\d_]+)", match.string[match.end() :])
        one = f"{self._w.one} " if counts else ""
        if counts and self._w is SPANISH and _FEMININE.fullmatch(counts[1]):
            one = "una "
        if re.fullmatch(r"1[1-9]\d\d", match[0]):
            return f" {self._year(int(match[0]))} "
        return f" {self._number(match[0], one)} "

    def _german_ordinal(self, match: re.Match[str]) -> str:
        """ "der 2. Versuch" -> "der zweite Versuch"."""
        ordinal = str(self._w.numbers.to_ordinal(int(match[2])))
        return f"{match[1]}{_inflected(ordinal, match[1])}"

    def _ordinal(self, match: re.Match[str]) -> str:
        end, new = self._w.ordinals[match[2]]
        return re.sub(f"{end}$", new, str(self._w.numbers.to_ordinal(int(match[1]))))

    # -- dates and times

    def _year(self, value: int) -> str:
        return str(self._w.numbers.to_year(value)) if value >= 1000 else self._cardinal(value)

    def _date(self, day: int, month: str, year: str, before: str = "") -> str:
        if self._w is GERMAN:
            spoken_day = _inflected(str(self._w.numbers.to_ordinal(day)), before)
        else:
            spoken_day = self._w.first if day == 1 else self._cardinal(day)
        found = self._w.date.format(day=spoken_day, month=month)
        if not year:
            return found
        full = int(year) + (2000 if len(year) == 2 else 0)
        return found + self._w.year.format(year=self._year(full))

    def _numeric_date(self, match: re.Match[str]) -> str:
        day, month = int(match["day"]), int(match["month"])
        if not (1 <= day <= 31 and 1 <= month <= 12):
            return match[0]
        year = match["year"] or ""
        found = self._date(day, self._w.months[month - 1], year, match["before"] or "")
        return f"{match['before'] or ''}{found}"

    def _named_date(self, match: re.Match[str]) -> str:
        month = next(m for m in self._w.months if m.lower() == match["month"].lower())
        year = match["year"] or ""
        found = self._date(int(match["day"]), month, year, match["before"] or "")
        return f"{match['before'] or ''}{found}"

    def _time(self, match: re.Match[str]) -> str:
        hour, minute = int(match["hour"]), int(match["minute"] or 0)
        if hour > 24 or minute > 59:
            return match[0]
        template = self._w.time if minute else self._w.hour
        spoken = self._cardinal(hour, self._w.one_hour)
        found = template.format(hour=spoken, minute=self._cardinal(minute))
        return found.replace("heures", "heure") if hour == 1 else found

    # -- amounts

    def _amount(self, match: re.Match[str]) -> str:
        one, several = {**self._w.units, **self._w.currencies}[match["unit"]]
        found = one if match["n"] == "1" else f"{self._number(match['n'], one)} {several}"
        shortened = match["unit"].isalpha() and match["unit"].istitle()
        return found + (_last_stop(match) if shortened else full_stop(match))

    def _money(self, match: re.Match[str]) -> str:
        one, several = self._w.currencies[match["sign"]]
        whole, _, part = match["n"].rpartition(",") if "," in match["n"] else (match["n"], "", "")
        if len(part) != 2:
            return one if match["n"] == "1" else f"{self._number(match['n'], one)} {several}"
        found = one if whole == "1" else f"{self._number(whole, one)} {several}"
        return found if part == "00" else f"{found}{self._w.cents}{self._cardinal(int(part))}"

    def _phone(self, match: re.Match[str]) -> str:
        if len(re.findall(r"\d", match[0])) < _FEWEST_DIGITS_OF_PHONES:
            return match[0]
        plus = f"{self._w.signs['+']} " if match[0].startswith("+") else ""
        return plus + ", ".join(self._digits(group) for group in re.findall(r"\d+", match[0]))

    def _spelled(self, match: re.Match[str]) -> str:
        words = "".join(f" {self._w.address[s]} " if s in self._w.address else s for s in match[0])
        return " ".join(words.split())

    # -- all of them

    def rules(self) -> list[Sequence[Rule]]:
        """In the order in which they apply."""
        return [
            self._abbreviations(),
            self._dates(),
            self._phones(),
            self._times(),
            self._ordinals(),
            self._ranges(),
            self._amounts(),
            (
                rule(rf"(?<![\d.,]){_N}(?!\d)", self._plain),
                rule(r"\d+", lambda m: f" {self._number(m[0])} "),
            ),
            self._signs(),
        ]

    def _abbreviations(self) -> Sequence[Rule]:
        short, titles = self._w.abbreviations, self._w.titles
        hosts = "com|org|net|de|fr|es|it|eu|io"
        return (
            rule(
                rf"(?<![\w.])({_any_of(short)})(?!\w)",
                lambda m: short[m[1]] + (full_stop if m[1] in _AT_ENDS else _last_stop)(m),
            ),
            rule(
                rf"(?<![\w.])({_any_of(titles)})\s+(?=[A-ZÄÖÜÉÀ])",
                lambda m: f"{titles[m[1]]} ",
            ),
            rule(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", self._spelled),
            rule(rf"(?<![\w@.])(?:[A-Za-z0-9][\w-]*\.)+(?:{hosts})\b", self._spelled),
        )

    def _dates(self) -> Sequence[Rule]:
        before, day = r"(?P<before>\b[^\W\d_]+\s)?", r"(?P<day>[12]\d|3[01]|0?[1-9])"
        year = r"(?P<year>1\d{3}|20\d\d)"
        months = _any_of(self._w.months)
        return (
            rule(
                rf"{before}\b{year}-(?P<month>[01]\d)-(?P<day>[0-3]\d)\b",
                self._numeric_date,
            ),
            rule(
                rf"{before}(?<![\d.,/])\b{day}(?P<sep>[./])(?P<month>1[0-2]|0?[1-9])"
                r"(?:(?P=sep)(?P<year>1\d{3}|20\d\d|\d\d)\b|\.(?=\s|$))(?![\d/])",
                self._numeric_date,
            ),
            rule(
                rf"{before}\b{day}(?:\.|er|º|°)?\s(?:de\s)?(?P<month>{months})\b"
                rf"(?:\s(?:del?\s)?{year}\b)?",
                self._named_date,
                any_case=True,
            ),
        )

    def _phones(self) -> Sequence[Rule]:
        return (
            rule(r"(?<![\w+])(?:\+|0)\d*(?:[\s/.-]{1,3}\d+)+(?!\w)", self._phone),
            rule(r"(?<![\w.,:])0\d+(?![\d.,:]*\d)", lambda m: self._digits(m[0])),
        )

    def _times(self) -> Sequence[Rule]:
        hour, minute = r"(?<![\d.,:])(?P<hour>\d\d?)", r"(?P<minute>[0-5]\d)"
        word = self._w.hour_word
        clock = rule(rf"{hour}:{minute}(?:{word})?(?![:\d])", self._time)
        if self._w.hour == "{hour}":  # "15 h" is how long something takes
            return (clock,)
        return (
            clock,
            rule(rf"{hour}\.{minute}{word}", self._time),
            rule(rf"{hour}{word}\s?{minute}?(?!\w)", self._time),
        )

    def _ordinals(self) -> Sequence[Rule]:
        if self._w is GERMAN:
            articles = "|".join((*_ENDS_IN_E, *_ENDS_IN_EN))
            pattern = rf"\b((?:{articles})\s)(\d{{1,4}})\.(?=\s[^\W\d_])"
            return (rule(pattern, self._german_ordinal, any_case=True),)
        return (rule(rf"\b(\d+)({_any_of(self._w.ordinals)})(?!\w)", self._ordinal),)

    def _ranges(self) -> Sequence[Rule]:
        amount = rf"{_N}\s?(?:{_any_of({**self._w.units, **self._w.currencies})})?"
        return (
            rule(r"(?<![^\s(=×÷+*/^<>≈~\"'])[-−](?=\d)", f"{self._w.minus} "),
            rule(r"(?<=\d)\s+[-−]\s+(?=\d)", f" {self._w.minus} "),
            rule(rf"(?<![\w.,-])({amount})\s?[–—-]\s?(?={_N}(?![-–]))", rf"\1 {self._w.to} "),
        )

    def _amounts(self) -> Sequence[Rule]:
        units, money = _any_of(self._w.units), _any_of(self._w.currencies)
        return (
            rule(rf"(?<![\w.,])(?P<n>{_N})\s?(?P<sign>{money})(?!\w)", self._money),
            rule(rf"(?<!\w)(?P<sign>{money})\s?(?P<n>{_N})(?!\w)", self._money),
            rule(
                rf"(?<![\w.,])(?P<n>{_N})[\s\u202f-]?(?P<unit>{units})\.?(?![\w²³/°])",
                self._amount,
            ),
        )

    def _signs(self) -> Sequence[Rule]:
        several = {**self._w.units, **self._w.currencies}
        alone = {sign: names[1] for sign, names in several.items() if not sign[0].isalpha()}
        words = self._w.signs | alone
        return tuple(
            rule(rf"\s*{re.escape(sign)}(?!\w)\s*|\s*{re.escape(sign)}(?=\w)", f" {word} ")
            for sign, word in sorted(words.items(), key=lambda pair: -len(pair[0]))
        )


def _last_stop(match: re.Match[str]) -> str:
    """The full stop of an abbreviation at the end of the text."""
    after = match.string[match.end() :]
    return "." if match[0].endswith(".") and not after.strip(" \"')") else ""


# --- German ordinals ------------------------------------------------------------------------------

_ENDS_IN_E = ("der", "die", "das", "eine")
_ENDS_IN_EN = (
    *("am", "vom", "zum", "zur", "im", "beim", "dem", "den", "des", "ab", "seit", "bis", "vor"),
    *("einer", "einem", "einen", "meinem", "meinen", "deinem", "deinen", "ihrem", "seinem", "nach"),
)


def _inflected(ordinal: str, before: str) -> str:
    """ "dritte", with the ending that the word before it asks for."""
    word = before.strip().lower()
    if word in _ENDS_IN_E:
        return ordinal
    return f"{ordinal}n" if word in _ENDS_IN_EN else f"{ordinal}r"
