"""What ``TurnMachine`` is told, and what it asks for. Positions are sample indexes of the
listener's stream."""

from __future__ import annotations

from enum import Enum, auto
from typing import Literal, NamedTuple

from pipeline.events import StopReason
from pipeline.hearing.turn_taker import TurnEnd, TurnPause
from pipeline.turn_record import Ignored, Interruption
from pipeline.turn_taking.barge_in import OnsetEffect, Verdict
from pipeline.turn_taking.turn import Turn

# --- facts, beside the listener's ``TurnPause`` and ``TurnEnd``


class Onset(NamedTuple):
    """Speech has begun at ``at``."""

    item_id: str
    at: int
    padding_samples: int
    effect: OnsetEffect


class SpeechProgress(NamedTuple):
    """Speech has been heard up to ``end``."""

    end: int
    is_reading: bool
    """Its words so far are being read."""


class Reading(NamedTuple):
    """What the words so far, or their length, say about speech over an answer."""

    turn: Turn
    verdict: Verdict
    text: str | None


class Resumption(NamedTuple):
    """Speech goes on at ``start``; it has been heard up to ``end``."""

    start: int
    end: int
    within_word: bool
    """The voice had only faded (``pipeline.hearing.turn_taker``)."""


class Mistake(NamedTuple):
    """The full transcript would not have justified the interruption that its first words caused."""

    turn: Turn


class Conclusion(NamedTuple):
    """A turn is over, those before it are committed, and its transcript is known and was judged."""

    turn: Turn
    text: str | None
    """``None`` if recognition failed."""
    exclusion: Ignored | None = None
    """Why words that were recognised do not count."""


class NothingLeft(NamedTuple):
    """The answer that was interrupted by mistake cannot go on."""

    turn: Turn


class Configuration(NamedTuple):
    """The client has configured the session."""

    answers: bool
    """It answers turns by itself."""


class ClientRequest(NamedTuple):
    """The client commits or clears the open turn, heard up to ``end``, or those that have ended; or
    it has cancelled the answer that speech overlaps."""

    kind: Literal["commit", "commit ended", "clear", "clear ended", "cancel"]
    end: int = 0


Fact = (
    Onset
    | SpeechProgress
    | Reading
    | TurnPause
    | Resumption
    | Mistake
    | TurnEnd
    | Conclusion
    | NothingLeft
    | Configuration
    | ClientRequest
)

# --- actions


class Do(Enum):
    """What to do about a turn."""

    LISTEN = auto()
    """Recognise its speech."""
    HOLD = auto()
    """Send no more of the answer that it overlaps."""
    RELEASE = auto()
    """Let that answer go on."""
    READ = auto()
    """Transcribe its words so far, and report a ``Reading``."""
    MEASURE = auto()
    """Report a ``Reading`` from its length alone; its words are not known yet."""
    INTERRUPT = auto()
    """End the answers, if the session allows it."""
    ATTEMPT = auto()
    """Transcribe it, judge its end and make a speculative reply, in case it is over."""
    CONCLUDE = auto()
    """Report its ``Conclusion`` as soon as its transcript is known."""
    DROP = auto()
    """End all work for it, unseen."""
    HAND_OVER = auto()
    """End all work for it but recognition: the client commits it."""
    FORGET_SPEAKER = auto()
    """Learn nothing from how loud it was, nor from its language."""
    REJECT = auto()
    """Publish that it had no words."""
    COMMIT = auto()
    """Add its words to the conversation."""
    ANSWER = auto()
    """Open the gate of its reply, or begin one."""
    ANSWER_LATER = auto()
    """Discard its reply: it is answered together with the turn that follows."""
    DISCARD_ANSWER = auto()
    """Discard its reply: it is not answered."""
    CONTINUE = auto()
    """Say the rest of the answer that it interrupted, or report ``NothingLeft``."""


class Act(NamedTuple):
    do: Do
    turn: Turn


class Start(NamedTuple):
    """Publish the turn from its beginning."""

    turn: Turn
    why: Interruption | None
    """Why it interrupts the answer, if it does."""


class Resume(NamedTuple):
    """Discard what the pause began, because speech goes on at ``at``."""

    turn: Turn
    at: int
    within_word: bool


class Stop(NamedTuple):
    """Publish the end of the turn."""

    turn: Turn
    why: StopReason
    at: int


class Ignore(NamedTuple):
    """Publish that the turn did not interrupt the answer."""

    turn: Turn
    why: Ignored


Action = Act | Start | Resume | Stop | Ignore
