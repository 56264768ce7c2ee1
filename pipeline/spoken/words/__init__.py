"""The words of each language, from ``LANGUAGE.yaml`` beside this.

``comma``: what is said before decimals; ``maths``: signs and functions; ``letters``: Greek letters
with a name of their own; ``days``: of the week, short and long by turns; ``words_too``:
abbreviations that are words as well, which may end a sentence; ``unspoken``: those that are left to
the voice. All others are the fields of ``pipeline.spoken.wording.Wording``; English has some of
them and those of its own modules, German also those of ``german``. A table is written as
``sign = word; ...``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

LANGUAGES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.yaml")))


@cache
def words_of(language: str) -> Mapping[str, Any]:
    """Empty for a language without a file."""
    if language not in LANGUAGES:
        return {}
    words: Mapping[str, Any] = YAML(typ="safe").load(
        (Path(__file__).parent / f"{language}.yaml").read_text(encoding="utf-8")
    )
    return words


def english_words(key: str) -> frozenset[str]:
    """The English words of one entry."""
    return frozenset(words_of("en")[key].split())


def pairs(text: str) -> dict[str, str]:
    """Parse ``sign = word; ...``."""
    entries = (entry.partition(" = ") for entry in text.strip().split("; "))
    return {sign: word for sign, _, word in entries}


def table(text: str) -> dict[str, tuple[str, str]]:
    """Parse ``signs = one | several; ...``: each sign with its singular and plural."""
    names_of: dict[str, tuple[str, str]] = {}
    for signs, names in pairs(text).items():
        one, _, several = names.partition(" | ")
        names_of |= dict.fromkeys(signs.split(), (one, several))
    return names_of


def by_turns(text: str) -> dict[str, str]:
    """Parse ``short long short long ...``: the long form of each short one."""
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


MATHS_WORDS = {language: pairs(words_of(language)["maths"]) for language in LANGUAGES}
"""By language, ISO 639-1: sign or LaTeX's name -> word. ``from`` and ``to`` name the bounds of a
sum, ``of`` follows a function, and ``root`` stands before the index of other roots."""
