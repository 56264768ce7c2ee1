"""Text as it is said in the languages of ``pipeline.spoken.wording``: numbers, dates, times, money,
units and signs become words. Pure.

As in English (``pipeline.spoken.english``), the more particular rules come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from pipeline.spoken.language import SMALL_WORDS
from pipeline.spoken.maths_words import MATHS_WORDS
from pipeline.spoken.numbers import INDIAN, MOST_DIGITS, roman
from pipeline.spoken.punctuation import PAUSES, TYPED_GAPS, TYPOGRAPHY, grouping
from pipeline.spoken.rules import NO_FACTOR, Rule, apply, full_stop, minus, rule
from pipeline.spoken.weekdays import weekdays
from pipeline.spoken.wording import GERMAN, SPANISH, WORDINGS

_N = r"(?:\d{1,3}(?:[.\u202f\u00a0 ]\d{3})+(?![\d])(?:,\d+)?|\d+(?:[,.]\d+)?)"
"""1.234,5 or 1 234,5 or 1234,5 or 1234.5, without a sign."""
_LARGE = (
    r"(?:(?:lakh\s)?(?:lakh|crore)s?|[Mm]il(?:l?ion[ei]|lionen|lions?|l[óo]n(?:es)?|h[ãõ](?:o|es)|joen)"
    r"|[Mm]il(?:li|i|j)ard(?:e|en|s|o|i)?|[Bb]il(?:h[ãõ](?:o|es)|liones)|(?:Mio|Mrd)\.?|ml[nd])"
)
"""What thousands are counted in, between a currency and the end of its amount."""
_WITH_CENTS = ("€", "EUR", "$", "USD", "US$")
_FEWEST_DIGITS_OF_PHONES = 8
_DECIMALS_AS_ONE_NUMBER = 2
"""French, Spanish and Italian read as many decimals as one number, German reads each digit."""

_AT_ENDS = ("etc.", "usw.", "usf.", "u.v.m.", "ecc.", "enz.")
"""These end most of their sentences; behind others a capital may be a noun's or a name's."""
_ROMAN = r"(?=[XVI])X{0,3}(?:IX|IV|V?I{0,3})"
_WOMAN = r"\w+a|Isabel|Elisabeth|Margarethe?|Margrethe"
_FEMININE = {
    "uma": ((r"\bum$", "uma"), (r"\bdois$", "duas"), ("entos", "entas")),
    "una": (("uno$", "una"), ("cientos", "cientas"), ("quinientos", "quinientas")),
    "une": ((r"\bun$", "une"),),
}
"""The ends of numbers before nouns of which there is "une"."""
_SIGNS_OF_PARTS = {"1/2": "½", "1/4": "¼", "3/4": "¾", "1/3": "⅓", "2/3": "⅔"}
_SMALL = 2
"""Characters of an abbreviation that could be a unit or a word if it had no capital: "M."."""
_SIGNS_OF_MATHS = "≠≤≥√^²³∞"
_DECIMALS_OF = {"½": ",5", "¼": ",25", "¾": ",75"}


def said(text: str, language: str) -> str:
    """``text``, without markup, in words of ``language``, which is one of ``WORDINGS``."""
    for rules in _rules(language):
        text = apply(rules, text)
    return " ".join(text.split())


def number(text: str, language: str) -> str:
    """A number that counts nothing."""
    return _Words(language).number(text)


def part(text: str, language: str) -> str:
    """ "1/2" -> "ein halb"; empty if there is no word for it."""
    return WORDINGS[language].signs.get(_SIGNS_OF_PARTS.get(text, ""), "")


@cache
def _rules(language: str) -> tuple[Sequence[Rule], ...]:
    words = _Words(language)
    return (TYPOGRAPHY, grouping(TYPED_GAPS, ".", ","), _COMMAS, *words.rules(), PAUSES)


def _regrouped(match: re.Match[str]) -> str:
    return f"{int(match['whole'].replace(',', '')):,}".replace(",", ".") + match["part"].replace(
        ".", ","
    )


_COMMAS = (
    rule(
        rf"(?<![\w.,])(?P<whole>{INDIAN}|\d{{1,3}}(?:,\d{{3}}){{2,}}|\d{{1,3}},\d{{3}}(?=\.\d))"
        r"(?P<part>(?:\.\d+)?)(?![\w,])",
        _regrouped,
    ),
)
"""12,34,567, 1,234,567 or 1,234.5: such commas divide no decimals."""


def _any_of(signs: Iterable[str]) -> str:
    return "|".join(re.escape(sign) for sign in sorted(signs, key=len, reverse=True))


class _Words:
    """The rules of one language."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._w = WORDINGS[language]
        names = {*self._w.numbered.values(), self._w.signs["§"], "Satz", "Nummer"}
        self._names = re.compile(rf"\b(?:{_any_of(names)})\s?$|§\s?$")
        """What may stand before the number of a paragraph, which counts nothing."""
        self._maths = {s: w for s, w in MATHS_WORDS[language].items() if s in _SIGNS_OF_MATHS}
        self._small_words = SMALL_WORDS[language].split()

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
        if one.startswith(("uma ", "una ", "une ")):
            for masculine, feminine in _FEMININE[one[:3]]:
                text = re.sub(masculine, feminine, text)
        elif self._w is SPANISH:
            text = re.sub("uno$", "un", text).replace("veintiun", "veintiún")
        return text

    def _digits(self, text: str) -> str:
        return " ".join(self._cardinal(int(sign)) for sign in text if sign.isdigit())

    def number(self, text: str, one: str = "") -> str:
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
        """A number that nothing else has claimed; before a noun it may count that."""
        after = re.match(r"\s([^\W\d_]+)", match.string[match.end() :])
        counts = after and after[1].lower() not in self._small_words
        counts = counts and not self._names.search(match.string[: match.start()])
        one = self._one(after[1]) if after and counts else ""
        if re.fullmatch(r"1[1-9]\d\d", match[0]):
            return f" {self._year(int(match[0]))} "
        return f" {self.number(match[0], one)} "

    def _one(self, noun: str) -> str:
        feminine = re.fullmatch(self._w.feminine, noun)
        return f"{self._w.one_feminine if feminine else self._w.one} "

    def _german_ordinal(self, match: re.Match[str]) -> str:
        """ "der 2. Versuch" -> "der zweite Versuch"."""
        first, last = (
            each and _inflected(str(self._w.numbers.to_ordinal(int(each))), match[1])
            for each in (match[2], match[4])
        )
        return f"{match[1]}{self._linked(first, match[3], last)}"

    def _nth(self, match: re.Match[str]) -> str:
        """ "3. Stock" -> "dritter Stock", without a word before it; "1.-3. Klasse"."""
        first, last = (
            each and f"{self._w.numbers.to_ordinal(int(each))}{COUNTED_NOUNS[match[4]]}"
            for each in (match[1], match[3])
        )
        return f"{self._linked(first, match[2], last)} "

    def _linked(self, first: str | None, link: str | None, last: str) -> str:
        """ "3.-5.", "3./4." and "3. und 4."."""
        if not (first and link):
            return last
        said = self._w.to if link in "-–—" else self._w.signs["&"] if link == "/" else link
        return f"{first} {said} {last}"

    def _ordinal(self, match: re.Match[str]) -> str:
        end, new = self._w.ordinals[match[2]]
        return re.sub(f"{end}$", new, str(self._w.numbers.to_ordinal(int(match[1]))))

    def _joined(self, match: re.Match[str]) -> str:
        """ "90er" -> "neunziger"; "3-mal" -> "dreimal"."""
        value = int(match[1])
        number = self._year(value) if 1100 <= value < 2000 else self._cardinal(value, "ein ")
        return number + match[2]

    def _ruler(self, match: re.Match[str]) -> str:
        """ "Louis XIV" -> "Louis quatorze". In German, a ruler's number has a full stop."""
        value, (before, ordinals) = roman(match[2]), self._w.ruler
        words, stop = self._w.numbers, match[3] or ""
        if value > ordinals or (self._w is GERMAN and not stop):
            return f"{match[1]} {words.to_cardinal(value)}{stop}"
        if re.match(r"\s[^\W\d_A-ZÄÖÜ]", match.string[match.end() :]):
            stop = ""
        said = f"{before}{words.to_ordinal(value)}{stop}"
        if re.fullmatch(_WOMAN, match[1]):
            said = re.sub(r"o\b", "a", said) if before != "der " else said.replace("der", "die")
        return f"{match[1]} {said}"

    def _dotted(self, match: re.Match[str]) -> str:
        """ "2.1.3" -> "zwei Punkt eins Punkt drei"; not of "1.234.567"."""
        if re.fullmatch(r"\d{1,3}(?:\.\d{3})+", match["n"]):
            return match[0]
        parts = match["n"].split(".")
        point = f" {self._w.address['.']} "
        return f"{match['before'] or ''} {point.join(self._cardinal(int(part)) for part in parts)}"

    # -- dates and times

    def _year(self, value: int) -> str:
        return str(self._w.numbers.to_year(value)) if value >= 1000 else self._cardinal(value)

    def _date(self, day: int, month: str, year: str, before: str = "") -> str:
        found = self._w.date.format(day=self._day(day, before), month=month)
        if not year:
            return found
        full = int(year) + (2000 if len(year) == 2 else 0)
        return found + self._w.year.format(year=self._year(full))

    def _day(self, day: int, before: str) -> str:
        if self._w is GERMAN:
            return _inflected(str(self._w.numbers.to_ordinal(day)), before)
        return self._w.first if day == 1 else self._cardinal(day)

    def _numeric_date(self, match: re.Match[str]) -> str:
        day, month = int(match["day"]), int(match["month"])
        if not (1 <= day <= 31 and 1 <= month <= 12):
            return match[0]
        year = match.groupdict().get("year") or ""
        found = self._date(day, self._w.months[month - 1], year, match["before"] or "")
        return f"{match['before'] or ''}{found}"

    def _named_date(self, match: re.Match[str]) -> str:
        written = match["month"].rstrip(".").lower()
        written = self._w.short_months.get(written.title(), written).lower()
        month = next(m for m in self._w.months if m.lower().startswith(written))
        year, before = match["year"] or "", match["before"] or ""
        found = self._date(int(match["day"]), month, year, before)
        first = match["first"] and self._day(int(match["first"]), before)
        return f"{before}{self._linked(first, match['link'], found)}{full_stop(match)}"

    def _time(self, match: re.Match[str]) -> str:
        hour, minute = int(match["hour"]), int(match["minute"] or 0)
        if hour > 24 or minute > 59:
            return match[0]
        template = self._w.time if minute else self._w.hour
        spoken = self._cardinal(hour, self._w.one_hour)
        found = template.format(hour=spoken, minute=self._cardinal(minute))
        return re.sub(r"\b(heure|hora)s\b", r"\1", found) if hour <= 1 else found

    # -- amounts

    def _several(self, number: str, one: str, several: str, large: str = "") -> str:
        """ "deux euros", "deux millions d'euros"."""
        said = self.number(number, self._one(large) if large else one)
        said = f"{said} {large}" if large else said
        of = self._w.of if re.search(r"[mb]il(?:l?i|l[óo]|h[ãõ])\w*$", said) else ""
        if of == "de " and self._w.to == "à" and several[0] in "aeiou":
            of = "d'"
        return f"{said} {of}{several}"

    def _amount(self, match: re.Match[str]) -> str:
        one, several = {**self._w.units, **self._w.currencies}[match["unit"]]
        found = one if match["n"] == "1" else self._several(match["n"], one, several)
        shortened = match["unit"].isalpha() and match["unit"].istitle()
        return found + (_last_stop(match) if shortened else full_stop(match))

    def _money(self, match: re.Match[str]) -> str:
        one, several = self._w.currencies[match["sign"]]
        amount = re.sub(r"^(\d{1,3}),(\d{3})$", r"\1.\2", match["n"])  # no money has 3 decimals
        amount = re.sub(r"\.(\d\d)$", r",\1", amount)
        if large := match.groupdict().get("large"):
            return self._several(amount, one, several, self._large(large))
        whole, _, part = amount.rpartition(",") if "," in amount else (amount, "", "")
        if len(part) != 2 or (whole == "0" and match["sign"] not in _WITH_CENTS):
            return one if amount == "1" else self._several(amount, one, several)
        found = one if whole == "1" else self._several(whole, one, several)
        cents = self._cardinal(int(part))
        if whole == "0" and int(part):
            return f"{cents} {self._w.cents_alone}"
        return found if part == "00" else f"{found}{self._w.cents}{cents}"

    def _large(self, word: str) -> str:
        names = self._w.units.get(word.rstrip("."))
        return names[1] if names else word

    def _rate(self, match: re.Match[str]) -> str:
        """ "4 €/kg" -> "vier Euro pro Kilogramm"."""
        names = {**self._w.units, **self._w.currencies}
        one, several = names[match["of"]]
        amount = one if match["n"] == "1" else self._several(match["n"], one, several)
        if count := match["count"]:
            return f"{amount} {self._w.per} {self._several(count, *names[match['unit']])}"
        each = re.split(r"[ ']", names[match["unit"]][0], maxsplit=1)[1]
        return f"{amount} {self._w.per} {each}"

    def _phone(self, match: re.Match[str]) -> str:
        if len(re.findall(r"\d", match[0])) < _FEWEST_DIGITS_OF_PHONES:
            return match[0]
        plus = f"{self._w.signs['+']} " if match[0].startswith("+") else ""
        return plus + ", ".join(self._digits(group) for group in re.findall(r"\d+", match[0]))

    def _grouped(self, match: re.Match[str]) -> str:
        """Digits in groups that are not those of a large number."""
        large = re.fullmatch(r"\d{1,3}(?:\s\d{3})+", match[0])
        return match[0] if large or not re.search(r"\d{3}", match[0]) else self._phone(match)

    def _spelled(self, match: re.Match[str]) -> str:
        words = "".join(f" {self._w.address[s]} " if s in self._w.address else s for s in match[0])
        return " ".join(words.split())

    # -- all of them

    def rules(self) -> list[Sequence[Rule]]:
        """In the order in which they apply."""
        return [
            self._abbreviations(),
            self._roman_numerals(),
            self._fractions(),
            self._dates(),
            self._times(),
            self._phones(),
            self._ordinals(),
            self._ranges(),
            self._amounts(),
            self._numbers(),
            self._signs(),
        ]

    def _abbreviations(self) -> Sequence[Rule]:
        short, numbered = _either_case(self._w.abbreviations), _either_case(self._w.numbered)
        titles = _either_case(self._w.titles)
        title = rf"(?:{_any_of(titles)})\s+"
        street = {"de": "straße", "nl": "straat"}.get(self._language)
        hosts = "com|org|net|de|fr|es|it|eu|io"
        return (
            *weekdays(self._language, self._w.to, self._w.signs["&"]),
            rule(r"(?<=\d\.)(?=[OU]G\b)", " "),
            *([rule(r"(?<=[a-zäöüß])str\.(?!\w)", street)] if street else []),
            rule(
                rf"(?<![\w.])({_any_of(short)})(?![^\W\d])",
                lambda m: short[m[1]] + (full_stop if m[1] in _AT_ENDS else _last_stop)(m),
            ),
            rule(
                rf"(?<![\w.])({_any_of(titles)})\s+(?=(?:{title})*(?:d\w{{1,4}}\s(?:l[ao]s?\s)?)?[A-ZÄÖÜÉÀÁÓ])",
                lambda m: f"{titles[m[1]]} ",
            ),
            rule(r"(?<!\w)'(?=\d\d)", ""),
            rule(r"(\bAbs(?:\.|atz)\s?\d+[a-z]?,?\s)S\.\s?(?=\d)", r"\1Satz "),
            rule(
                rf"(?<![\w.])(?!(?<=\d\s)(?:{_any_of(self._w.units)})\.)"
                rf"({_any_of(numbered)}):?\s?(?=[\d(+]|(?:[IVX]{{2,}}|[VX])\b)",
                lambda m: f"{numbered[m[1]]} ",
            ),
            rule(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", self._spelled),
            rule(rf"(?<![\w@.])(?:[A-Za-z0-9][\w-]*\.)+(?:{hosts})\b", self._spelled),
        )

    def _roman_numerals(self) -> Sequence[Rule]:
        """Only where a number is wanted: "MIX" is none."""
        return (
            rule(rf"\b({self._w.counted})\s({_ROMAN})\b", lambda m: f"{m[1]} {roman(m[2])}"),
            rule(
                rf"\b({_ROMAN})(?:{self._w.nth})",
                lambda m: str(self._w.numbers.to_ordinal(roman(m[1]))),
            ),
            rule(
                rf"\b([A-ZÉ][a-zà-ÿ]+)\s(?![IVX]\b)({_ROMAN})\b(\.)?(?!\w)",
                self._ruler,
            ),
        )

    def _fractions(self) -> Sequence[Rule]:
        parts = _any_of(_SIGNS_OF_PARTS)
        return (
            rule(rf"(?<![\d/.,])({parts})(?![\d/.,])", lambda m: _SIGNS_OF_PARTS[m[1]]),
            rule(r"(?<=\d),[-–—]+(?!\d)", ""),
            rule(r"(?<=\d)\s?([½¼¾])", lambda m: _DECIMALS_OF[m[1]]),
        )

    def _dates(self) -> Sequence[Rule]:
        before, day = r"(?P<before>\b[^\W\d_]+\s)?", r"(?P<day>[12]\d|3[01]|0?[1-9])"
        year = r"(?P<year>1\d{3}|20\d\d)"
        shorter = {m[:n] for m in self._w.months for n in range(3, len(m))}
        months = rf"{_any_of(self._w.months)}|(?:{_any_of(shorter | {*self._w.short_months})})\."
        at = rf"\b({self._w.at})\s"
        return (
            rule(
                rf"{at}(\d\d?)\.([0-5]\d)(?!\d|\.\d)(?:(\s?[–-]\s?\d\d?)\.([0-5]\d))?",
                lambda m: f"{m[1]} {m[2]}:{m[3]}" + (f"{m[4]}:{m[5]}" if m[4] else ""),
            ),
            rule(
                rf"(?P<before>\b(?:{self._w.on})\s){day}/(?P<month>1[0-2]|0?[1-9])(?![\d/])",
                self._numeric_date,
            ),
            rule(
                rf"{before}\b{year}-(?P<month>[01]\d)-(?P<day>[0-3]\d)\b",
                self._numeric_date,
            ),
            rule(
                rf"{before}(?<![\d.,/])\b{day}(?P<sep>[./-])(?P<month>1[0-2]|0?[1-9])"
                r"(?:(?P=sep)(?P<year>1\d{3}|20\d\d|\d\d)\b|\.(?=\s|$))(?![\d/])",
                self._numeric_date,
            ),
            rule(
                rf"{before}\b(?:(?P<first>\d\d?)(?:\.|er|º)?\s?(?P<link>[-–—/]|und|bis|oder)\s?)?"
                rf"{day}(?:\.|er|º|°)?\s(?:de\s)?(?P<month>{months})(?!\w)"
                rf"(?:\s(?:del?\s)?{year}\b)?",
                self._named_date,
                any_case=True,
            ),
        )

    def _phones(self) -> Sequence[Rule]:
        return (
            rule(r"(?<![\w+.,])(?<!\d\s)(?:\+|0)\d*(?:[\s/.-]{1,3}\d+)+(?!\w)", self._phone),
            rule(
                r"(?<![\w.,])(?:\+\d{1,3}\s?)?\((?!(?:1\d|20)\d\d\))\d{2,4}\)\s?"
                r"(?!\d{1,3}(?:[\s.]\d{3})+(?!\d))\d{3,8}(?:[\s-]\d{2,4})*"
                r"(?![\w%€$]|[.,]\d|\s[\d%€$])",
                self._phone,
            ),
            rule(r"(?<![\w.,+-])\d{1,7}(?:-\d{1,7}){2,6}(?![\w-]|[.,]\d)", self._phone),
            rule(rf"(?<![\w.,+])(?:{self._w.phone})(?!\s?[\w%€$]|[.,]\d)", self._phone),
            rule(r"(?<![\w.,+])\d{2,3}(?:\s\d{2,7}){1,4}(?!\s?[\w%€$]|[.,]\d)", self._grouped),
            rule(r"(?<![\w.,:])(?<!\d\s)0\d+(?![\d.,:]*\d)", lambda m: self._digits(m[0])),
        )

    def _times(self) -> Sequence[Rule]:
        hour, minute = r"(?<![\d.,:])(?P<hour>\d\d?)", r"(?P<minute>[0-5]\d)"
        word = self._w.hour_word
        before = rf"\d\d?(?:[:.h]\s?[0-5]\d)?(?:{word})?"
        after = rf"\d\d?(?::[0-5]\d|[.h]\s?[0-5]\d(?={word})|{word})"
        link = rf"(?:\s?[–—-]\s?|\s{self._w.to}\s)"
        span = rule(
            rf"(?<![\d.,:-])({before}){link}(?={after}(?![:\d-]))",
            lambda m: f"{m[1].replace('.', ':')} {self._w.to} ",
        )
        spans = rule(
            rf"(?<![\d.,:-])(\d\d?)\.(00|15|30|45){link}(\d\d?)\.(00|15|30|45)(?!\d|[.,]\d|\s?[^\W_]|\s?[€$%])",
            rf"\1:\2 {self._w.to} \3:\4",
        )
        clock = rule(rf"{hour}:{minute}(?:{word})?(?![:\d])", self._time)
        if self._w.hour == "{hour}":  # "15 h" is how long something takes
            return (span, spans, rule(rf"{hour}\.{minute}{word}", self._time), clock)
        return (
            *([rule(_OPEN + r"\s?h\b", r"\1 Uhr")] if self._w is GERMAN else []),
            span,
            spans,
            clock,
            rule(rf"{hour}\.{minute}{word}", self._time),
            rule(rf"{hour}{word}\s?{minute}?(?!\w)", self._time),
        )

    def _ordinals(self) -> Sequence[Rule]:
        if self._w is GERMAN:
            articles = "|".join((*_ENDS_IN_E, *_ENDS_IN_EN))
            twice = r"(?:(\d{1,4})\.\s?([-–/]|und|bis|oder)\s?)?(\d{1,4})\."
            pattern = rf"\b((?:{articles})\s){twice}(?=\s[^\W\d_])"
            return (
                rule(pattern, self._german_ordinal, any_case=True),
                rule(
                    rf"(?<![\w.,]){twice}\s(?=({_any_of(COUNTED_NOUNS)})\b)",
                    self._nth,
                ),
            )
        return (rule(rf"\b(\d+)({_any_of(self._w.ordinals)})(?!\w)", self._ordinal),)

    def _ranges(self) -> Sequence[Rule]:
        money = _any_of(self._w.currencies)
        amount = rf"(?:{money})?\s?{_N}\s?(?:{_any_of(self._w.units)}|{money})?"
        return (
            rule(r"(?<=\d)\s?[x×]\s?(?=\d)", f" {self._w.signs['×']} "),
            rule(rf"(?<=\d)\s?[x×](?!\w){NO_FACTOR}", f" {self._w.times} "),
            minus(self._w.minus),
            rule(rf"(?<![^\s(=×÷+*/^<>≈~\"'])[-−](?=(?:{money})?\d)", f"{self._w.minus} "),
            rule(rf"(?<=\d)\s+[-−]\s+(?=\d)(?!{amount}\s?[^\W\d_]{{2}})", f" {self._w.minus} "),
            rule(
                rf"(?<![\w.,-])({amount})\s?[–—-]\s?(?=(?:{money})?\s?{_N}(?![-–]))",
                rf"\1 {self._w.to} ",
            ),
        )

    def _amounts(self) -> Sequence[Rule]:
        units, money = _any_of(self._w.units), _any_of(self._w.currencies)
        return (
            rule(
                rf"(?<![\w.,])(?P<n>{_N})\s?(?!(?:{units})(?![\w/]))(?P<of>{units}|{money})/(?:(?P<count>\d+)\s?)?(?P<unit>{units})(?!\w)",
                self._rate,
            ),
            rule(
                rf"(?<![\w.,])(?P<n>{_N})\s?(?:(?P<unit>{units})|(?P<sign>{money}))/(?=[^\W\d_]{{3}})",
                lambda m: f"{(self._amount if m['unit'] else self._money)(m)} {self._w.per} ",
            ),
            rule(rf"(?<![\w.,])(?P<n>{_N})\s?(?P<sign>{money})(?!\w)", self._money),
            rule(
                rf"(?<!\w)(?P<sign>{money})\s?(?P<n>{_N})(?:\s?(?P<large>{_LARGE}))?(?!\w|[.,]\d)",
                self._money,
            ),
            rule(
                rf"(?<![\w.,])(?P<n>{_N})[\s\u202f-]?(?P<unit>{units})\.?(?![\w²³/°])",
                self._amount,
            ),
        )

    def _numbers(self) -> Sequence[Rule]:
        return (
            rule(r"(?P<before>\bv|\b[Vv]ersi\w+\s)(?P<n>\d+(?:\.\d+)+)(?!\w)", self._dotted),
            rule(r"(?P<before>(?<![\w.,]))(?P<n>\d+(?:\.\d+){2,})(?!\w|,\d)", self._dotted),
            rule(r"(?<![\d:])(\d{1,3}):(?=\d{1,3}(?![:\d]))", rf"\1 {self._w.ratio} "),
            *self._german_compounds(),
            *(rule(rf"(?<![\w.,])1\s(?={before})", one) for before, one in self._w.ones.items()),
            rule(rf"(?<![\d.,]){_N}(?!\d)", self._plain),
            rule(r"\d+", lambda m: f" {self.number(m[0])} "),
        )

    def _german_compounds(self) -> Sequence[Rule]:
        """The hyphen and the digits of "20-jährig" are one word."""
        if self._w is not GERMAN:
            return ()
        return (rule(r"(?<![\w.,])(\d{1,4})-?(ern?|[a-zäöü]{3,})(?!\w)", self._joined),)

    def _signs(self) -> Sequence[Rule]:
        several = {**self._w.units, **self._w.currencies}
        alone = {sign: names[1] for sign, names in several.items() if not sign[0].isalpha()}
        words = self._maths | self._w.signs | alone
        return tuple(
            rule(rf"\s*{re.escape(sign)}(?!\w)\s*|\s*{re.escape(sign)}(?=\w)", f" {word} ")
            for sign, word in sorted(words.items(), key=lambda pair: -len(pair[0]))
        )


def _either_case(short: dict[str, str]) -> dict[str, str]:
    """With those that may begin a sentence or be written small."""
    longer = {key: said for key, said in short.items() if len(key) > _SMALL}
    capitals = {
        key[0].upper() + key[1:]: said[0].upper() + said[1:] for key, said in longer.items()
    }
    small = {key[0].lower() + key[1:]: said for key, said in longer.items()}
    return capitals | small | short


def _last_stop(match: re.Match[str]) -> str:
    """The full stop of an abbreviation at the end of the text."""
    after = match.string[match.end() :]
    return "." if match[0].endswith(".") and not after.strip(" \"')") else ""


# --- German ordinals ------------------------------------------------------------------------------

_ENDS_IN_E = ("der", "die", "das", "eine", "ins", "ans", "jede", "diese")
_ENDS_IN_EN = (
    *("am", "vom", "zum", "zur", "im", "beim", "dem", "den", "des", "ab", "seit", "bis", "vor"),
    *("einer", "einem", "einen", "meinem", "meinen", "deinem", "deinen", "ihrem", "seinem", "nach"),
)

_OPEN = (
    r"(\b(?:\w+tag|Mittwoch|[Tt]äglich|[Uu]m|[Aa]b),?\s(?:von\s)?"
    r"\d\d?(?:[:.]\d\d)?(?:\s?[-–—]\s?\d\d?(?:[:.]\d\d)?)?)"
)
"""Before an "h" that is not how long something takes."""

COUNTED_NOUNS = {
    **dict.fromkeys(("Stock", "Platz", "Rang", "Bezirk", "Akt", "Teil", "Tag"), "r"),
    **dict.fromkeys(("Advent", "Spieltag", "Weltkrieg", "FC"), "r"),
    **dict.fromkeys(("Obergeschoss", "Untergeschoss", "Kapitel", "Jahrhundert", "Mal"), "s"),
    **dict.fromkeys(("Quartal", "Semester"), "s"),
    **dict.fromkeys(("Etage", "Klasse", "Runde", "Stufe", "Auflage", "Liga"), ""),
    **dict.fromkeys(("Bundesliga", "Halbzeit", "Hälfte", "Staffel"), ""),
}
"""Nouns that are counted without an article -> what the ordinal ends in."""


def _inflected(ordinal: str, before: str) -> str:
    """ "dritte", with the ending that the word before it asks for."""
    word = before.strip().lower()
    if word in _ENDS_IN_E:
        return ordinal
    return f"{ordinal}n" if word in _ENDS_IN_EN else f"{ordinal}r"
