"""The states of one spoken turn, and how it goes from one to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from pipeline.turn_record import Ignored
from pipeline.turn_taking.barge_in import OverlapReview


class TurnState(Enum):
    """A turn is in exactly one of these. A turn that overlaps an answer is not published yet."""

    OVERLAP = "overlap"
    """The user speaks over an answer, which is held until the words are judged."""
    OVERLAP_PAUSE = "overlap pause"
    """Speech over an answer has paused; the answer is still held."""
    OVERLAP_END = "overlap end"
    """Speech over an answer is over; the answer is held until its transcript is judged."""
    HARMLESS = "harmless"
    """Speech, or what sounds like it, over an answer that goes on: nothing in it so far is meant to
    stop the answer."""
    HARMLESS_PAUSE = "harmless pause"
    """Harmless speech has paused."""
    HARMLESS_END = "harmless end"
    """Harmless speech is over, and waits to be judged once more."""
    SPEECH = "speech"
    """The user speaks to the robot, and the client knows."""
    PAUSE = "pause"
    """The user pauses; a transcript and a speculative reply are being made."""
    END = "end"
    """The turn is over; it is committed when its transcript is known."""
    MERGED = "merged"
    """The turn is over and waits for its transcript, but the user speaks again: the next turn
    answers both."""
    COMMITTED = "committed"
    """Its words are an item of the conversation."""
    IGNORED = "ignored"
    """It was not meant for the robot; the client never knew."""
    REJECTED = "rejected"
    """It had no words: it was noise."""
    DROPPED = "dropped"
    """It was cleared by the client, or found to be an echo or background."""

    @property
    def speaks(self) -> bool:
        """Whether the user speaks, without a pause."""
        return self in (TurnState.OVERLAP, TurnState.HARMLESS, TurnState.SPEECH)

    @property
    def is_over(self) -> bool:
        """Whether the turn has ended."""
        return self not in TRANSITIONS["pause"] and self not in TRANSITIONS["end"]

    @property
    def overlaps(self) -> bool:
        """Whether it is speech over an answer that may still turn out not to interrupt it."""
        return self in TRANSITIONS["interrupt"]

    @property
    def holds(self) -> bool:
        """Whether it keeps the answer from being sent on."""
        return self in (TurnState.OVERLAP, TurnState.OVERLAP_PAUSE, TurnState.OVERLAP_END)


Move = Literal[
    "pause", "resume", "end", "release", "interrupt", "merge", "commit", "reject", "ignore", "drop"
]
"""What may happen to a turn."""

_S = TurnState
_RELEASE = {
    _S.OVERLAP: _S.HARMLESS,
    _S.OVERLAP_PAUSE: _S.HARMLESS_PAUSE,
    _S.OVERLAP_END: _S.HARMLESS_END,
}
_PUBLISHED = (_S.SPEECH, _S.PAUSE, _S.END, _S.MERGED)

TRANSITIONS: Mapping[Move, Mapping[TurnState, TurnState]] = {
    "pause": {
        _S.OVERLAP: _S.OVERLAP_PAUSE,
        _S.HARMLESS: _S.HARMLESS_PAUSE,
        _S.SPEECH: _S.PAUSE,
    },
    "resume": {
        _S.OVERLAP_PAUSE: _S.OVERLAP,
        _S.HARMLESS_PAUSE: _S.OVERLAP,
        _S.PAUSE: _S.SPEECH,
    },
    "end": {
        _S.OVERLAP_PAUSE: _S.OVERLAP_END,
        _S.HARMLESS_PAUSE: _S.HARMLESS_END,
        _S.PAUSE: _S.END,
    },
    "release": _RELEASE,
    "interrupt": {
        _S.OVERLAP: _S.SPEECH,
        _S.HARMLESS: _S.SPEECH,
        _S.OVERLAP_PAUSE: _S.PAUSE,
        _S.HARMLESS_PAUSE: _S.PAUSE,
        _S.OVERLAP_END: _S.END,
        _S.HARMLESS_END: _S.END,
    },
    "merge": {_S.END: _S.MERGED},
    "commit": dict.fromkeys(_PUBLISHED, _S.COMMITTED),
    "reject": {_S.END: _S.REJECTED, _S.MERGED: _S.REJECTED},
    "ignore": {_S.HARMLESS_END: _S.IGNORED},
    "drop": dict.fromkeys((*_RELEASE, *_RELEASE.values(), *_PUBLISHED), _S.DROPPED),
}
"""Move -> state -> the next one. A move that is not here cannot happen. ``docs/architecture.md``
shows the same table."""


@dataclass(slots=True, eq=False)
class Turn:
    """One spoken turn. Positions are sample indexes of the listener's stream."""

    item_id: str
    start: int
    """Its first sample, padding included."""
    onset: int
    """Where speech begins, after the padding."""
    state: TurnState
    review: OverlapReview
    """When to look at its words while they overlap an answer."""
    speech_end: int = 0
    end: int = 0
    """In a pause: where speech ended, and the first sample after the range to be committed."""
    background_db: float = 0.0
    """How far below the speaker the background was that went on after the turn; 0: silence."""
    wants_answer: bool = False
    """Whether the session answers it by itself."""
    harmless_for: Ignored | None = None
    """Why nothing in it is meant to stop the answer, by the latest reading that found so."""
    mistake: bool = False
    """Whether its words should not have interrupted the answer, as in a backchannel."""
    pauses_ms: list[int] = field(default_factory=list)
    """The pauses in it so far, without the newest."""

    def move(self, move: Move) -> None:
        """Go to the next state. Raises ``KeyError`` if that cannot happen."""
        self.state = TRANSITIONS[move][self.state]

    @property
    def may_be_answered(self) -> bool:
        """Whether a reply to it may begin."""
        waits = self.state in (TurnState.PAUSE, TurnState.END)
        return waits and self.wants_answer and not self.mistake
