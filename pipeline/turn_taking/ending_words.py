"""What the words before a pause say about whether the speaker is done. English; pure.

``ending`` names the one clue that the words give; ``LAST_WORDS`` says how much it counts.
"""

from __future__ import annotations

import re
from typing import Literal

Clue = Literal[
    "nothing",
    "one-word answer",
    "short answer",
    "few words",
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
    "few words": 0.0,
    "question": 0.3,
    "statement": 0.0,
    "filler": -1.0,
    "leaning word": -0.5,
    "comma": -0.8,
    "unfinished": 0.0,
}
"""Log odds that each clue adds for the turn being over."""

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ANSWERS = _set("""
    yes yeah yep yup no nope nah okay ok sure right fine good great thanks please maybe perhaps
    never always nothing stop wait hello hi hey bye goodbye sorry pardon what why who when where how
    exactly correct wrong true false absolutely definitely reachy continue next again enough cancel
""")
_FILLERS = _set("um uh er erm uhm hmm hm mm ah")
_OPENERS = _set("well so like")
"""Fillers where nothing stands before them, or no full stop behind."""
_FULL = frozenset(".?!")
_LEANING_ENDS = _set("""
    i you he she it we they this these those that in on at by over under through before after about
    do does did have has had is are was were am be will would can could should may might must don't
    doesn't didn't can't won't isn't aren't wasn't who when more most too some any no as than since
    for with to
""")
"""Words that lean on the next one, and yet also end sentences."""
_LEANING = _LEANING_ENDS | _set("""
    a an the my your his her its our their every each and or but because if while although though
    unless until which whose of from without into onto between during towards via per been being
    shall very really quite i'm you're we're they're he's she's it's i'll you'll we'll let's
""")
_SHORT_WORDS = 3
_FEW_WORDS = 2


def ending(text: str, asked: str = "") -> Clue:
    """What the end of ``text`` is; ``asked`` is what the assistant said last."""
    words = [word.lower() for word in _WORD.findall(text)]
    mark = text.rstrip("\"'”’) ")[-1:] if text.strip() else ""
    if not words:
        return "nothing"
    if len(words) == 1 and words[0] in _ANSWERS:
        return "one-word answer"
    if words[-1] in _FILLERS or (words[-1] in _OPENERS and (mark not in _FULL or words[1:] == [])):
        return "filler"
    if _leans(words[-1], mark):
        return "leaning word"
    if mark in {",", "…", "-", "—", ":", ";"} or text.rstrip().endswith("..."):
        return "comma"
    if asked.rstrip().endswith("?") and len(words) <= _SHORT_WORDS:
        return "short answer"
    if len(words) <= _FEW_WORDS:
        return "few words"
    if mark == "?":
        return "question"
    return "statement" if mark in {".", "!"} else "unfinished"


def _leans(word: str, mark: str) -> bool:
    """Whether more must follow. The recogniser puts a full stop at the end of nearly everything,
    but words that also end sentences ("What is it?") count only without one."""
    if word not in _LEANING:
        return False
    return mark not in _FULL or word not in _LEANING_ENDS
