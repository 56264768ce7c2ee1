"""Text as it is said in the languages of ``pipeline.spoken.wording``: numbers, dates
(``worded_calendar``), money and measures (``worded_amounts``), and signs become words. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from pipeline.spoken import german
from pipeline.spoken.language import SMALL_WORDS
from pipeline.spoken.numerals import INDIAN, NUMERAL, NUMERALS, ROMAN, roman
from pipeline.spoken.punctuation import PAUSES, TYPED_GAPS, TYPOGRAPHY, grouping
from pipeline.spoken.rules import Rule, any_of, full_stop, last_stop, rule, spelled
from pipeline.spoken.weekdays import weekdays
from pipeline.spoken.worded_amounts import WordedAmounts
from pipeline.spoken.worded_calendar import WordedCalendar
from pipeline.spoken.wording import GERMAN, WORDINGS
from pipeline.spoken.words import MATHS_WORDS

_FEWEST_DIGITS_OF_PHONES = 8
_NUMBER = "Nummer|nummer|número|numéro|numero"
_CODE = (
    r"\b(?:code|pin|tan|codice|código|passwor[dt]|contraseña|mot\sde\spasse|wachtwoord|plz)"
    r"(?:\s(?:ist|lautet|est|es|è|é|is|pin|número))*\s?:?\s"
)

_AT_ENDS = ("etc.", "usw.", "usf.", "u.v.m.", "ecc.", "enz.")
"""These end most of their sentences; behind others a capital may be a noun's or a name's."""
_RULERS = (
    "Afonso|Alfonso|Carlos?|Charles|Elisabett?h?a?|Emanuele|Felipe|Fernando|Ferdinand|Filips|Franz"
    "|Friedrich|Heinrich|Henri|Isabel|Jaime|João|José|Juan|Karel|Karl|Leopold|Louis|Ludwig|Luigi"
    "|Manuel|Maria|Maximilian|Napoléon|Otto|Pedro|Philippe|P[iíî]us?|P[iíî][eo]|Rudolf|Umberto|Wilhelm|Willem"
)
"""Behind these names, one letter is a number."""
_WOMAN = r"\w+a|Isabel|Elisabeth|Margarethe?|Margrethe"
_SIGNS_OF_PARTS = {"1/2": "½", "1/4": "¼", "3/4": "¾", "1/3": "⅓", "2/3": "⅔"}
_SMALL = 2
"""Characters of an abbreviation that could be a unit or a word if it had no capital: "M."."""
_DECIMALS_OF = {"½": ",5", "¼": ",25", "¾": ",75"}


@cache
def rules(language: str) -> Sequence[Rule]:
    """``language`` is one of ``WORDINGS``."""
    return _Words(language).rules()


def _regrouped(match: re.Match[str]) -> str:
    text = f"{int(match['whole'].replace(',', '')):,}{match['part']}"
    return text.translate(str.maketrans(",.", ".,"))


_COMMAS = rule(
    rf"(?<![\w.,])(?P<whole>{INDIAN}|\d{{1,3}}(?:,\d{{3}}){{2,}}|\d{{1,3}},\d{{3}}(?=\.\d))"
    r"(?P<part>(?:\.\d+)?)(?![\w,])",
    _regrouped,
)
"""12,34,567, 1,234,567 or 1,234.5: such commas divide no decimals."""


class _Words:
    """The rules of one language."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._w = WORDINGS[language]
        self._numerals = NUMERALS[language]
        self._calendar = WordedCalendar(self._w, self._numerals)
        self._amounts = WordedAmounts(self._w, self._numerals)
        names = {*self._w.numbered.values(), self._w.signs["§"], "Satz", *_NUMBER.split("|")}
        self._names = re.compile(rf"\b(?:{any_of(names)})\s?$|§\s?$")
        """What may stand before the number of a paragraph, which counts nothing."""
        self._small_words = SMALL_WORDS[language].split()

    def _plain(self, match: re.Match[str]) -> str:
        """A number that nothing else has claimed; before a noun it may count that."""
        after = re.match(r"\s([^\W\d_]+)", match.string[match.end() :])
        counts = after and after[1].lower() not in self._small_words
        counts = counts and not self._names.search(match.string[: match.start()])
        one = self._w.one_before(after[1]) if after and counts else ""
        feminine = one[:3] in ("una", "uma") and after and after[1].endswith("as")
        if re.fullmatch(r"1[1-9]\d\d", match[0]) and not feminine:
            return f" {self._numerals.year(int(match[0]))} "
        return f" {self._numerals.number(match[0], one)} "

    def _half(self, match: re.Match[str]) -> str:
        """ "½ taza" -> "media taza"."""
        counts = match[1].lower() not in self._small_words
        return f" {self._amounts.half(self._w.one_before(match[1]) if counts else '')}"

    def _ordinal(self, match: re.Match[str]) -> str:
        end, new = self._w.ordinals[match[2]]
        return re.sub(f"{end}$", new, self._numerals.ordinal(int(match[1])))

    def _ruler(self, match: re.Match[str]) -> str:
        """ "Louis XIV" -> "Louis quatorze". In German, a ruler's number has a full stop."""
        value, (before, last_ordinal) = roman(match[2]), self._w.ruler
        stop = match[3] or ""
        if value > last_ordinal or (self._w is GERMAN and not stop):
            return f"{match[1]} {self._numerals.cardinal(value)}{stop}"
        if re.match(r"\s[^\W\d_A-ZÄÖÜ]", match.string[match.end() :]):
            stop = ""
        ordinal = f"{before}{self._numerals.ordinal(value)}{stop}"
        if re.fullmatch(_WOMAN, match[1]):
            is_german = before == "der "
            ordinal = ordinal.replace("der", "die") if is_german else re.sub(r"o\b", "a", ordinal)
        return f"{match[1]} {ordinal}"

    def _dotted(self, match: re.Match[str]) -> str:
        """ "2.1.3" -> "zwei Punkt eins Punkt drei"; not of "1.234.567"."""
        if re.fullmatch(r"\d{1,3}(?:\.\d{3})+", match["n"]):
            return match[0]
        version = self._numerals.version(match["n"], self._w.address["."])
        return f"{match['before'] or ''} {version}"

    def _phone(self, match: re.Match[str]) -> str:
        if len(re.findall(r"\d", match[0])) < _FEWEST_DIGITS_OF_PHONES:
            return match[0]
        return self._numerals.phone(match[0])

    def _ratio(self, match: re.Match[str]) -> str:
        first, second = map(self._numerals.number, match.groups())
        return f"{first} {self._w.ratio} {second}"

    def _out_of(self, match: re.Match[str]) -> str:
        """ "8/10" and "7/8"; not "120/80"."""
        most = float(re.sub(r"[^\d,]", "", match[1]).replace(",", ".")) <= int(match[2])
        return f"{match[1]} {self._w.out_of} {match[2]}" if most else match[0]

    def _digit_groups(self, match: re.Match[str]) -> str:
        """Digits in groups that are not those of a large number."""
        large = re.fullmatch(r"\d{1,3}(?:\s\d{3})+", match[0])
        return match[0] if large or not re.search(r"\d{3}", match[0]) else self._phone(match)

    def _address(self, match: re.Match[str]) -> str:
        return spelled(match[0], self._w.address)

    def rules(self) -> Sequence[Rule]:
        return (
            *TYPOGRAPHY,
            *grouping(TYPED_GAPS, ".", ","),
            _COMMAS,
            *self._abbreviations(),
            *self._roman_numerals(),
            *self._fractions(),
            *self._calendar.dates(),
            *self._calendar.times(),
            *self._phones(),
            rule(rf"(?<![\w.,/])({NUMERAL})/(\d{{1,3}})(?![\w/]|[.,]\d)", self._out_of),
            *self._ordinals(),
            *self._amounts.ranges(),
            *self._amounts.amounts(),
            *self._numbers(),
            *self._signs(),
            *PAUSES,
        )

    def _abbreviations(self) -> Sequence[Rule]:
        short, numbered = _either_case(self._w.abbreviations), _either_case(self._w.numbered)
        titles = _either_case(self._w.titles)
        title = rf"(?:{any_of(titles)})\s+"
        ends = self._w.compounds
        hosts = "com|org|net|de|fr|es|it|nl|pt|ch|at|br|uk|eu|io|ai|dev|app|info|tv"
        return (
            *weekdays(self._language),
            rule(r"(?<=\d\.)(?=[OU]G\b)", " "),
            rule(rf"(?<=[a-zäöüß])({any_of(ends) or '(?!)'})\.(?!\w)", lambda m: ends[m[1]]),
            rule(
                rf"(?<![\w.])({any_of(short)})(?![^\W\d])",
                lambda m: short[m[1]] + (full_stop if m[1] in _AT_ENDS else last_stop)(m),
            ),
            rule(
                rf"(?<![\w.])({any_of(titles)})(?:\s+|(?<=\bSt)-|(?<=\bSte)-)(?=(?:{title})*(?:d\w{{1,4}}\s(?:l[ao]s?\s)?)?[A-ZÄÖÜÉÀÁÓ])",
                lambda m: f"{titles[m[1]]} ",
            ),
            rule(r"(?<!\w)'(?=\d\d)", ""),
            rule(
                r"((?:\bAbs(?:\.|atz)\s?\d+[a-z]?,?|(?:§|\bArt(?:\.|ikel))\s?\d+[a-z]?)"
                r"\s(?:N(?:r\.|ummer)\s?\d+[a-z]?\s)?)S\.\s?(?=\d)",
                r"\1Satz ",
            ),
            rule(
                rf"(?<![\w.])(?!(?<=\d\s)(?:{any_of(self._w.units)})\.)"
                rf"({any_of(numbered)}):?\s?(?=[\d(+]|(?:[IVX]{{2,}}|[VX])\b)",
                lambda m: f"{numbered[m[1]]} ",
            ),
            rule(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", self._address),
            rule(rf"(?<![\w@.])(?:[A-Za-z0-9][\w-]*\.)+(?:{hosts})\b", self._address),
        )

    def _roman_numerals(self) -> Sequence[Rule]:
        """Only where a number is wanted: "MIX" is none."""
        link = rf"(?:,\s|\s?[-–—]\s?|\s(?:{self._w.signs['&']}|{self._w.to})\s)"
        return (
            rule(
                rf"\b((?:{self._w.counted})s?\s)({ROMAN}(?:{link}{ROMAN})*)\b",
                lambda m: m[1] + re.sub("[XVI]+", lambda each: str(roman(each[0])), m[2]),
            ),
            *((german.ROMAN_ORDINAL,) if self._w is GERMAN else ()),
            rule(
                rf"\b({ROMAN}(?:{self._w.nth}))\s?[-–—]\s?(?={ROMAN}(?:{self._w.nth}))",
                rf"\1 {self._w.to} ",
            ),
            rule(
                rf"\b({ROMAN})(?:{self._w.nth})",
                lambda m: self._numerals.ordinal(roman(m[1])),
            ),
            rule(
                rf"\b(?=(?:{_RULERS})\s(?!\w\.\s[A-Z])|\w+\s(?![IVX]\b))"
                rf"([A-ZÉ][a-zà-ÿ]+)\s({ROMAN})\b(\.)?(?!\w)",
                self._ruler,
            ),
        )

    def _fractions(self) -> Sequence[Rule]:
        parts = any_of(_SIGNS_OF_PARTS)
        return (
            rule(rf"(?<![\d/.,])({parts})(?![\d/]|[.,]\d)", lambda m: _SIGNS_OF_PARTS[m[1]]),
            rule(r"\b([fgh])\(([a-z])\)", rf"\1 {MATHS_WORDS[self._language]['of']} \2"),
            rule(r"(?<![\w.,])(\d)m(\d\d)(?!\w|[.,]\d)", r"\1 m \2"),
            rule(r"(?<=\d),[-–—]+(?!\d)", ""),
            rule(r"(?<![\w.,])(\d{1,3})k(?![\w-])", r"\1.000"),
            rule(r"(?<=\d)\s?([½¼¾])", lambda m: _DECIMALS_OF[m[1]]),
        )

    def _phones(self) -> Sequence[Rule]:
        return (
            rule(
                rf"({_CODE})(\d{{3,8}})(?![\w%]|[.,:/]\d|\s?[€$%])",
                lambda m: m[1] + self._numerals.digits(m[2]),
                any_case=True,
            ),
            rule(r"(?<=\+)(\d{1,3})\s?\(0\)\s?(?=\d)", r"\1 0"),
            rule(r"(?<![\w+.,])(?<!\d\s)(?:\+|0)\d*(?:[\s/.-]{1,3}\d+)+(?!\w)", self._phone),
            rule(
                r"(?<![\w.,])(?:\+\d{1,3}\s?)?\((?!(?:1\d|20)\d\d\))\d{2,4}\)\s?"
                r"(?!\d{1,3}(?:[\s.]\d{3})+(?!\d))\d{3,8}(?:[\s-]\d{2,4})*"
                r"(?![\w%€$]|[.,]\d|\s[\d%€$])",
                self._phone,
            ),
            rule(r"(?<![\w.,+-])\d{1,7}(?:-\d{1,7}){2,6}(?![\w-]|[.,]\d)", self._phone),
            rule(rf"(?<![\w.,+])(?:{self._w.phone})(?!\s?[\w%€$]|[.,]\d)", self._phone),
            rule(r"(?<![\w.,+])\d{2,3}(?:\s\d{2,7}){1,4}(?!\s?[\w%€$]|[.,]\d)", self._digit_groups),
            rule(r"(?<![\w.,:])(?<!\d\s)0\d+(?![\d.,:]*\d)", lambda m: self._numerals.digits(m[0])),
        )

    def _ordinals(self) -> Sequence[Rule]:
        if self._w is GERMAN:
            return german.ORDINALS
        ends = any_of(self._w.ordinals)
        return (
            rule(rf"(?<=\d)({ends})\s?[-–—]\s?(?=\d+(?:{ends})(?!\w))", rf"\1 {self._w.to} "),
            rule(rf"\b(\d+)({ends})(?!\w)", self._ordinal),
        )

    def _numbers(self) -> Sequence[Rule]:
        return (
            rule(r"(?P<before>\bv|\b[Vv]ersi\w+\s)(?P<n>\d+(?:\.\d+)+)(?!\w)", self._dotted),
            rule(r"(?P<before>(?<![\w.,]))(?P<n>\d+(?:\.\d+){2,})(?!\w|,\d)", self._dotted),
            rule(rf"(?<![\d:.,])({NUMERAL}):({NUMERAL})(?![:\d])", self._ratio),
            *((german.COMPOUND,) if self._w is GERMAN else ()),
            rule(r"½(?=\s([^\W\d_]+))", self._half),
            *(rule(rf"(?<![\w.,])1\s(?={before})", one) for before, one in self._w.ones.items()),
            rule(rf"(?<![\d.,]){NUMERAL}(?!\d)", self._plain),
            rule(r"\d+", lambda m: f" {self._numerals.number(m[0])} "),
        )

    def _signs(self) -> Sequence[Rule]:
        several = {**self._w.units, **self._w.currencies}
        alone = {sign: names[1] for sign, names in several.items() if not sign[0].isalpha()}
        words = self._w.signs | alone
        return tuple(
            rule(rf"\s*{re.escape(sign)}(?!\w)\s*|\s*{re.escape(sign)}(?=\w)", f" {word} ")
            for sign, word in sorted(words.items(), key=lambda pair: -len(pair[0]))
        )


def _either_case(short: dict[str, str]) -> dict[str, str]:
    """``short`` with the forms that begin a sentence, or are written small."""
    longer = {key: words for key, words in short.items() if len(key) > _SMALL}
    capitals = {
        key[0].upper() + key[1:]: words[0].upper() + words[1:] for key, words in longer.items()
    }
    small = {key[0].lower() + key[1:]: words for key, words in longer.items()}
    return capitals | small | short
