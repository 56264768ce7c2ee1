"""English text as it is said: numbers, dates, times, money, units and signs become words. Pure.

English writes them in ways of its own (1,234.5, 3/4, Nov 21, 3 pm), so its rules are its own; other
languages share those of ``worded``.
"""

from __future__ import annotations

from pipeline.spoken.english.abbreviations import ABBREVIATIONS, ROMAN_NUMERALS
from pipeline.spoken.english.addresses import ADDRESSES, CODES, PHONES, VERSIONS
from pipeline.spoken.english.arithmetic import FRACTIONS, MINUS, NUMBERS, RANGES, SUMS
from pipeline.spoken.english.calendar import DATES, TIMES, YEARS
from pipeline.spoken.english.money import MONEY
from pipeline.spoken.english.units import UNITS
from pipeline.spoken.punctuation import PAUSES, TYPED_GAPS, TYPOGRAPHY, grouping
from pipeline.spoken.rules import rule
from pipeline.spoken.weekdays import weekdays

_SIGNS = (
    rule(r"\b(he|she|him|his|her|they|yes|on|true|this|day)/(?=[a-z])", r"\1 or ", any_case=True),
    rule(r"\s*&\s*", " and "),
    rule(r"(?<=[\w.])@(?=\w)", " at "),
    rule(r"\s@\s", " at "),
    rule(r"%", " percent"),
    rule(r"§§\s?", "sections "),
    rule(r"§\s?", "section "),
    rule(r"¶\s?", "paragraph "),
    rule(r"№\s?", "number "),
    rule(r"\$(?=\w)|(?<=\w)\$", " dollars "),
    rule(r"€", " euros "),
    rule(r"£", " pounds "),
    rule(r"°", " degrees "),
)  # fmt: skip


RULES = (
    *TYPOGRAPHY,
    *grouping(f"{TYPED_GAPS} ", ",", "."),
    *ABBREVIATIONS,
    *weekdays("en"),
    *ROMAN_NUMERALS,
    *(*ADDRESSES, *DATES, *PHONES, *VERSIONS, *MINUS, *CODES),
    *(*YEARS, *RANGES, *TIMES, *FRACTIONS, *MONEY, *UNITS, *SUMS, *NUMBERS, *_SIGNS),
    *PAUSES,
)
