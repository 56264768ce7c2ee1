"""Turns and answers without a record yet, and how each becomes a record."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto

from pipeline.audio import LISTEN_RATE
from pipeline.conversation.chat import heard_text
from pipeline.events import Timeline
from pipeline.speaking.delivery import Clause
from pipeline.speaking.playback import PlaybackClock
from pipeline.turn_record import (
    Aside,
    Doubt,
    IgnoredSpeech,
    Invention,
    Origin,
    Outcome,
    Pause,
    TurnRecord,
)

AHEAD_MS = 5.0
"""An answer that begins less than this before its turn ends does not count as early."""


class State(Enum):
    """Progress of a turn towards its record."""

    SPEAKING = auto()
    STOPPED = auto()
    """Its speech is over, but not committed yet."""
    WAITING = auto()
    """Committed, waiting for an answer."""
    ANSWERING = auto()
    UNHEARD = auto()
    """Recorded, and waiting again: its answer had hardly begun when the user went on speaking."""


@dataclass(slots=True, eq=False)
class OpenTurn:
    """A turn of the user."""

    state: State
    origin: Origin
    began_at: float
    """End of its speech, on the loop's clock."""
    item_id: str | None = None
    speech_id: str | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    stopped_at: float | None = None
    text: str | None = None
    exclusion: Invention | Aside | None = None
    doubt: Doubt | None = None
    speaker: str | None = None
    transcript_at: float | None = None
    error: str | None = None
    pauses: list[Pause] = field(default_factory=list)
    discarded: int = 0
    wasted_s: float = 0.0
    background_db: float = 0.0
    answers_also: tuple[str, ...] = ()

    @property
    def items(self) -> tuple[str, ...]:
        """All items that its answer covers."""
        return (*self.answers_also, self.item_id) if self.item_id else self.answers_also


@dataclass(slots=True, eq=False)
class OpenReply:
    turn: OpenTurn
    in_conversation: bool
    started_at: float
    playback: PlaybackClock = field(default_factory=PlaybackClock)
    clauses: list[Clause] = field(default_factory=list)
    """The words spoken or written."""
    is_text: bool = False
    message_id: str | None = None
    heard_s: float | None = None
    """How much was heard, if the client has reported it."""
    last_audio_at: float | None = None
    timeline: Timeline | None = None
    tool_calls: int = 0
    ignored: list[IgnoredSpeech] = field(default_factory=list)
    notice_id: str | None = None
    """An item that is not part of the answer, such as an apology."""
    faults: int = 0
    left_out: int = 0


def reopen(turn: OpenTurn) -> OpenTurn:
    """A recorded ``turn``, waiting for another answer; without what must not count twice."""
    if turn.origin in ("text", "request", "silence"):
        return OpenTurn(State.UNHEARD, turn.origin, turn.began_at, answers_also=turn.answers_also)
    waiting = replace(turn, state=State.UNHEARD, origin="again", transcript_at=None, error=None)
    waiting.pauses, waiting.discarded, waiting.wasted_s = [], 0, 0.0
    return waiting


def sample_at(ms: int) -> int:
    return ms * LISTEN_RATE // 1000


def record_of(turn: OpenTurn, outcome: Outcome, at: float) -> TurnRecord:
    """The record without the answer."""

    def since(moment: float | None) -> float | None:
        return None if moment is None else (moment - turn.began_at) * 1000

    return TurnRecord(
        origin=turn.origin,
        outcome=outcome,
        item_id=turn.item_id,
        answers_also=turn.answers_also,
        text=turn.text,
        exclusion=turn.exclusion,
        doubt=turn.doubt,
        speaker=turn.speaker,
        error=turn.error,
        speech_start_sample=None if turn.start_ms is None else sample_at(turn.start_ms),
        speech_end_sample=None if turn.end_ms is None else sample_at(turn.end_ms),
        pauses=tuple(turn.pauses),
        background_db=turn.background_db,
        endpoint_ms=since(turn.stopped_at),
        transcript_ms=since(turn.transcript_at),
        ended_ms=since(at),
        speculations_begun=turn.discarded,
        speculations_discarded=turn.discarded,
        engine_wasted_s=turn.wasted_s,
    )


def with_reply(record: TurnRecord, turn: OpenTurn, reply: OpenReply, at: float) -> TurnRecord:
    heard_s, text = _heard_part(record.outcome, reply, at)
    moments = reply.timeline or Timeline("")
    # A timeline has its own, more exact zero; the gate opened when the reply started.
    zero = turn.began_at
    if moments.endpoint is not None:
        zero = reply.started_at - moments.endpoint / 1000
    last_at = reply.last_audio_at
    began_ahead = (moments.endpoint or 0.0) - (moments.transcript or 0.0) >= AHEAD_MS
    return replace(
        record,
        in_conversation=reply.in_conversation,
        endpoint_ms=moments.endpoint,
        transcript_ms=record.transcript_ms if moments.transcript is None else moments.transcript,
        first_token_ms=moments.first_token,
        first_clause_ms=moments.first_clause,
        first_audio_ms=moments.first_audio,
        last_audio_ms=None if last_at is None else (last_at - zero) * 1000,
        ended_ms=(at - zero) * 1000,
        tool_calls=reply.tool_calls,
        ignored=tuple(reply.ignored),
        clause_faults=reply.faults,
        clauses_left_out=reply.left_out,
        speculations_begun=turn.discarded + (moments.transcript is not None and began_ahead),
        heard=text,
        heard_s=heard_s,
        sent_s=reply.playback.sent_seconds,
    )


def _heard_part(outcome: Outcome, reply: OpenReply, at: float) -> tuple[float, str]:
    """Seconds and words heard. A complete answer counts as heard: the rest will still be played."""
    playback = reply.playback
    heard_s = playback.sent_seconds if outcome == "answered" else playback.heard_seconds(at)
    if reply.heard_s is not None:
        heard_s = min(heard_s, reply.heard_s)
    if reply.is_text:
        return heard_s, "".join(clause.text for clause in reply.clauses)
    if outcome == "answered" and reply.heard_s is None:
        return heard_s, "".join(clause.text for clause in reply.clauses)
    return heard_s, heard_text([clause.timing for clause in reply.clauses], heard_s)
