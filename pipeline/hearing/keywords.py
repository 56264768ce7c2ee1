"""Puts names and odd words of a household in the place of what a recogniser heard instead.

Recognisers spell a name that they do not know as one that they do, or as words that sound alike:
"Richie", "reach he". ``Keywords`` (pure) compares how the words sound, roughly and by English
spelling, with the words that are likely here. It needs nothing but text, so it serves every
recogniser. Words that take part in turn-taking, and those that nearly every sentence has, stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from functools import lru_cache
from itertools import chain, islice

from pipeline.context import SessionContext
from pipeline.hearing import tuning
from pipeline.settings import Lexicon
from pipeline.spoken.language import SMALL_WORDS
from pipeline.spoken.sounds import difference, drop_cost, sounds_of

_WORD = re.compile(r"(?<!['\u2019])\b[^\W\d_]+")
_sounds = lru_cache(16384)(sounds_of)
_difference = lru_cache(16384)(difference)


class Keywords:
    """The words that are likely in a session."""

    def __init__(self, words: Iterable[str], lexicon: Lexicon) -> None:
        """``words``: names, or phrases of up to ``MOST_WORDS`` words; very short ones have no
        effect, nor have words of turn-taking in lower case: "stop". ``lexicon``: its words, and the
        small words of its language, are not replaced."""
        self._stop_words = _stop_words(lexicon)
        short = (each.strip() for each in words if len(each) <= tuning.LONGEST_KEYWORD_CHARS)
        phrases = dict.fromkeys(each for each in short if each not in self._stop_words)
        self._keywords: dict[str, list[tuple[str, str]]] = {}
        for keyword in islice(phrases, tuning.MOST_KEYWORDS):
            if len(sounds := _sounds(keyword)) >= tuning.LEAST_SOUNDS:
                self._keywords.setdefault(sounds[0], []).append((keyword, sounds))

    def put_into(self, text: str) -> str:
        """``text``, with keywords in the place of their near-misses."""
        places: list[tuple[int, int, str]] = []
        for _, start, end, keyword in sorted(self._candidates(text)):
            if all(end <= other[0] or start >= other[1] for other in places):
                places.append((start, end, keyword))
        for start, end, keyword in sorted(places, reverse=True):
            if text[start:end].lower() != keyword.lower():
                text = text[:start] + keyword + text[end:]
        return text

    def _candidates(self, text: str) -> Iterator[tuple[float, int, int, str]]:
        """Stretches of words that may be a keyword: their difference from it, and their place."""
        words = list(islice(_WORD.finditer(text), tuning.MOST_TEXT_WORDS if self._keywords else 0))
        for first, begin in enumerate(words):
            phrase, end = "", begin.start()
            before = text[:end].rstrip(' "\u201c')
            is_name = begin.group()[0].isupper() and before[-1:] not in ".!?\u2026"
            for word in words[first : first + tuning.MOST_WORDS]:
                apart = text[end : word.start()]
                if word.group().lower() in self._stop_words or (phrase and apart not in (" ", "-")):
                    break
                phrase, end = phrase + word.group(), word.end()
                for found, keyword in self._near(_sounds(phrase), is_name):
                    yield found, begin.start(), end, keyword

    def _near(self, phrase: str, is_name: bool) -> Iterator[tuple[float, str]]:
        """``is_name``: whether the recogniser took it for a name."""
        for keyword, sounds in self._keywords.get(phrase[:1], ()):
            rarely_alike = is_name or len(sounds) >= tuning.LONG_SOUNDS
            share = tuning.NAME_DIFFERENCE if rarely_alike else tuning.WORD_DIFFERENCE
            most = share * len(sounds)
            if abs(len(phrase) - len(sounds)) * drop_cost("a") > most:
                continue
            if (found := _difference(phrase, sounds, most)) <= most:
                yield found, keyword


def keywords_of(context: SessionContext) -> Keywords:
    """The client's, and those of the settings."""
    return Keywords((*context.config.keywords, *context.settings.words), context.lexicon)


@lru_cache(8)
def _stop_words(lexicon: Lexicon) -> frozenset[str]:
    own = SMALL_WORDS.get(lexicon.language)
    small = [own] if own else SMALL_WORDS.values()
    return frozenset(re.findall(r"[^\W\d_]+", " ".join((*small, *chain(*astuple(lexicon)[1:])))))
