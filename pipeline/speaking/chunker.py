"""From text deltas to what is spoken: the first clause early, then as long as time allows.

The listener waits for the first piece, so it ends as soon as it can be spoken well: at a comma,
before a word that a new part of the sentence begins with, or after a few words, but never on a
word that leans on the next one. Later pieces are whole sentences wherever there is time for them
(``pipeline.speaking.ramp`` says how long one may be), because whole sentences sound better.

Pieces keep the exact text: all of them together are the answer, but for white space around it.
Markup is not torn, so that a piece alone shows what of it is spoken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.speaking.tuning import EARLY_LETTERS
from pipeline.spoken import speakable
from pipeline.spoken.borders import Border, End, ends
from pipeline.spoken.length import spoken_letters
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
"""So many words are enough for an early piece that ends there. Four words are a second of speech:
time for the next piece, on a voice of ten times real time."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an answer.

    ``text``: as written, with the white space before it. ``spoken``: what the voice is to say;
    empty: nothing. ``border``: how it ends, and so how much silence belongs behind it.
    ``language``: ISO 639-1; empty: not known.
    """

    text: str
    spoken: str
    border: Border
    language: str = "en"


class SpeechChunker:
    """Takes text deltas, gives out pieces to speak."""

    def __init__(self, language: str = "en") -> None:
        self.language = language
        """ISO 639-1; empty: not known, so that nothing is put into words."""
        self._held = ""
        self._before = LINE_START
        self._begun = False
        self._closed = False
        self._spoke = False
        """Whether a piece was taken of which something is spoken."""

    @property
    def held(self) -> str:
        """The text that waits to be spoken."""
        return self._held

    @property
    def held_chars(self) -> int:
        """How much text waits to be spoken."""
        return len(self._held)

    @property
    def held_letters(self) -> int:
        """How long it takes to say (``pipeline.spoken.length``)."""
        return spoken_letters(self._held)

    @property
    def over(self) -> bool:
        """No more text is to come, and all of it was taken."""
        return self._closed and not self._held

    def feed(self, text: str) -> None:
        """More text; reopens a closed one, as words that stand apart from those before it."""
        if not text:
            return
        if self._closed and self._begun and not text[0].isspace():
            text = f" {text}"
        self._closed = False
        self._held += text
        if not self._begun:
            self._held = self._held.lstrip()
            self._begun = bool(self._held)

    def close(self) -> None:
        """For now nothing follows: what is held is whole."""
        self._closed = True
        self._held = self._held.rstrip()

    def forget(self) -> None:
        """What is held is no part of the answer. What follows begins it, or stands apart from what
        was spoken."""
        self._held = ""
        self._before = LINE_START
        self._begun = self._closed = self._spoke

    def take(self, longest_letters: int = 0, *, hurry: bool = False) -> Piece | None:
        """The next piece; ``None`` if more text should be waited for, or none is left.

        ``longest_letters``: as much speech as will be ready in time. Whole sentences that have
        arrived and fit are taken together. A longer one is cut where it sounds best; with little
        time (up to ``EARLY_LETTERS``), as early as possible. ``hurry``: do not wait for more text.
        """
        found = ends(self._held, self._before, closed=self._closed, language=self.language)
        if longest_letters <= EARLY_LETTERS:
            best = _early(found)
        else:
            best = _fitting(found, longest_letters, hurry=hurry)
        if best is None and self._closed and self._held:
            best = found[-1] if found else None
        if best is None:
            return None
        last = self._closed and best.at == len(self._held)
        return self._cut(best.at, max(best.border, Border.SENTENCE) if last else best.border)

    def _cut(self, at: int, border: Border) -> Piece:
        text, self._held = self._held[:at], self._held[at:]
        spoken = speakable(text, self.language, self._before)
        self._before = text.rstrip()[-1:] or self._before
        self._spoke = self._spoke or bool(spoken)
        return Piece(text, _ended(spoken, border), border, self.language)


_MARK_AT_END = re.compile(r"[.,;:!?…。！？：；，、][\"'”’)]*$")


def _ended(spoken: str, border: Border) -> str:
    """With a mark at its end, so that the voice falls only where a sentence is over."""
    if not spoken or _MARK_AT_END.search(spoken):
        return spoken
    return f"{spoken}." if border >= Border.SENTENCE else f"{spoken},"


def _early(found: Sequence[End]) -> End | None:
    """The first good end."""
    for end in found:
        if end.words >= _FEWEST_WORDS[end.border]:
            return end
    return None


def _fitting(found: Sequence[End], longest_letters: int, *, hurry: bool) -> End | None:
    """The last end of a sentence that fits. If none does, because the sentence is longer or more
    of it cannot be waited for: the best other end."""
    fitting = [end for end in found if end.letters <= longest_letters]
    whole = [end for end in fitting if end.border >= Border.SENTENCE]
    if whole:
        return whole[-1]
    if len(fitting) == len(found) and not hurry:
        return None
    for border in (Border.CLAUSE, Border.PART, Border.PHRASE, Border.WORD):
        good = [e for e in fitting if e.border == border and e.words >= _FEWEST_WORDS[border]]
        if good:
            return good[-1]
    return _early(found)
