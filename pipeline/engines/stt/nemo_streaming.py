"""Decides which part of an utterance a stateless recogniser encodes next. Pure.

A full-context encoder runs repeatedly over a window: frames already decoded (left context), new
frames, and the newest frames (right context). The new frames are decoded for good, from the
decoder's last state; the right context is decoded tentatively, and its state is discarded. All
lengths are in frames of the encoder's output, about 80 ms each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.engines.contract import Partial

Tokens = tuple[int, ...]
"""Ids of word pieces in the model's vocabulary."""


@dataclass(frozen=True, slots=True)
class ContextSize:
    left: int
    """How many earlier frames are encoded again."""
    chunk: int
    """New frames between two passes."""
    right: int
    """How many frames must follow one before it is decoded for good."""
    most: int
    """Most new frames per pass, if more than a chunk has arrived."""


@dataclass(frozen=True, slots=True)
class Window:
    """The next pass: frames ``start`` to ``end``. The first ``skip`` are left context, ``take``
    more are decoded for good, and the rest is right context."""

    start: int
    end: int
    skip: int
    take: int


class Stream:
    """How far one utterance is decoded, and its tokens so far. If fed in pieces of up to one chunk,
    the text depends only on the audio."""

    def __init__(self, context: ContextSize) -> None:
        self._context = context
        self._final_frames = 0
        """Frames decoded for good."""
        self._encoded_frames = 0
        """Frames encoded by any pass."""
        self.state: Any = None
        self.sure: Tokens = ()
        self.unsure: Tokens = ()

    def next_pass(self, frames: int) -> Window | None:
        """The next pass, given ``frames`` whole frames; ``None`` if too few are new."""
        context = self._context
        end = frames - frames % context.chunk
        end = min(end, self._encoded_frames + max(context.chunk, context.most))
        if end <= self._encoded_frames:
            return None
        start = max(0, self._final_frames - context.left)
        take = max(0, end - context.right - self._final_frames)
        return Window(start, end, self._final_frames - start, take)

    def took(self, window: Window, sure: Tokens, unsure: Tokens, state: Any) -> None:
        """Record the result of ``window``. ``state``: the decoder's state after the frames taken
        for good."""
        self._final_frames += window.take
        self._encoded_frames = window.end
        self.sure += sure
        self.unsure = unsure
        self.state = state


def settled(text_of: Callable[[Sequence[int]], str], sure: Tokens, unsure: Tokens) -> Partial:
    """The text of ``sure`` tokens, which are final, followed by ``unsure`` ones.

    The last sure word may still get an ending or a comma, so it stays tentative until the next word
    begins. Committed text is thus always a prefix of later committed text.
    """
    committed = text_of(sure).rstrip().rpartition(" ")[0]
    whole = text_of(sure + unsure).strip()
    return Partial(committed, whole[len(committed) :].strip())
