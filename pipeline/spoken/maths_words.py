"""The words of mathematics, by language; ``pipeline.spoken.maths`` reads them."""

from __future__ import annotations

from pipeline.spoken.words import LANGUAGES, by_turns, pairs, words_of

MATHS_WORDS = {language: pairs(words_of(language)["maths"]) for language in LANGUAGES}
"""By language, ISO 639-1: sign or LaTeX's name -> word. ``from`` and ``to`` name the bounds of a
sum, ``of`` follows a function, and ``root`` stands before the index of other roots."""


def letter_name(name: str, language: str) -> str:
    """A Greek letter's: ``alpha`` is "alfa" in Spanish."""
    return by_turns(words_of(language).get("letters", "")).get(name, name)
