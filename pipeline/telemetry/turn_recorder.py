"""Folds a session's events into turn records. Pure: events and their times in, records out.

It copes with whatever order events come in, and holds a bounded number of turns: a record must
never harm the conversation that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pipeline.audio import LISTEN_RATE
from pipeline.conversation.chat import BARELY_HEARD_S
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
    again,
    record_of,
    sample_at,
    with_reply,
)
from pipeline.turn_record import IgnoredSpeech, Interruption, Judgement, Outcome, Pause, TurnRecord

CLOSING_S = 0.1
"""Closing an answer that is interrupted may take so long; what was heard of it counts up to the
speech that interrupts it."""

MAX_HELD = 16
"""Turns, and typed messages, that may wait for their answer; older ones count as unanswered."""


class TurnRecorder:
    """One session's. ``answers`` False: a session that only transcribes."""

    def __init__(self, *, answers: bool = True) -> None:
        self._answers = answers
        self._said: dict[str, OpenTurn] = {}
        """Speech by the id it was announced with, until it is committed or gone."""
        self._asked: list[OpenTurn] = []
        """Committed, and waiting for an answer."""
        self._typed: dict[str, str] = {}
        self._replies: dict[str, OpenReply] = {}
        self._unheard: OpenTurn | None = None
        """The question whose answer had hardly begun when the user spoke on: it waits again."""
        self._silences: set[str] = set()
        self._spoke_at = 0.0
        self._interruption: Interruption | None = None
        """When speech last began."""
        self._stopped_last: OpenTurn | None = None
        self._done: list[TurnRecord | TurnUnderWay] = []
        self._handlers: Mapping[type, Callable[[float, Any], None]] = {
            SpeechStarted: self._speech_started,
            SpeechPaused: self._paused,
            SpeechResumed: self._resumed,
            TurnJudged: self._judged,
            SpeechStopped: self._stopped,
            SpeechRejected: self._rejected,
            SpeechIgnored: self._ignored,
            InputCommitted: self._input_committed,
            InputCleared: self._cleared,
            IdleTimeout: self._idle,
            TranscriptReady: self._transcript,
            TranscriptFailed: self._transcript_failed,
            ItemAdded: self._item_added,
            ItemTruncated: self._truncated,
            SpeculationDiscarded: self._discarded,
            ReplyStarted: self._reply_started,
            ReplyItemStarted: self._reply_item_started,
            ReplyText: self._reply_text,
            ReplyAudio: self._reply_audio,
            ClauseFault: self._clause_fault,
            ReplyItemFinished: self._reply_item,
            Timeline: self._timeline,
            ReplyFinished: self._reply_finished,
        }

    def feed(self, at: float, event: Event) -> list[TurnRecord | TurnUnderWay]:
        """Take the next event, published at ``at`` seconds of the loop's clock; the records that
        it completes, or the first glance at one. They belong before the event itself."""
        if handle := self._handlers.get(type(event)):
            handle(at, event)
            if self._stopped_last and not isinstance(event, SpeechStopped):
                self._stopped_last = None
        return self._take()

    def close(self, at: float) -> list[TurnRecord | TurnUnderWay]:
        """The session ends: records of all that is still open."""
        for turn in list(self._said.values()):
            self._end(turn, "shutdown", at)
        for reply in list(self._replies.values()):
            self._end(reply.turn, "shutdown", at, reply)
        for turn in self._asked:
            self._end(turn, "unanswered", at)
        self._said.clear()
        self._replies.clear()
        self._asked.clear()
        return self._take()

    def _take(self) -> list[TurnRecord | TurnUnderWay]:
        done, self._done = self._done, []
        return done

    # -- speech

    def _speech_started(self, at: float, event: SpeechStarted) -> None:
        speech_id = event.item_id
        self._spoke_at = at
        self._interruption = event.interrupts
        if before := self._said.pop(speech_id, None):
            self._end(before, "dropped", at)
        self._said[speech_id] = OpenTurn("voice", at, speech_id, speech_id, event.audio_ms)
        while len(self._said) > MAX_HELD:
            self._end(self._said.pop(next(iter(self._said))), "dropped", at)

    def _paused(self, at: float, event: SpeechPaused) -> None:
        if turn := self._said.get(event.item_id):
            turn.began_at = at - event.silence_ms / 1000
            turn.pauses.append(Pause(sample_at(event.audio_ms)))

    def _resumed(self, at: float, event: SpeechResumed) -> None:
        turn = self._said.get(event.item_id)
        if turn and turn.pauses:
            pause = turn.pauses[-1]
            lasted_ms = event.audio_ms - pause.start_sample * 1000 // LISTEN_RATE
            turn.pauses[-1] = replace(pause, lasted_ms=lasted_ms)

    def _judged(self, at: float, event: TurnJudged) -> None:
        turn = self._find(event.item_id)
        if turn and turn.pauses:
            pause = turn.pauses[-1]
            after_ms = (at - turn.began_at) * 1000
            judged = Judgement(after_ms, event.probability, event.wait_ms, event.reasons)
            turn.pauses[-1] = replace(pause, judgements=(*pause.judgements, judged))

    def _stopped(self, at: float, event: SpeechStopped) -> None:
        if turn := self._said.get(event.item_id):
            turn.end_ms, turn.stopped_at = event.audio_ms, at
            self._stopped_last = turn

    def _rejected(self, at: float, event: SpeechRejected) -> None:
        if turn := self._said.pop(event.item_id, None):
            turn.text = ""
            turn.wasted_s += event.engine_seconds
            self._drop_before(turn, at)
            self._end(turn, "rejected", at)

    def _cleared(self, at: float, event: InputCleared) -> None:
        for speech_id, turn in list(self._said.items()):
            if turn.stopped_at is not None:
                self._end(self._said.pop(speech_id), "dropped", at)

    def _drop_before(self, turn: OpenTurn, at: float) -> None:
        """Speech is committed in its order: what stopped before and was not, never will be."""
        for speech_id, other in list(self._said.items()):
            if other.stopped_at is None or turn.stopped_at is None:
                continue
            if other.stopped_at < turn.stopped_at:
                self._end(self._said.pop(speech_id), "dropped", at)

    # -- what was said

    def _idle(self, at: float, event: IdleTimeout) -> None:
        self._silences = {event.item_id}

    def _input_committed(self, at: float, event: InputCommitted) -> None:
        turn = self._said.pop(event.item_id, None)
        if turn is None and self._stopped_last and event.item_id not in self._silences:
            # The client had used the id for something else, so its speech got another one.
            turn = self._said.pop(self._stopped_last.speech_id or "", None)
        if turn is None:
            silent = event.item_id in self._silences
            turn = OpenTurn("silence" if silent else "commit", at)
        turn.item_id, turn.committed = event.item_id, True
        self._drop_before(turn, at)
        self._asked.append(turn)
        while len(self._asked) > MAX_HELD:
            self._end(self._asked.pop(0), "unanswered", at)

    def _transcript(self, at: float, event: TranscriptReady) -> None:
        if event.item_id in self._typed:
            self._typed[event.item_id] = event.text
        if turn := self._find(event.item_id):
            turn.text, turn.transcript_at = event.text, at
            self._only_transcribed(turn, at)

    def _transcript_failed(self, at: float, event: TranscriptFailed) -> None:
        if turn := self._find(event.item_id):
            turn.error = event.message
            self._only_transcribed(turn, at)

    def _only_transcribed(self, turn: OpenTurn, at: float) -> None:
        if not self._answers and turn in self._asked:
            self._asked.remove(turn)
            self._end(turn, "failed" if turn.error else "unanswered", at)

    def _item_added(self, at: float, event: ItemAdded) -> None:
        item = event.item
        if isinstance(item, MessageItem) and item.role == "user" and not self._find(item.id):
            self._typed[item.id] = item.text
            while len(self._typed) > MAX_HELD:
                del self._typed[next(iter(self._typed))]

    def _discarded(self, at: float, event: SpeculationDiscarded) -> None:
        if turn := self._find(event.item_id):
            turn.discarded += 1
            turn.wasted_s += event.engine_seconds

    def _find(self, item_id: str) -> OpenTurn | None:
        """A turn that has no record yet, or may get another, by either of its ids."""
        if turn := self._said.get(item_id):
            return turn
        waiting = (*self._asked, *(reply.turn for reply in self._replies.values()), self._unheard)
        return next((t for t in waiting if t and item_id in (t.item_id, t.speech_id)), None)

    # -- answers

    def _reply_started(self, at: float, event: ReplyStarted) -> None:
        if event.reply_id in self._replies:
            return
        turn = self._answered(at) if event.in_conversation else OpenTurn("request", at)
        if event.continues:
            turn = replace(turn, origin="rest")
        reply = OpenReply(turn, event.in_conversation, at, is_text=event.modality == "text")
        self._replies[event.reply_id] = reply

    def _answered(self, at: float) -> OpenTurn:
        """An answer to the conversation is one to all that was said and not answered yet."""
        before, self._unheard = self._unheard, None
        if before and before.item_id and not (self._asked or self._typed):
            return before
        *earlier, turn = self._asked or [OpenTurn("text" if self._typed else "request", at)]
        for other in earlier:
            self._end(other, "merged", at)
        if turn.origin == "text":
            turn.text = " ".join(text for text in self._typed.values() if text)
        if turn.origin in ("voice", "commit", "text"):
            unheard = before.items if before else ()
            turn.also = (*unheard, *(t.item_id for t in earlier if t.item_id))
        self._asked.clear()
        self._typed.clear()
        return turn

    def _reply_item_started(self, at: float, event: ReplyItemStarted) -> None:
        reply = self._replies.get(event.reply_id)
        if reply and isinstance(event.item, MessageItem) and event.item.notice:
            reply.notice_id = event.item.id

    def _clause_fault(self, at: float, event: ClauseFault) -> None:
        if reply := self._replies.get(event.reply_id):
            reply.faults += 1
            reply.left_out += event.left_out

    def _reply_text(self, at: float, event: ReplyText) -> None:
        reply = self._replies.get(event.reply_id)
        if reply and event.item_id != reply.notice_id:
            reply.message_id = event.item_id
            if reply.spoken:
                reply.spoken[-1].expected_s = 0.0
            reply.spoken.append(Clause(event.text, event.expected_s))

    def _reply_audio(self, at: float, event: ReplyAudio) -> None:
        reply = self._replies.get(event.reply_id)
        if reply and event.item_id != reply.notice_id:
            seconds = len(event.pcm) / event.rate
            if reply.last_audio_at is None:
                self._done.append(TurnUnderWay(_glance(event.reply_id, reply, at)))
            reply.playback.send(seconds, at)
            reply.last_audio_at = at
            if reply.spoken:
                reply.spoken[-1].sent_s += seconds

    def _ignored(self, at: float, event: SpeechIgnored) -> None:
        lasted_ms = event.end_ms - event.audio_ms
        noted = IgnoredSpeech(sample_at(event.audio_ms), lasted_ms, event.said, event.reason)
        for reply in self._replies.values():
            if reply.in_conversation:
                reply.ignored.append(noted)

    def _reply_item(self, at: float, event: ReplyItemFinished) -> None:
        reply = self._replies.get(event.reply_id)
        if reply and isinstance(event.item, FunctionCallItem):
            reply.tool_calls += 1

    def _truncated(self, at: float, event: ItemTruncated) -> None:
        for reply in self._replies.values():
            if reply.message_id == event.item_id:
                reply.heard_s = event.audio_end_ms / 1000

    def _timeline(self, at: float, event: Timeline) -> None:
        if reply := self._replies.get(event.reply_id):
            reply.timeline = event

    def _reply_finished(self, at: float, event: ReplyFinished) -> None:
        reply = self._replies.pop(event.reply_id, None)
        if reply is None:
            return
        if event.reason == "turn_detected" and at - self._spoke_at < CLOSING_S:
            at = self._spoke_at
        record = self._end(reply.turn, _outcome(event), at, reply, event)
        if reply.in_conversation:
            talked_over = (
                event.reason == "turn_detected"
                and record.heard_s <= BARELY_HEARD_S
                and not (record.tool_calls or reply.is_text)
            )
            self._unheard = again(reply.turn) if talked_over else None

    # -- records

    def _end(
        self,
        turn: OpenTurn,
        outcome: Outcome,
        at: float,
        reply: OpenReply | None = None,
        finished: ReplyFinished | None = None,
    ) -> TurnRecord:
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
        self._done.append(record)
        return record


def _glance(reply_id: str, reply: OpenReply, at: float) -> TurnRecord:
    """At its first audio. The moments in between are known at the end."""
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
