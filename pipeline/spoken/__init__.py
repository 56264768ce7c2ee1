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
    """``text`` as it is said in ``language``, ISO 639-1, on one line; empty if it has no words.

    ``before`` is the last sign before ``text``, where it is a part of more.
    """
    words = plain(text, before, language)
    if language == "en":
        words = english.in_words(words)
    elif language in WORDINGS:
        words = worded.in_words(words, language)
    else:
        words = re.sub(r"\.? \.(?!\w)", ".", " ".join(UNSAID.sub("", words).split()))
    return words if re.search(r"\w", words) else ""
