"""Behind which words a full stop ends no sentence, by language. Pure."""

from __future__ import annotations

from pipeline.spoken.weekdays import short_days
from pipeline.spoken.wording import WORDINGS, Wording

_WORDS_TOO = {
    "de": "art",
    "en": "no nos fig art mar",
    "es": "mar",
    "fr": "art sept",
    "it": "set",
    "nl": "op",
    "pt": "mar set",
}
"""Abbreviations that are words as well, which may end a sentence."""
_UNSPOKEN = {
    "de": "verh bes abzgl univ co el tl pkg pck stk gr röm kath ev dt engl frz lat bzgl betr"
    " ehem ebd fa pfd ztr stellv vorm nachm jr sen reg"
    " abt gen präs bez gebr nachf inh",
    "es": "vd hnos cía izq depto ref hab rte tte excmo arq mons fdo cf ca jr"
    " gob pte pdte sgto cmdte abog hno univ ctra urb edo atte dir subdir",
    "fr": "mme mlle dr pr bd st ste mgr trad réf arr rég coll cie ets ibid cit"
    " gén sté univ prés vve rte",
    "it": "cav spett gent egr cit sec seg segg ind prov comm dir cell fam soc col ten jr"
    " pres serg univ ist fraz loc card rev",
    "nl": "jr sr red ned eng lat ev bldz kon gem ong burg kol luit gen dir univ wed gebr mej",
    "pt": "lda cia ltda obs ref hab arq ten alm trav lgo tlm jr"
    " pres gov cmdt maj univ adv dep depto lic rod",
}
"""Abbreviations that are left to the voice."""


def _months(wording: Wording) -> set[str]:
    """Without the full stop, as short as they can be."""
    first = {month[:n] for month in wording.months for n in range(3, len(month))}
    return {month.lower() for month in first | {*wording.short_months}}


def _shortened(language: str) -> frozenset[str]:
    wording = WORDINGS[language]
    tables = (wording.abbreviations, wording.titles, wording.numbered, wording.currencies)
    units = [f"{unit}." for unit in wording.units if unit.istitle()]
    parts = (part for table in (*tables, units) for short in table for part in short.split())
    spoken = {part.rstrip(".").lower() for part in parts if part.endswith(".")}
    return frozenset(spoken | {*_UNSPOKEN[language].split()})


def _counted(language: str) -> frozenset[str]:
    titles = WORDINGS[language].titles if language in WORDINGS else ()
    days = frozenset(short.lower() for short in short_days(language))
    return (days | {*_WORDS_TOO[language].split()}) - {
        title.rstrip(".").lower() for title in titles
    }


COUNTED = {language: _counted(language) for language in (*WORDINGS, "en")}
"""By language, the words behind which a full stop ends no sentence if a number or a small letter
follows."""
SHORTENED = {
    language: (_shortened(language) | _months(wording)) - COUNTED[language]
    for language, wording in WORDINGS.items()
}
"""By language, the words behind which a full stop ends no sentence, or may not."""
