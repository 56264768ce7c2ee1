"""Which part of an utterance a recogniser with no memory of its own encodes next (pure).

A full-context encoder is run again and again over a window: what was decoded before (left context),
new frames, and the newest frames (right context). The new ones are decoded for good, from the
decoder's state behind those before; the right context is decoded for now only, from a state that is
not kept. All lengths are frames of the encoder's output, some 80 ms each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.engines.contract import Partial

Tokens = tuple[int, ...]
"""Pieces of words, by their numbers in the model's vocabulary."""


@dataclass(frozen=True, slots=True)
class Context:
    """``chunk``: new frames between two passes. ``right``: how many frames must follow one before
    it is decoded for good. ``left``: how many before are encoded again. ``most``: new frames in one
    pass, where more than a chunk is there."""

    left: int
    chunk: int
    right: int
    most: int


@dataclass(frozen=True, slots=True)
class Window:
    """The next pass: frames ``start`` to ``end``. The first ``skip`` are left context, ``take``
    more are decoded for good, and what is left is right context."""

    start: int
    end: int
    skip: int
    take: int


class Stream:
    """One utterance, as far as it is decoded. What it says depends on the audio and on nothing else
    as long as it is fed in pieces of up to one chunk."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._taken = 0
        """Frames that are decoded for good."""
        self._seen = 0
        """Frames that some pass has encoded."""
        self.state: Any = None
        self.sure: Tokens = ()
        self.unsure: Tokens = ()

    def due(self, frames: int) -> Window | None:
        """The next pass, now that ``frames`` whole ones are there; ``None``: too few are new."""
        context = self._context
        end = frames - frames % context.chunk
        end = min(end, self._seen + max(context.chunk, context.most))
        if end <= self._seen:
            return None
        start = max(0, self._taken - context.left)
        take = max(0, end - context.right - self._taken)
        return Window(start, end, self._taken - start, take)

    def took(self, window: Window, sure: Tokens, unsure: Tokens, state: Any) -> None:
        """What ``window`` has become. ``state``: the decoder's, behind the frames that were
        taken."""
        self._taken += window.take
        self._seen = window.end
        self.sure += sure
        self.unsure = unsure
        self.state = state


def settled(text_of: Callable[[Sequence[int]], str], sure: Tokens, unsure: Tokens) -> Partial:
    """What ``sure`` tokens, which stay, and ``unsure`` ones behind them come to in words.

    The last word of the sure ones may still get an ending or a comma, so it is tentative until
    another word has begun. What is committed is then a beginning of all that is committed later.
    """
    committed = text_of(sure).rstrip().rpartition(" ")[0]
    whole = text_of(sure + unsure).strip()
    return Partial(committed, whole[len(committed) :].strip())
