"""One utterance of the user: its recognition, and what was begun in its last pause."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm, Recording
from pipeline.engines import Cancelled, Transcript
from pipeline.errors import EngineCrashed, EngineError, ReachyVoiceError
from pipeline.leases import Lease
from pipeline.reply import Reply
from pipeline.stable_words import StableWords
from pipeline.stages import Stages, UtteranceStage
from pipeline.work import Work

OnWords = Callable[[str, StableWords], None]
"""Gets the new words (may be none), and all that is known."""


class Recognition:
    """Feeds one utterance to speech-to-text as it is heard; asks for its text at every pause.

    ``on_words`` is told the words that will not change, as they become known, and whether the
    whole partial transcript is settled; without it, partial transcripts are not asked for.

    ``run`` it as a task until it is cancelled. Feeding is never cancelled in the middle, so an
    attempt that is thrown away loses no audio and doubles none. When the engine ends under it, the
    next one gets all of it again, once, without partial transcripts: their words were told.
    """

    def __init__(self, stages: Stages, language: str, on_words: OnWords | None = None) -> None:
        self._stages = stages
        self._language = language
        self._on_words = on_words
        self._stable = StableWords()
        self.work = Work()
        """What feeding costs, partial transcripts included."""
        self._unfed: list[Pcm] = []
        self._fed: list[Pcm] = []
        self._begun_again = self._ended = False
        self._feeding = True
        self._changed = asyncio.Event()
        self._utterance: UtteranceStage | None = None
        self._error: ReachyVoiceError | None = None

    def append(self, pcm: Pcm) -> None:
        self._unfed.append(pcm)
        self._tell()

    async def run(self) -> None:
        lease: Lease | None = None
        try:
            lease = await self._stages.leases.take()
            while True:
                await self._follow()
        except ReachyVoiceError as error:
            self._error = error
        except Cancelled:
            self._error = EngineError("The utterance was not recognised", why="it was stopped")
        finally:
            self._ended = True
            self._feeding = False
            self._tell()
            if self._utterance:
                self._utterance.close()
            if lease:
                lease.release()

    async def transcript(self, work: Work) -> Transcript:
        """The final text of everything appended so far. Raises what the engine raises."""
        while True:
            while (self._unfed or self._feeding) and not self._error:
                await self._change()
            if self._error:
                raise self._error
            utterance = self._utterance
            if utterance is None:
                raise EngineError("The utterance was closed before it was recognised")
            try:
                return await utterance.finish(work)
            except EngineCrashed:
                if work.cancelled or not self._begin_again(utterance):
                    raise

    async def _follow(self) -> None:
        """Feed one utterance of the engine, until it is lost."""
        utterance: UtteranceStage | None = None
        try:
            wanted = self._on_words is not None
            utterance = await self._stages.stt.open(self._language, wanted, self.work)
            self._utterance = utterance
            while self._utterance is utterance:
                await self._feed_all(utterance)
        except EngineCrashed:
            if not self._begin_again(utterance):
                raise

    def _begin_again(self, lost: UtteranceStage | None) -> bool:
        """The engine has ended under ``lost``; whether the next one is tried, or is already."""
        if self._utterance is not lost:
            return True
        if self._begun_again or self._ended:
            return False
        self._begun_again = self._feeding = True
        self._utterance = self._on_words = None
        if lost:
            lost.close()
        self._unfed, self._fed = [*self._fed, *self._unfed], []
        self._tell()
        return True

    async def _feed_all(self, utterance: UtteranceStage) -> None:
        """What there is now; then wait for more."""
        self._feeding = True
        while self._unfed:
            pcm = np.concatenate(self._unfed)
            self._fed += self._unfed
            self._unfed.clear()
            partial = await utterance.feed(pcm, self.work)
            if self._on_words:
                before = self._stable.settled
                words = self._stable.feed(partial)
                if words or self._stable.settled != before:
                    self._on_words(words, self._stable)
            if self._utterance is not utterance:
                return
        self._feeding = False
        self._tell()
        await self._change()

    def _tell(self) -> None:
        """Wake everybody who waits now."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self) -> None:
        await self._changed.wait()


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
    def read(self) -> bool:
        return self.has_read.is_set()

    def says(self, text: str) -> bool:
        """Whether it answers ``text``, apart from case and punctuation."""
        return same_words(text, self.text)


def same_words(one: str, other: str) -> bool:
    """Whether two transcripts say the same, apart from case and punctuation."""
    return _plain(one) == _plain(other)


def _plain(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


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
    it is told as long. See ``pipeline.overlaps``."""
    untold: str = ""
    """Words that became known meanwhile."""
    pieces: list[Pcm] = field(default_factory=list)

    @property
    def audio(self) -> Recording:
        """All that was fed."""
        return Recording(np.concatenate((EMPTY, *self.pieces)), LISTEN_RATE)


class PushToTalkBuffer:
    """What a client without turn detection has appended and not yet committed."""

    def __init__(self, capacity_samples: int) -> None:
        self.samples = 0
        self._capacity_samples = capacity_samples
        self._pieces: list[Pcm] = []

    def append(self, pcm: Pcm) -> bool:
        """False when it is full; nothing is taken then."""
        if self.samples + len(pcm) > self._capacity_samples:
            return False
        self._pieces.append(pcm)
        self.samples += len(pcm)
        return True

    def take(self) -> Pcm:
        pcm = np.concatenate(self._pieces) if self._pieces else EMPTY
        self.clear()
        return pcm

    def clear(self) -> None:
        self._pieces.clear()
        self.samples = 0
