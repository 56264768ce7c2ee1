"""Written text -> what a voice says.

``speakable`` takes out what is only for eyes (``markup``) and writes numbers, dates, units and
signs as the words that are said: in English (``english``), German, French, Spanish, Italian,
Portuguese and Dutch (``worded``). In other languages that is left to the voice.
"""

from __future__ import annotations

import re

from pipeline.spoken import english, worded
from pipeline.spoken.markup import LINE_START, plain
from pipeline.spoken.signs import UNSAID
from pipeline.spoken.wording import WORDINGS


def speakable(text: str, language: str = "en", before: str = LINE_START) -> str:
    """What is said of ``text``, on one line; empty if nothing of it is said.

    ``language``: ISO 639-1. ``before``: the last sign before ``text``, where it is a part of more.
    """
    words = plain(text, before, language)
    if language == "en":
        words = english.said(words)
    elif language in WORDINGS:
        words = worded.said(words, language)
    else:
        words = " ".join(UNSAID.sub("", words).split())
    return words if re.search(r"\w", words) else ""
