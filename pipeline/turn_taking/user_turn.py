"""One turn of the user by voice: what was heard of it, and what was begun in case it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm, Recording
from pipeline.errors import ReachyVoiceError
from pipeline.hearing.recognition import Recognition, same_words
from pipeline.speaking.reply import Reply
from pipeline.work import Work


@dataclass(slots=True, eq=False)
class Guess:
    """A reply behind a shut gate to words that may be all that is said."""

    text: str
    work: Work
    reply: Reply | None = None
    committed: bool = False
    """Whether the words stand in the conversation."""
    has_read: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the language model has read the words, or never will."""
    late: bool = False
    """Whether it took too long to wait for."""
    end_probability: float | None = None
    """That they are complete, as far as it knows."""
    told: Callable[[], None] = lambda: None
    """Called when they are read."""

    def tell_end(self, probability: float | None) -> None:
        self.has_read.set()
        self.end_probability = probability
        self.told()

    @property
    def uncommitted(self) -> str:
        """The words, as long as they do not stand in the conversation; then empty."""
        return "" if self.committed else self.text

    @property
    def read(self) -> bool:
        return self.has_read.is_set()

    def says(self, text: str) -> bool:
        """Whether it answers ``text``, apart from case and punctuation."""
        return same_words(text, self.text)


@dataclass(slots=True, eq=False)
class Attempt:
    """What is done in one pause in case the turn is over: transcript, judgement, gated reply."""

    item_id: str
    work: Work
    speech_end: int
    end: int
    """First sample index behind the range that will be committed."""
    paused_at: float
    """When the last speech sample arrived, in the loop's time."""
    wants_reply: bool
    superseded: bool = False
    """Whether somebody speaks again before it is answered."""
    said: str = ""
    error: ReachyVoiceError | None = None
    """Why nothing was recognised."""
    audio_probability: float | None = None
    """What the turn detector made of it."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    likely: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the turn is more likely over than not."""
    discarded: bool = False
    """Whether its reply was thrown away, though the turn was over."""
    stop_told: bool = False
    """Whether the world knows that the utterance is over."""
    guess: Guess | None = None
    task: asyncio.Task[None] | None = None

    @property
    def reply(self) -> Reply | None:
        """What was begun for it, if anything was."""
        return self.guess.reply if self.guess else None

    @property
    def engine_seconds(self) -> float:
        """Spent on all of it."""
        guess = self.guess
        extra = guess.work.engine_seconds if guess and guess.work is not self.work else 0.0
        return self.work.engine_seconds + extra


@dataclass(slots=True, eq=False)
class Weighing:
    """Of speech over an answer. ``look_at``: sample at which its words are read next. ``looks``:
    how often they have been. ``looked_at``: sample at which they were read last."""

    look_at: int
    work: Work = field(default_factory=Work)
    looks: int = 0
    looked_at: int = 0
    looking: bool = False
    """Whether they are being read."""


@dataclass(slots=True, eq=False)
class UserTurn:
    """An open utterance. ``start`` and ``fed_to`` are sample indexes of the listener's stream."""

    item_id: str
    start: int
    fed_to: int
    recognition: Recognition
    recognising: asyncio.Task[None]
    onset: int = 0
    """Where speech begins, behind the padding."""
    attempt: Attempt | None = None
    guess: Guess | None = None
    """Begun on a partial transcript, while the user speaks."""
    weighing: Weighing | None = None
    """Set while it is not known whether it interrupts the answer that it has begun over; nothing of
    it is told as long. See ``pipeline.turn_taking.overlaps``."""
    untold: str = ""
    """Words that became known meanwhile."""
    pieces: list[Pcm] = field(default_factory=list)

    @property
    def audio(self) -> Recording:
        """All that was fed."""
        return Recording(np.concatenate((EMPTY, *self.pieces)), LISTEN_RATE)
