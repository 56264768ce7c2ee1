"""From the tokens of a recogniser to words: with their times, and those that will not change.

Tokens are pieces of words as sentencepiece makes them: one that begins a word begins with ``▁``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipeline.engines.contract import Partial, Word

WORD_START = "▁"


@dataclass(frozen=True, slots=True)
class Tokens:
    """What was decoded. ``frames``: in which frame of the audio each token was found, and
    ``durations``: how many frames it lasts by the model's own opinion; as many as ``ids``."""

    ids: tuple[int, ...] = ()
    frames: tuple[int, ...] = ()
    durations: tuple[int, ...] = ()

    def __add__(self, later: Tokens) -> Tokens:
        return Tokens(
            self.ids + later.ids, self.frames + later.frames, self.durations + later.durations
        )


def timed_words(tokens: Tokens, pieces: Sequence[str], frame_s: float) -> tuple[Word, ...]:
    """The words of ``tokens``, whose spelling is ``pieces``; ``frame_s``: seconds per frame.

    A word lasts from its first token to the end of its last one that is no punctuation: models put
    a full stop where they are sure of it, which may be in the silence that follows.
    """
    words: list[_Growing] = []
    spelled = zip(pieces, tokens.frames, tokens.durations, strict=True)
    for piece, frame, duration in spelled:
        text = piece.replace(WORD_START, "")
        says = any(character.isalnum() for character in text)
        if not words or (piece.startswith(WORD_START) and (says or not text)):
            words.append(_Growing(frame, frame + duration))
        words[-1].text.append(text)
        if says:
            words[-1].end = max(words[-1].end, frame + duration)
    return tuple(
        Word("".join(word.text), word.start * frame_s, word.end * frame_s)
        for word in words
        if any(word.text)
    )


@dataclass(slots=True)
class _Growing:
    start: int
    end: int
    text: list[str] = field(default_factory=list)


def settled(text_of: Callable[[Sequence[int]], str], sure: Tokens, unsure: Tokens) -> Partial:
    """What ``sure`` tokens, which stay, and ``unsure`` ones behind them come to in words.

    The last word of the sure ones may still get an ending or a comma, so it is tentative until
    another word has begun. What is committed is then a beginning of all that is committed later.
    """
    committed = text_of(sure.ids).rstrip().rpartition(" ")[0]
    whole = text_of(sure.ids + unsure.ids).strip()
    return Partial(committed, whole[len(committed) :].strip())
