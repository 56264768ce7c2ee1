"""The work for one spoken turn: recognition, and what is begun in a pause in case it is over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pipeline.conversation.reply_prompts import UncommittedSpeech
from pipeline.engines.contract import Transcript
from pipeline.errors import ReachyVoiceError
from pipeline.hearing.plausibility import NO_SCORES, Segment
from pipeline.hearing.recognition import Recognition, same_words
from pipeline.items import AudioPart
from pipeline.speaking.hold import Hold
from pipeline.speaking.reply import Reply
from pipeline.turn_record import Aside, Invention
from pipeline.turn_taking.turn import Turn
from pipeline.work import Work

Words = Transcript | ReachyVoiceError
"""A transcript, or why recognition failed."""


@dataclass(slots=True, eq=False)
class SpeculativeReply:
    """A reply, behind a shut gate, to words that may be the whole turn."""

    speech: UncommittedSpeech
    reply: Reply
    late: bool = False
    """Whether the language model takes too long to read the words."""

    @property
    def work(self) -> Work:
        return self.reply.work

    @property
    def judged(self) -> bool:
        """Whether the language model has judged the words, or took too long."""
        return self.late or self.reply.words.prompt_read.is_set()

    def answers(self, speech: AudioPart) -> bool:
        """Whether it answers these words of this speaker, apart from case and punctuation."""
        own = self.speech.part
        same = same_words(speech.transcript or "", own.transcript or "")
        return same and speech.speaker == own.speaker


@dataclass(slots=True, eq=False)
class Attempt:
    """Work done in one pause in case the turn is over: transcript, judgement, gated reply."""

    item_id: str
    work: Work
    paused_at: float
    """When the last speech sample arrived, in the loop's time."""
    words: Words | None = None
    """``None``: not known yet."""
    audio_probability: float | None = None
    """The turn detector's probability that the turn is over."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is new evidence, and when the turn has ended."""
    discarded: bool = False
    """Whether its reply was thrown away although the turn was over."""
    speculative: SpeculativeReply | None = None
    task: asyncio.Task[None] | None = None

    @property
    def transcript(self) -> Transcript | None:
        """``None``: recognition failed, or is not done."""
        return self.words if isinstance(self.words, Transcript) else None

    @property
    def text(self) -> str | None:
        """What was said."""
        return self.transcript.text if self.transcript else None

    @property
    def exclusion(self) -> Invention | Aside | None:
        """Why words that were recognised do not count."""
        return self.transcript.exclusion if self.transcript else None

    @property
    def speech(self) -> AudioPart:
        """The words as they will stand in the conversation."""
        speaker = self.transcript.speaker if self.transcript else None
        return AudioPart(self.text or "", speaker=speaker or "")

    @property
    def error(self) -> ReachyVoiceError | None:
        """Why recognition failed."""
        return self.words if isinstance(self.words, ReachyVoiceError) else None

    @property
    def reply(self) -> Reply | None:
        """The reply that was begun, if any."""
        return self.speculative.reply if self.speculative else None

    @property
    def works(self) -> list[Work]:
        """Its reply's, if that began before the pause, and its own."""
        works = [self.speculative.work] if self.speculative else []
        return works if self.work in works else [*works, self.work]

    @property
    def engine_seconds(self) -> float:
        """Engine time spent on the attempt, its reply included."""
        return sum(work.engine_seconds for work in self.works)


@dataclass(slots=True, eq=False)
class TurnUtterance:
    """The audio of one spoken turn, and all work for it."""

    turn: Turn
    recognition: Recognition
    fed_to: int
    """Sample index up to which the recogniser has the audio."""
    language_before: str = ""
    """The language of the conversation when it began; looks at its words may change it."""
    segment: Segment = NO_SCORES
    """The sound up to the last pause, or to where the client committed it."""
    attempt: Attempt | None = None
    """Set in a pause, and when the turn is over."""
    speculative: SpeculativeReply | None = None
    """Begun on a partial transcript, while the user speaks."""
    unpublished_words: str = ""
    """Words recognised while it was not known whether the turn interrupts the answer."""
    hold: Hold | None = None
    """Keeps the answer from being sent on meanwhile."""
    reading: Work = field(default_factory=Work)
    """The work of the looks at its words meanwhile."""
    is_reading: bool = False
    """Whether a look is under way."""
    cut_reply: Reply | None = None
    """The answer that the turn cut off in the middle."""
