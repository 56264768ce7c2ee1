"""Folds a session's events into turn records. Pure: events and their times in, records out.

It copes with any order of events, and holds a bounded number of turns: recording must never harm
the conversation.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.audio import LISTEN_RATE
from pipeline.conversation.prompt import TALKED_OVER_S
from pipeline.events import (
    ClauseFault,
    Event,
    IdleTimeout,
    InputCleared,
    InputCommitted,
    ItemAdded,
    ItemTruncated,
    ReplyAudio,
    ReplyFinished,
    ReplyItemFinished,
    ReplyItemStarted,
    ReplyStarted,
    ReplyText,
    SpeculationDiscarded,
    SpeechIgnored,
    SpeechPaused,
    SpeechRejected,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    Timeline,
    TranscriptFailed,
    TranscriptReady,
    TurnJudged,
    TurnUnderWay,
)
from pipeline.items import FunctionCallItem, MessageItem
from pipeline.speaking.delivery import Clause
from pipeline.telemetry.open_turns import (
    OpenReply,
    OpenTurn,
    State,
    record_of,
    reopen,
    sample_at,
    with_reply,
)
from pipeline.turn_record import (
    IgnoredSpeech,
    Interruption,
    Judgement,
    Origin,
    Outcome,
    Pause,
    TurnRecord,
)

CLOSING_S = 0.1
"""Closing an interrupted answer may take up to this long; only audio before the interrupting speech
counts as heard."""

MAX_WAITING = 16
"""Most turns and typed messages waiting for an answer; older ones count as unanswered."""


class TurnRecorder:
    """The recorder of one session. ``answers`` False: the session only transcribes."""

    def __init__(self, *, answers: bool = True) -> None:
        self._answers = answers
        self._turns: list[OpenTurn] = []
        """Open turns, newest last."""
        self._typed: dict[str, str] = {}
        """Messages waiting for an answer, by id."""
        self._replies: dict[str, OpenReply] = {}
        self._silence_id = ""
        """The item committed by the idle timeout."""
        self._spoke_at = 0.0
        """Start of the latest speech."""
        self._interruption: Interruption | None = None
        self._records: list[TurnRecord | TurnUnderWay] = []

    def feed(self, at: float, event: Event) -> list[TurnRecord | TurnUnderWay]:
        """Take the next event, published at ``at`` on the loop's clock. Returns the records that it
        completes, or a preliminary one, to publish before the event."""
        match event:
            case SpeechStarted():
                self._speech_started(at, event)
            case SpeechPaused() | SpeechResumed() | SpeechStopped() | SpeechRejected():
                if turn := self._find(event.item_id, State.SPEAKING, State.STOPPED):
                    self._speech(at, event, turn)
            case TurnJudged() | SpeculationDiscarded() | TranscriptReady() | TranscriptFailed():
                self._learn(at, event)
            case SpeechIgnored():
                self._speech_ignored(event)
            case IdleTimeout():
                self._silence_id = event.item_id
            case InputCommitted():
                self._committed(at, event.item_id)
            case InputCleared():
                for turn in self._in(State.STOPPED):
                    self._end(turn, "dropped", at)
            case ItemAdded():
                self._item_added(event)
            case ItemTruncated():
                for reply in self._replies.values():
                    if reply.message_id == event.item_id:
                        reply.heard_s = event.audio_end_ms / 1000
            case ReplyStarted():
                self._reply_started(at, event)
            case ReplyFinished():
                self._reply_finished(at, event)
            case _ if answer := self._replies.get(getattr(event, "reply_id", "")):
                self._reply(at, event, answer)
        return self._take()

    def close(self, at: float) -> list[TurnRecord | TurnUnderWay]:
        """The session ends: return the records of everything still open."""
        for turn in self._in(State.SPEAKING, State.STOPPED):
            self._end(turn, "shutdown", at)
        for reply in self._replies.values():
            self._end(reply.turn, "shutdown", at, reply)
        for turn in self._in(State.WAITING):
            self._end(turn, "unanswered", at)
        self._replies.clear()
        return self._take()

    def _take(self) -> list[TurnRecord | TurnUnderWay]:
        records, self._records = self._records, []
        return records

    def _in(self, *states: State) -> list[OpenTurn]:
        return [turn for turn in self._turns if turn.state in states]

    def _find(self, item_id: str, *states: State) -> OpenTurn | None:
        """The newest turn with this id (as announced, or in the conversation) that is in one of
        ``states``; without ``states``, in any."""
        for turn in reversed(self._turns):
            if item_id in (turn.speech_id, turn.item_id) and (not states or turn.state in states):
                return turn
        return None

    def _hold(self, turn: OpenTurn, outcome: Outcome, at: float) -> None:
        """Keep a turn. If there are too many in its state, the oldest ends as ``outcome``."""
        self._turns.append(turn)
        if len(alike := self._in(turn.state)) > MAX_WAITING:
            self._end(alike[0], outcome, at)

    # -- speech

    def _speech_started(self, at: float, event: SpeechStarted) -> None:
        speech_id = event.item_id
        self._spoke_at = at
        self._interruption = event.interrupts
        if before := self._find(speech_id, State.SPEAKING, State.STOPPED):
            self._end(before, "dropped", at)
        turn = OpenTurn(State.SPEAKING, "voice", at, speech_id, speech_id, event.audio_ms)
        self._hold(turn, "dropped", at)

    def _speech(
        self,
        at: float,
        event: SpeechPaused | SpeechResumed | SpeechStopped | SpeechRejected,
        turn: OpenTurn,
    ) -> None:
        match event:
            case SpeechPaused():
                turn.began_at = at - event.silence_ms / 1000
                turn.pauses.append(Pause(sample_at(event.audio_ms)))
            case SpeechResumed() if turn.pauses:
                pause = turn.pauses[-1]
                lasted_ms = event.audio_ms - pause.start_sample * 1000 // LISTEN_RATE
                turn.pauses[-1] = replace(pause, lasted_ms=lasted_ms)
            case SpeechStopped():
                turn.state, turn.end_ms, turn.stopped_at = State.STOPPED, event.audio_ms, at
                turn.background_db = event.background_db
            case SpeechRejected():
                turn.text, turn.exclusion = "", event.exclusion
                turn.speaker, turn.doubt = event.speaker, event.doubt
                turn.wasted_s += event.engine_seconds
                self._drop_before(turn, at)
                self._end(turn, "rejected", at)

    def _drop_before(self, turn: OpenTurn, at: float) -> None:
        """Speech is committed in order: earlier speech that was not committed never will be."""
        for other in self._turns[: self._turns.index(turn)]:
            if other.state is State.STOPPED:
                self._end(other, "dropped", at)

    # -- transcripts

    def _committed(self, at: float, item_id: str) -> None:
        turn = self._find(item_id, State.SPEAKING, State.STOPPED)
        if turn is None:
            origin: Origin = "silence" if item_id == self._silence_id else "commit"
            turn = OpenTurn(State.WAITING, origin, at)
        else:
            self._drop_before(turn, at)
            self._turns.remove(turn)
        turn.item_id, turn.state = item_id, State.WAITING
        self._hold(turn, "unanswered", at)

    def _learn(
        self,
        at: float,
        event: TurnJudged | SpeculationDiscarded | TranscriptReady | TranscriptFailed,
    ) -> None:
        """Update a turn that has no record yet, or may get another."""
        if isinstance(event, TranscriptReady) and event.item_id in self._typed:
            self._typed[event.item_id] = event.text
        turn = self._find(event.item_id)
        if turn is None:
            return
        match event:
            case TurnJudged() if turn.pauses:
                pause = turn.pauses[-1]
                after_ms = (at - turn.began_at) * 1000
                judgement = Judgement(after_ms, event.probability, event.wait_ms, event.reasons)
                turn.pauses[-1] = replace(pause, judgements=(*pause.judgements, judgement))
            case SpeculationDiscarded():
                turn.discarded += 1
                turn.wasted_s += event.engine_seconds
            case TranscriptReady():
                turn.text, turn.transcript_at = event.text, at
                turn.exclusion, turn.doubt = event.exclusion, event.doubt
                turn.speaker = event.speaker
            case TranscriptFailed():
                turn.error = event.message
        transcribed = isinstance(event, TranscriptReady | TranscriptFailed)
        if transcribed and not self._answers and turn.state is State.WAITING:
            self._end(turn, "failed" if turn.error else "unanswered", at)

    def _item_added(self, event: ItemAdded) -> None:
        item = event.item
        if isinstance(item, MessageItem) and item.role == "user" and not self._find(item.id):
            self._typed[item.id] = item.text
            if len(self._typed) > MAX_WAITING:
                del self._typed[next(iter(self._typed))]

    # -- answers

    def _reply_started(self, at: float, event: ReplyStarted) -> None:
        if event.reply_id in self._replies:
            return
        turn = OpenTurn(State.ANSWERING, "request", at)
        if event.announces:
            turn.origin = "say"
        elif event.in_conversation:
            turn = self._turn_to_answer(at)
        if event.continues:
            turn.origin = "rest"
        reply = OpenReply(turn, event.in_conversation, at, is_text=event.modality == "text")
        self._replies[event.reply_id] = reply

    def _turn_to_answer(self, at: float) -> OpenTurn:
        """The turn that an answer starting now covers: all that was said and not yet answered."""
        waiting = self._in(State.WAITING)
        before = next(iter(self._in(State.UNHEARD)), None)
        if before and before.item_id and not (waiting or self._typed):
            before.state = State.ANSWERING
            return before
        if not waiting:
            waiting = [OpenTurn(State.WAITING, "text" if self._typed else "request", at)]
            self._turns += waiting
        *earlier, turn = waiting
        for other in earlier:
            self._end(other, "merged", at)
        if turn.origin == "text":
            turn.text = " ".join(text for text in self._typed.values() if text)
        if turn.origin in ("voice", "commit", "text"):
            unheard = before.items if before else ()
            turn.answers_also = (*unheard, *(t.item_id for t in earlier if t.item_id))
        self._forget_unheard()
        self._typed.clear()
        turn.state = State.ANSWERING
        return turn

    def _forget_unheard(self) -> None:
        for turn in self._in(State.UNHEARD):
            self._turns.remove(turn)

    def _speech_ignored(self, event: SpeechIgnored) -> None:
        lasted_ms = event.end_ms - event.audio_ms
        speech = IgnoredSpeech(sample_at(event.audio_ms), lasted_ms, event.said, event.reason)
        for reply in self._replies.values():
            if reply.in_conversation:
                reply.ignored.append(speech)

    def _reply(self, at: float, event: Event, reply: OpenReply) -> None:
        """Take an event of an answer. Notices are not part of it."""
        match event:
            case ReplyItemStarted(item=MessageItem(notice=True)):
                reply.notice_id = event.item.id
            case ClauseFault():
                reply.faults += 1
                reply.left_out += event.left_out
            case ReplyText() if event.item_id != reply.notice_id:
                reply.message_id = event.item_id
                if reply.clauses:
                    reply.clauses[-1].expected_s = 0.0
                reply.clauses.append(Clause(event.text, event.expected_s))
            case ReplyAudio() if event.item_id != reply.notice_id:
                seconds = len(event.pcm) / event.rate
                if reply.last_audio_at is None:
                    self._records.append(TurnUnderWay(_glance(event.reply_id, reply, at)))
                reply.playback.send(seconds, at)
                reply.last_audio_at = at
                if reply.clauses:
                    reply.clauses[-1].sent_s += seconds
            case ReplyItemFinished(item=FunctionCallItem()):
                reply.tool_calls += 1
            case Timeline():
                reply.timeline = event

    def _reply_finished(self, at: float, event: ReplyFinished) -> None:
        reply = self._replies.pop(event.reply_id, None)
        if reply is None:
            return
        if event.reason == "turn_detected" and at - self._spoke_at < CLOSING_S:
            at = self._spoke_at
        record = self._end(reply.turn, _outcome(event), at, reply, event)
        if reply.in_conversation and reply.turn.origin != "say":
            self._forget_unheard()
            counts = record.heard_s > TALKED_OVER_S or record.tool_calls or reply.is_text
            if event.reason == "turn_detected" and not counts:
                self._turns.append(reopen(reply.turn))

    # -- records

    def _end(
        self,
        turn: OpenTurn,
        outcome: Outcome,
        at: float,
        reply: OpenReply | None = None,
        finished: ReplyFinished | None = None,
    ) -> TurnRecord:
        if turn in self._turns:
            self._turns.remove(turn)
        record = record_of(turn, outcome, at)
        if reply:
            record = with_reply(record, turn, reply, at)
        if finished:
            record = replace(
                record,
                reply_id=finished.reply_id,
                status=finished.status,
                reason=finished.reason,
                error=finished.error,
                usage=finished.usage,
                engine_used_s=finished.engine_seconds,
                cut_by=self._interruption if outcome == "interrupted" else None,
            )
        self._records.append(record)
        return record


def _glance(reply_id: str, reply: OpenReply, at: float) -> TurnRecord:
    """The record so far, at the first audio. The other figures follow at the end."""
    turn = reply.turn
    record = with_reply(record_of(turn, "answered", at), turn, reply, at)
    first_audio_ms = (at - turn.began_at) * 1000
    return replace(record, reply_id=reply_id, first_audio_ms=first_audio_ms, ended_ms=None)


def _outcome(event: ReplyFinished) -> Outcome:
    if event.status == "failed":
        return "failed"
    if event.status != "cancelled":
        return "answered"
    match event.reason:
        case "turn_detected":
            return "interrupted"
        case "resumed":
            return "merged"
        case "shutdown":
            return "shutdown"
        case _:
            return "cancelled"
