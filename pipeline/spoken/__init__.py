"""Written text -> what a voice says.

``speakable`` takes out what is only for eyes (``markup``) and writes numbers, dates, units and
signs as the words that are said: in English (``english``), German, French, Spanish, Italian,
Portuguese and Dutch (``worded``). In other languages that is left to the voice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.spoken import english, worded
from pipeline.spoken.markup import LINE_START, plain
from pipeline.spoken.rules import Rule, apply, rule
from pipeline.spoken.signs import UNSAID
from pipeline.spoken.wording import WORDINGS

_WITHOUT_WORDS = (rule(UNSAID.pattern, ""), rule(r"\s+", " "), rule(r"\.? \.(?!\w)", "."))
"""The rules of a language that is left to the voice."""


def speakable(text: str, language: str = "en", before: str = LINE_START) -> str:
    """``text`` as it is said in ``language``, ISO 639-1, on one line; empty if it has no words.

    ``before`` is the last sign before ``text``, where it is a part of more.
    """
    words = apply(_rules(language), plain(text, before, language))
    return " ".join(words.split()) if re.search(r"\w", words) else ""


def _rules(language: str) -> Sequence[Rule]:
    """In the order in which they apply, the more particular ones first: what one of them has made
    into words, the next ones leave alone."""
    if language == "en":
        return english.RULES
    return worded.rules(language) if language in WORDINGS else _WITHOUT_WORDS
