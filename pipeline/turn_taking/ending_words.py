"""Judges from the words before a pause whether the speaker is done. Pure.

``ending`` names the one clue that the words contain; ``LAST_WORDS`` says how much it counts.
"""

from __future__ import annotations

import re
from typing import Literal

from pipeline.settings import Lexicon

Clue = Literal[
    "nothing",
    "one-word answer",
    "short answer",
    "one word",
    "two words",
    "question",
    "statement",
    "filler",
    "leaning word",
    "comma",
    "unfinished",
]

LAST_WORDS: dict[Clue, float] = {
    "nothing": 0.8,
    "one-word answer": 0.6,
    "short answer": 0.5,
    "one word": 0.0,
    "two words": 0.0,
    "question": 1.0,
    "statement": 0.1,
    "filler": -1.0,
    "leaning word": -0.5,
    "comma": -0.4,
    "unfinished": 0.0,
}
"""Log odds that each clue adds for the turn being over. Fitted together with ``tuning.READ``. The
recogniser writes a comma where the voice stays up, and voices do so after requests, too."""

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


_FULL = frozenset(".?!")
_SHORT_WORDS = 3
_FEW_WORDS = 2


def ending(text: str, lexicon: Lexicon, asked: str = "") -> Clue:
    """The clue at the end of ``text``; ``asked``: what the assistant said last."""
    words = [word.lower() for word in _WORD.findall(text)]
    mark = text.rstrip("\"'”’) ")[-1:] if text.strip() else ""
    if not words:
        return "nothing"
    if len(words) == 1 and words[0] in lexicon.answers:
        return "one-word answer"
    begins = words[-1] in lexicon.starters and (mark not in _FULL or len(words) == 1)
    if begins or words[-1] in lexicon.fillers:
        return "filler"
    answers = asked.rstrip().endswith("?") and len(words) <= _SHORT_WORDS
    alone = 1 < len(words) <= _FEW_WORDS and not answers
    if _leans(words[-1], "" if alone else mark, lexicon):
        return "leaning word"
    if mark in {",", "…", "-", "—", ":", ";"} or text.rstrip().endswith("..."):
        return "comma"
    if answers:
        return "short answer"
    if len(words) <= _FEW_WORDS:
        return "one word" if len(words) == 1 else "two words"
    if mark == "?":
        return "question"
    return "statement" if mark in {".", "!"} else "unfinished"


def _leans(word: str, mark: str, lexicon: Lexicon) -> bool:
    """Whether more must follow. Words that also end sentences ("What is it?") count only without a
    full stop, although the recogniser puts one after nearly everything. After two words ("Could
    you.") the full stop means nothing."""
    return word in lexicon.leaning or (word in lexicon.leaning_ends and mark not in _FULL)
