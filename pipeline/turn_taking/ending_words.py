"""Judges from the words before a pause whether the speaker is done. Pure.

``ending`` names the one clue that the words contain; ``LAST_WORDS`` says how much it counts.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from pipeline.hearing.plausibility import without_drawl
from pipeline.settings import Lexicon
from pipeline.spoken.language import UNSPACED
from pipeline.spoken.punctuation import asks
from pipeline.turn_taking import tuning

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
    "comma": -0.3,
    "unfinished": 0.0,
}
"""Log odds that each clue adds for the turn being over. Fitted together with ``tuning.READ``. The
recogniser writes a comma where the voice stays up, and voices do so after requests, too."""

_MARKS = str.maketrans("。．｡।۔؟、،؛—’", ".....?,,;-'")
"""Marks of other scripts, besides those that NFKC turns into Western ones ("？", "，", "…"), and
the apostrophe that many recognisers write."""
_GREEK_MARKS = str.maketrans(";·", "?;")
_QUOTES = "\"'”’»」』) "
_WITHIN_WORDS = "'’-"
_UNSPACED = re.compile(f"[{UNSPACED}]{{1,2}}")
"""Two such letters count as one word."""

_FULL = frozenset(".?!")
_SHORT_WORDS = 3
_FEW_WORDS = 2


def ending(text: str, lexicon: Lexicon, question: str = "", complete: float | None = None) -> Clue:
    """The clue at the end of ``text``. ``question``: the assistant's last words. ``complete``: the
    language model's log odds that the words are complete, if known.

    A recogniser writes a mark wherever the sound stops ("Could you help me to?"). So a mark means
    nothing after one or two words, or if the model finds the words open: slightly open is enough
    after a word that may lean; otherwise, and in a short answer ("I do."), they must be plainly so.
    """
    text = _plain(text, lexicon.language)
    words = _words(text)
    end = text.rstrip(_QUOTES)
    mark = "..." if end.endswith("...") else end[-1:]
    if not words:
        return "nothing"
    if len(words) == 1 and words[0] in lexicon.answers:
        return "one-word answer"
    begins = words[-1] in lexicon.starters and (mark not in _FULL or len(words) == 1)
    if begins or _is_filler(words[-1], lexicon):
        return "filler"
    answers = asks(question) and len(words) <= _SHORT_WORDS
    may_lean = words[-1] in lexicon.leaning_ends
    if mark in _FULL and len(words) > 1:
        least = tuning.OPEN if may_lean and not answers else tuning.PLAINLY_OPEN
        too_few = len(words) <= _FEW_WORDS and not answers
        if too_few or (complete is not None and complete < least):
            mark = ""
    if words[-1] in lexicon.leaning or (may_lean and mark not in _FULL):
        return "leaning word"
    if mark in {",", "-", ":", ";", "..."}:
        return "comma"
    if answers:
        return "short answer"
    if len(words) <= _FEW_WORDS:
        return "one word" if len(words) == 1 else "two words"
    if may_lean and complete is None:
        return "unfinished"
    if mark == "?":
        return "question"
    return "statement" if mark in {".", "!"} else "unfinished"


def _is_filler(word: str, lexicon: Lexicon) -> bool:
    """Whether it is one, perhaps drawn out: "ummm"."""
    plain = without_drawl(word)
    return word in lexicon.fillers or (
        plain != word and plain in map(without_drawl, lexicon.fillers)
    )


def _plain(text: str, language: str) -> str:
    """``text`` with Western marks."""
    text = unicodedata.normalize("NFKC", text).strip().translate(_MARKS)
    return text.translate(_GREEK_MARKS) if language == "el" else text


def _words(text: str) -> list[str]:
    """The words of ``text``, in lower case."""
    letters = "".join(
        each if each in _WITHIN_WORDS or unicodedata.category(each)[0] in "LMN" else " "
        for each in text.lower()
    )
    words = _UNSPACED.sub(r" \g<0> ", letters).split()
    return [word for each in words if (word := each.strip(_WITHIN_WORDS))]
