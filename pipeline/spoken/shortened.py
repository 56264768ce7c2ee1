"""Behind which words a full stop ends no sentence, by language. Pure."""

from __future__ import annotations

from pipeline.spoken.weekdays import short_days
from pipeline.spoken.wording import WORDINGS, Wording
from pipeline.spoken.words import LANGUAGES, pairs, words_of


def _stopped(language: str, *tables: str) -> set[str]:
    """The words with a full stop in ``tables``, without it."""
    entries = " ".join(sign for key in tables for sign in pairs(words_of(language).get(key, "")))
    return {word.rstrip(".").lower() for word in entries.split() if word.endswith(".")}


def _months_and_units(wording: Wording) -> set[str]:
    """All their short forms."""
    starts = {month[:n] for month in wording.months for n in range(3, len(month))}
    units = {unit for unit in wording.units if unit.istitle()}
    return {short.lower() for short in starts | units | {*wording.short_months}}


def _shortened(language: str) -> frozenset[str]:
    short = _stopped(language, "abbreviations", "at_ends", "titles", "numbered", "currencies")
    short |= {*words_of(language)["unspoken"].split()}
    if language in WORDINGS:
        short |= _months_and_units(WORDINGS[language])
    return frozenset(short - COUNTED[language])


def _counted(language: str) -> frozenset[str]:
    days = {short.lower() for short in short_days(language)}
    words = days | {*words_of(language)["words_too"].split()}
    return frozenset(words - _stopped(language, "titles"))


COMPOUNDS = {language: tuple(wording.compounds) for language, wording in WORDINGS.items()}
"""By language, how words end that are shortened."""
COUNTED = {language: _counted(language) for language in LANGUAGES}
"""By language, the words behind which a full stop ends no sentence if a number or a small letter
follows."""
SHORTENED = {language: _shortened(language) for language in LANGUAGES}
"""By language, the words behind which a full stop ends no sentence, or may not."""
