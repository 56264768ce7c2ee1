"""Behind which words a full stop ends no sentence, by language. Pure."""

from __future__ import annotations

from pipeline.spoken.weekdays import short_days
from pipeline.spoken.wording import WORDINGS, Wording
from pipeline.spoken.words import words_of


def _months(wording: Wording) -> set[str]:
    """All short forms of the months, without the full stop."""
    starts = {month[:n] for month in wording.months for n in range(3, len(month))}
    return {month.lower() for month in starts | {*wording.short_months}}


def _shortened(language: str) -> frozenset[str]:
    wording = WORDINGS[language]
    tables = (wording.abbreviations, wording.titles, wording.numbered, wording.currencies)
    units = [f"{unit}." for unit in wording.units if unit.istitle()]
    parts = (part for table in (*tables, units) for short in table for part in short.split())
    words = {part.rstrip(".").lower() for part in parts if part.endswith(".")}
    return frozenset(words | {*words_of(language)["unspoken"].split()})


def _counted(language: str) -> frozenset[str]:
    titles = WORDINGS[language].titles if language in WORDINGS else ()
    days = frozenset(short.lower() for short in short_days(language))
    return (days | {*words_of(language)["words_too"].split()}) - {
        title.rstrip(".").lower() for title in titles
    }


COMPOUNDS = {language: tuple(wording.compounds) for language, wording in WORDINGS.items()}
"""By language, how words end that are shortened."""
COUNTED = {language: _counted(language) for language in (*WORDINGS, "en")}
"""By language, the words behind which a full stop ends no sentence if a number or a small letter
follows."""
SHORTENED = {
    language: (_shortened(language) | _months(wording)) - COUNTED[language]
    for language, wording in WORDINGS.items()
}
"""By language, the words behind which a full stop ends no sentence, or may not."""
