"""Restores names and unusual words of a household that a recogniser misheard.

Recognisers spell a name that they do not know as one that they do, or as words that sound alike:
"Richie", "Ann Llease". ``Keywords`` (pure) compares how the words sound, roughly and by English
spelling, with the words that are likely here. It needs nothing but text, so it serves every
recogniser. The shorter a keyword, the more words resemble it, so the more evidence it needs: its
sounds, a capital, or that somebody is called. Words of turn-taking and very common words are never
replaced, but as parts of a long keyword's letters ("Next Cloud").
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
from pipeline.spoken.language import SMALL_WORDS, language_of
from pipeline.spoken.sounds import difference, drop_cost, sounds_of

_WORD = re.compile(r"(?<!['\u2019](?!\w{3}))\b(?:[A-Z]['\u2019](?=[A-Z]))?[^\W\d_]+")
"""Also behind an apostrophe ("d'Anneliese"), but not "it's" or "we'll"."""
_ENDS = tuple('.!?:"\u2026\u201c\u201d\u00ab\u00bb')
"""A word after one of these begins with a capital, name or not."""
_AROUND = "".join(_ENDS) + ", \t\n"
"""Around a keyword, these would stand in the text twice."""
_GREETINGS = {"hey", "hi", "hello", "ok", "okay", "hallo", "hola", "oye", "ciao", "ehi", "salut"}
_GREETINGS |= {"bonjour", "hoi", "oi", "olá"}
_CALENDAR = """monday tuesday wednesday thursday friday saturday sunday january february march april
may june july august september october november december"""
"""English capitalises these like names."""
_ROBOT = "reachy"
"""A word of turn-taking, and yet a keyword."""
_sounds = lru_cache(16384)(sounds_of)
_difference = lru_cache(16384)(difference)


class Keywords:
    """The words that are likely in a session."""

    def __init__(self, words: Iterable[str], lexicon: Lexicon) -> None:
        """``words``: names, or phrases of up to ``MOST_WORDS`` words; very short ones, those
        with digits (which have no sounds) and words of turn-taking ("Stop") have no effect.
        ``lexicon``: its words, and the small words of its language, are not replaced."""
        self._language = lexicon.language
        self._stop_words = _stop_words(lexicon)
        short = (each.strip(_AROUND) for each in words if len(each) <= tuning.LONGEST_KEYWORD_CHARS)
        ordinary = self._stop_words - {_ROBOT}
        phrases = dict.fromkeys(each for each in short if each.lower() not in ordinary)
        self._keywords: dict[str, list[tuple[str, str]]] = {}
        self._long_letters: set[str] = set()
        """Letters of long keywords, which ordinary words do not have by chance."""
        for keyword in islice(phrases, tuning.MOST_KEYWORDS):
            sounds = "" if re.search(r"\d", keyword) else _sounds(keyword)
            if len(sounds) >= tuning.LEAST_SOUNDS:
                self._keywords.setdefault(sounds[0], []).append((keyword, sounds))
            if len(sounds) >= tuning.LONG_SOUNDS:
                self._long_letters.add("".join(_WORD.findall(keyword)).lower())

    def put_into(self, text: str) -> str:
        """``text``, with near-misses replaced by their keywords."""
        places: list[tuple[int, int, str]] = []
        for _, start, end, _, keyword in sorted(self._candidates(text)):
            if all(end <= other[0] or start >= other[1] for other in places):
                places.append((start, end, keyword))
        for start, end, keyword in sorted(places, reverse=True):
            if text[start:end].lower() != keyword.lower():
                text = text[:start] + keyword + text[end:]
        return text

    def _candidates(self, text: str) -> Iterator[tuple[float, int, int, bool, str]]:
        """Stretches of words that may be a keyword: difference, start, end, whether it is spelled
        otherwise, and the keyword."""
        words = list(islice(_WORD.finditer(text), tuning.MOST_TEXT_WORDS if self._keywords else 0))
        has_capitals_for_names = (self._language or language_of(text)) not in ("", "de")
        has_capitals_for_names &= not text.isupper()
        before: list[str] = []  # the words of the sentence so far
        last, is_asked = 0, False
        for first, begin in enumerate(words):
            if any(mark in (gap := text[last : begin.start()]) for mark in _ENDS):
                before, is_asked = [], "?" in gap
            is_name = has_capitals_for_names and begin.group()[0].isupper() and bool(before)
            is_greeted = bool(before) and _GREETINGS.issuperset(before)
            phrase, end, has_ordinary = "", begin.start(), False
            for word in words[first : first + tuning.MOST_WORDS]:
                apart = text[end : word.start()]
                if phrase and apart not in (" ", "-"):
                    break
                phrase, end = phrase + word.group(), word.end()
                has_ordinary |= word.group().lower() in self._stop_words
                if has_ordinary and phrase.lower() not in self._long_letters:
                    continue
                mark = text[end : end + 1]
                is_alone = not before and mark in ("", ",", *_ENDS)
                is_called = is_greeted or (is_alone and is_asked and mark != ",")
                least = tuning.LEAST_SOUNDS + (0 if is_name else 1 if is_alone or is_called else 2)
                for found, keyword in self._near(_sounds(phrase), least, is_name, is_called):
                    is_other = text[begin.start() : end].lower() != keyword.lower()
                    yield found, begin.start(), end, is_other, keyword
            before.append(begin.group().lower())
            last = begin.end()

    def _near(
        self, phrase: str, least: int, is_name: bool, is_called: bool
    ) -> Iterator[tuple[float, str]]:
        """The keywords that ``phrase`` may be, with their differences. ``least``: fewest sounds of
        a keyword; ``is_name``: the recogniser took the phrase for a name; ``is_called``: it can
        only be a call."""
        for keyword, sounds in self._keywords.get(phrase[:1], ()):
            if len(sounds) < least:
                continue
            if len(sounds) >= tuning.LONG_SOUNDS:
                share = tuning.LONG_DIFFERENCE
            else:
                share = tuning.NAME_DIFFERENCE if is_name or is_called else tuning.WORD_DIFFERENCE
            most = share * (len(sounds) - tuning.LEAST_SOUNDS)
            if is_called and len(phrase) == len(sounds):
                most = max(most, tuning.CALL_DIFFERENCE)
            if abs(len(phrase) - len(sounds)) * drop_cost("a") > most:
                continue
            if (found := _difference(phrase, sounds, most)) <= most:
                yield found, keyword


def keywords_of(context: SessionContext) -> Keywords:
    """The client's keywords, those of the settings, and the people whose voices are known."""
    people = (person.name for person in context.stages.people)
    words = (*context.config.keywords, *context.settings.words, *people)
    return Keywords(words, context.lexicon)


@lru_cache(8)
def _stop_words(lexicon: Lexicon) -> frozenset[str]:
    own = SMALL_WORDS.get(lexicon.language)
    small = [own] if own else SMALL_WORDS.values()
    words = (_CALENDAR, *small, *chain(*astuple(lexicon)[1:]))
    return frozenset(re.findall(r"[^\W\d_]+", " ".join(words)))
