"""Do words spoken over an answer only agree with it, or ask for more of it? Pure. For the phrases
of a language see ``pipeline.settings.Lexicon``."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from pipeline.hearing.recognition import without_accents
from pipeline.settings import Lexicon
from pipeline.turn_taking import tuning


def agree(words: Sequence[str], lexicon: Lexicon, *, so_far: bool = False) -> bool:
    """Whether the words are backchannels, encouragements, and continuations with what stands around
    them, one after the other; ``so_far``: or the beginning of one may come last."""
    few = len(words) <= tuning.MOST_AGREEING_WORDS
    return few and _covers(tuple(map(bare, words)), lexicon, so_far)


def after_agreement(words: Sequence[str], lexicon: Lexicon) -> list[str]:
    """The words behind the backchannels with which speech begins; at least the last one, although
    it may be like a backchannel ("untrue")."""
    agreeing = itertools.takewhile(lambda word: _is_backchannel(word, lexicon), words[:-1])
    return list(words[len([*agreeing]) :])


def _is_backchannel(word: str, lexicon: Lexicon) -> bool:
    if is_among(word, (*lexicon.commands, *lexicon.openers)):
        return is_among(word, lexicon.backchannels)  # English "what" is like "whoa"
    return may_be_among(word, lexicon.backchannels) or (
        _short(bare(word)) in _shortened(lexicon.backchannels)
        and _short(bare(word)) != bare(word)
        and not is_among(word, lexicon.answers)  # German "nee" is no "ne"
    )


def _short(word: str) -> str:
    """Without what is drawn out: "oh" for "ohhh", "ha" for "hahaha"."""
    return re.sub(r"(.+?)\1+", r"\1", word)


@lru_cache(16)
def _shortened(words: tuple[str, ...]) -> frozenset[str]:
    return frozenset(_short(bare(word)) for word in words)


_State = Literal["idle", "due", "encouraged", "continued"]
"""Of words that may agree: whether a preface needs a continuation, and what has come."""
_Slot = frozenset[str]
"""The words in one place of a phrase; ``*ing``: any that ends so; empty: it may be left out."""


@lru_cache(256)
def _covers(words: tuple[str, ...], lexicon: Lexicon, so_far: bool) -> bool:
    """Whether phrases of the lexicon cover all words, one after the other. ``states[n]``: what may
    have come when the first ``n`` words are covered."""
    asks = frozenset(map(bare, (*lexicon.commands, *lexicon.openers)))
    states: list[set[_State]] = [{"idle"}, *(set[_State]() for _ in words)]
    for at, here in enumerate(states[:-1]):
        if here and _is_backchannel(words[at], lexicon):
            states[at + 1] |= here
        steps: tuple[tuple[tuple[str, ...], set[_State]], ...] = (
            (lexicon.prefaces, {"due"}),
            (lexicon.encouragements, here | {"encouraged"} if here - {"due"} else here),
            (lexicon.continuations, {"continued"}),
            (lexicon.additions, here & {"continued"}),
            (lexicon.names, here & {"encouraged", "continued"}),
        )
        for phrases, after in steps if here else ():
            index = _index(phrases) if after else {}
            for phrase in (*index.get(words[at], ()), *index.get("*", ())):
                lengths, begins = _lengths(phrase, words[at:], asks)
                for length in lengths:
                    states[at + length] |= after
                if begins and so_far and phrases is not lexicon.prefaces:
                    return True
    return bool(states[-1] - {"due"})


def _lengths(
    phrase: Sequence[_Slot], words: Sequence[str], asks: frozenset[str]
) -> tuple[set[int], bool]:
    """How many words the phrase may take at the beginning of ``words``, and whether all of them may
    be the beginning of it. ``asks``: the words that its ``*`` is not."""
    lengths, begins = {0}, False
    for slot in phrase:
        begins = begins or len(words) in lengths
        more = {n + 1 for n in lengths if n < len(words) and _fits(words[n], slot, asks)}
        lengths = more | lengths if "" in slot else more
    return lengths - {0}, begins


def _fits(word: str, slot: _Slot, asks: frozenset[str]) -> bool:
    ends = tuple(each[1:] for each in slot if each.startswith("*"))
    return word in slot or (word not in asks and word.endswith(ends))


@lru_cache(64)
def _index(phrases: tuple[str, ...]) -> Mapping[str, Sequence[Sequence[_Slot]]]:
    """By the words that they may begin with; ``*``: by the end of one."""
    index: dict[str, list[Sequence[_Slot]]] = {}
    for phrase in phrases:
        texts = [bare(text).replace("(", "|").strip(")") for text in phrase.split()]
        slots = [frozenset(text.split("|")) for text in texts]
        optional = [*itertools.takewhile(lambda slot: "" in slot, slots)]
        first = frozenset[str]().union(*slots[: len(optional) + 1])
        for word in {"*" if each.startswith("*") else each for each in first}:
            index.setdefault(word, []).append(slots)
    return index


def is_among(word: str, words: Sequence[str]) -> bool:
    """Whether it is one of ``words``. Recognisers often leave accents out: "si" for "sì"."""
    return bare(word) in map(bare, words)


def may_be_among(word: str, words: Sequence[str]) -> bool:
    """Whether it is one of ``words``, or long enough to be a misheard one."""
    long = len(word) >= tuning.MISHEARD_LETTERS
    return is_among(word, words) or (long and is_like(word, words, tuning.MISHEARD))


@lru_cache(4096)
def bare(word: str) -> str:
    """Without accents and apostrophes."""
    return re.sub("['’]", "", without_accents(word))


def is_like(word: str, words: Sequence[str], alike: float) -> bool:
    """Whether it is spelt like one of ``words``; ``alike``: how much, 0 to 1."""
    return bool(difflib.get_close_matches(word, words, 1, alike))
