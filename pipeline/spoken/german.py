"""The endings of ordinals, which German alone has."""

from __future__ import annotations

from pipeline.spoken.words import pairs, words_of


def _endings(table: str) -> dict[str, str]:
    endings = pairs(words_of("de")[table])
    return {word: ending for ending, words in endings.items() for word in words.split()}


ARTICLES = _endings("articles")
"""Articles and prepositions -> what the ordinal behind them ends in."""
COUNTED_NOUNS = _endings("counted_nouns")
"""Nouns that are counted without an article -> what the ordinal before them ends in."""


def inflected(ordinal: str, before: str) -> str:
    """ "dritte", with the ending that the word before it asks for."""
    return ordinal.removesuffix("e") + ARTICLES.get(before.strip().lower(), "er")
