"""One spoken turn of the user: the audio heard, and the work begun in case it is over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pipeline.errors import ReachyVoiceError
from pipeline.hearing.recognition import Recognition, same_words
from pipeline.speaking.reply import Reply
from pipeline.turn_taking.barge_in import Weighing
from pipeline.work import Work


@dataclass(slots=True, eq=False)
class SpeculativeReply:
    """A reply behind a shut gate to words that may be all of the turn."""

    text: str
    reply: Reply
    committed: bool = False
    """Whether the words are part of the conversation."""
    late: bool = False
    """Whether the language model takes too long to read the words."""

    @property
    def work(self) -> Work:
        return self.reply.work

    @property
    def judged(self) -> bool:
        """Whether the language model has judged the words, or took too long."""
        return self.late or self.reply.words.prompt_read.is_set()

    def answers(self, text: str) -> bool:
        """Whether it answers ``text``, apart from case and punctuation."""
        return same_words(text, self.text)


@dataclass(slots=True, eq=False)
class Attempt:
    """Work done in one pause in case the turn is over: transcript, judgement, gated reply."""

    item_id: str
    work: Work
    speech_end: int
    end: int
    """First sample index behind the range that will be committed."""
    paused_at: float
    """When the last speech sample arrived, in the loop's time."""
    wants_reply: bool
    false_interruption: bool = False
    """Whether its words should not have cut the answer off, as a backchannel's."""
    superseded: bool = False
    """Whether the user speaks again before it is answered."""
    said: str = ""
    error: ReachyVoiceError | None = None
    """Why recognition failed."""
    audio_probability: float | None = None
    """The turn detector's probability that the turn is over."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is new evidence, and when the turn has ended."""
    ended: bool = False
    """Whether the turn is over."""
    background_db: float = 0.0
    """How far below the speaker is what went on when it ended; 0: silence."""
    discarded: bool = False
    """Whether its reply was thrown away although the turn was over."""
    stop_published: bool = False
    """Whether ``SpeechStopped`` was published."""
    speculative: SpeculativeReply | None = None
    task: asyncio.Task[None] | None = None

    def end_turn(self) -> None:
        """The pause has lasted long enough."""
        self.ended = True
        self.news.set()

    @property
    def reply(self) -> Reply | None:
        """The reply that was begun, if any."""
        return self.speculative.reply if self.speculative else None

    @property
    def works(self) -> set[Work]:
        return {self.work, self.speculative.work} if self.speculative else {self.work}

    @property
    def engine_seconds(self) -> float:
        """Engine time spent on the attempt, its reply included."""
        return sum(work.engine_seconds for work in self.works)


@dataclass(slots=True, eq=False)
class UserTurn:
    """An open utterance. ``start`` and ``fed_to`` are sample indexes of the listener's stream."""

    item_id: str
    start: int
    fed_to: int
    recognition: Recognition
    onset: int = 0
    """Where speech begins, behind the padding."""
    attempt: Attempt | None = None
    speculative: SpeculativeReply | None = None
    """Begun on a partial transcript, while the user speaks."""
    weighing: Weighing | None = None
    """Set until it is known whether the speech interrupts the answer; meanwhile none of it is
    published. See ``pipeline.turn_taking.barge_in``."""
    readings: list[str] = field(default_factory=list)
    """What each look at it read while it was weighed."""
    unpublished_words: str = ""
    """Words recognised meanwhile."""
    ignored: bool = False
    """Whether the speech was not meant for the robot."""
    cut: Reply | None = None
    """The answer that the turn cut off in the middle."""
