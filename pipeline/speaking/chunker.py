"""Cuts text deltas into pieces to speak: the first one early, later ones as long as time allows.

The listener waits for the first piece, so it ends as soon as it can be spoken well: at a comma,
before a word that begins a new part of the sentence, or after a few words, but never on a word that
needs the next one. Later pieces are whole sentences if there is time (``pipeline.speaking.ramp``
says how long a piece may be), because whole sentences sound better.

Pieces keep the exact text: joined, they are the answer, except for white space around it. Markup is
never split, so each piece alone shows which of its text is spoken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.speaking import tuning
from pipeline.spoken import speakable
from pipeline.spoken.borders import Border, End, ends
from pipeline.spoken.markup import LINE_START

_FEWEST_WORDS = {
    Border.SILENCE: 0,
    Border.SENTENCE: 1,
    Border.CLAUSE: 2,
    Border.PART: 3,
    Border.PHRASE: 4,
    Border.WORD: 5,
    Border.TORN: 14,
}
"""Fewest words of an early piece with this border. Four words are a second of speech, in which a
voice that is ten times faster than speech makes the next piece."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an answer."""

    text: str
    """As written, with the white space before it."""
    spoken: str
    """What the voice says; may be empty."""
    border: Border
    """How it ends, and so how much silence follows it."""
    language: str = "en"
    """ISO 639-1; empty: unknown."""


class SpeechChunker:
    """Takes text deltas, gives out pieces to speak."""

    def __init__(self, language: str = "en") -> None:
        self.language = language
        """ISO 639-1; empty: unknown, so numbers are not put into words."""
        self.buffer = ""
        """Text waiting to be spoken."""
        self._before = LINE_START
        self._begun = False
        self._closed = False
        self._spoke = False
        """Whether an audible piece was taken."""

    @property
    def is_done(self) -> bool:
        """Whether no more text will come and all of it was taken."""
        return self._closed and not self.buffer

    def feed(self, text: str) -> None:
        """Add text. After ``close``, reopen the chunker and set the text apart by a space."""
        if not text:
            return
        if self._closed and self._begun and not text[0].isspace():
            text = f" {text}"
        self._closed = False
        self.buffer += text
        if not self._begun:
            self.buffer = self.buffer.lstrip()
            self._begun = bool(self.buffer)

    def close(self) -> None:
        """End the text so far; ``feed`` may add more later."""
        self._closed = True
        self.buffer = self.buffer.rstrip()

    def forget(self) -> None:
        """Drop the held text: it is not part of the answer. Later text begins the answer, or is set
        apart from what was spoken."""
        self.buffer = ""
        self._before = LINE_START
        self._begun = self._closed = self._spoke

    def take(self, longest_letters: int = 0, *, hurry: bool = False) -> Piece | None:
        """The next piece; ``None`` if it should wait for more text, or nothing is left.

        ``longest_letters``: how much will be ready in time. Whole sentences that fit are taken
        together. A longer sentence is cut where it sounds best; with little time (up to
        ``EARLY_LETTERS``), as early as possible. ``hurry``: do not wait for more text.
        """
        places = ends(self.buffer, self._before, closed=self._closed, language=self.language)
        if longest_letters <= tuning.EARLY_LETTERS:
            best = _early(places)
        else:
            best = _best_fit(places, longest_letters, hurry=hurry)
        if best is None and self._closed and self.buffer:
            best = places[-1] if places else End(len(self.buffer), Border.SENTENCE, 0, 0)
        if best is None:
            return None
        last = self._closed and best.at == len(self.buffer)
        return self._cut(best.at, max(best.border, Border.SENTENCE) if last else best.border)

    def _cut(self, at: int, border: Border) -> Piece:
        text, self.buffer = self.buffer[:at], self.buffer[at:]
        speech = speakable(text, self.language, self._before)
        self._before = text.rstrip()[-1:] or self._before
        self._spoke = self._spoke or bool(speech)
        return Piece(text, _with_mark(speech, border), border, self.language)


_MARK_AT_END = re.compile(r"[.,;:!?…。！？：；，、][\"'”’)]*$")


def _with_mark(speech: str, border: Border) -> str:
    """``speech`` ending in a punctuation mark, so that the pitch falls only at a sentence's end."""
    if not speech or _MARK_AT_END.search(speech):
        return speech
    return f"{speech}." if border >= Border.SENTENCE else f"{speech},"


def _early(places: Sequence[End]) -> End | None:
    """The first end with enough words before it."""
    return next((end for end in places if end.words >= _FEWEST_WORDS[end.border]), None)


def _best_fit(places: Sequence[End], longest_letters: int, *, hurry: bool) -> End | None:
    """The last end of a sentence that fits. If the sentence is too long, or there is no time to
    wait for its end: the best other place."""
    fits = [end for end in places if end.letters <= longest_letters]
    whole = [end for end in fits if end.border >= Border.SENTENCE]
    if whole:
        return whole[-1]
    if len(fits) == len(places) and not hurry:
        return None
    for border in (Border.CLAUSE, Border.PART, Border.PHRASE, Border.WORD):
        good = [e for e in fits if e.border == border and e.words >= _FEWEST_WORDS[border]]
        if good:
            return good[-1]
    return _early(places)
