"""Publishes the events of the user's speech."""

from __future__ import annotations

import asyncio

from pipeline import events
from pipeline.audio import ms_of
from pipeline.context import SessionContext
from pipeline.hearing.direction import Directions
from pipeline.hearing.listening import Listener
from pipeline.turn_record import Ignored, Interruption
from pipeline.turn_taking.turn import Turn
from pipeline.turn_taking.utterance import TurnUtterance


class SpeechEvents:
    """One method for each event."""

    def __init__(self, context: SessionContext, listener: Listener, directions: Directions) -> None:
        self._context = context
        self._bus = context.bus
        self._listener = listener
        self._ms_of = listener.ms_of
        self._directions = directions

    @property
    def partials(self) -> bool:
        """Whether partial transcripts are published."""
        return self._context.config.partials or self._context.settings.partials

    def start(self, utterance: TurnUtterance, why: Interruption | None) -> None:
        """Publish that the user speaks, then the words and the pause that were held back."""
        turn, now = utterance.turn, asyncio.get_running_loop().time()
        direction_deg = self._directions.now_deg(now)
        self._bus.publish(
            events.SpeechStarted(turn.item_id, self._ms_of(turn.start), direction_deg, why)
        )
        words, utterance.unpublished_words = utterance.unpublished_words, ""
        self.words(turn, words)
        if not turn.state.speaks:
            self.pause(turn)

    def words(self, turn: Turn, words: str) -> None:
        if words and self.partials:
            self._bus.publish(events.TranscriptPartial(turn.item_id, words))

    def pause(self, turn: Turn) -> None:
        silence_ms = ms_of(self._listener.heard_end - turn.speech_end)
        self._bus.publish(
            events.SpeechPaused(turn.item_id, self._ms_of(turn.speech_end), silence_ms)
        )

    def resume(self, turn: Turn, start: int) -> None:
        self._bus.publish(events.SpeechResumed(turn.item_id, self._ms_of(start)))

    def stop(self, turn: Turn, end: int, why: events.StopReason) -> None:
        direction_deg = self._directions.lately_deg(asyncio.get_running_loop().time())
        background_db = turn.background_db
        self._bus.publish(
            events.SpeechStopped(turn.item_id, self._ms_of(end), direction_deg, why, background_db)
        )

    def ignore(self, utterance: TurnUtterance, why: Ignored) -> None:
        """Publish that speech did not interrupt the answer."""
        heard = utterance.attempt.transcript if utterance.attempt else None
        text = (heard.doubt.text if heard.doubt else heard.text) if heard else ""
        heard_ms = self._ms_of(utterance.turn.onset), self._ms_of(utterance.fed_to)
        self._bus.publish(events.SpeechIgnored(*heard_ms, text, why))

    def reject(self, utterance: TurnUtterance) -> None:
        """Publish that a turn had no words that count."""
        attempt, item_id = utterance.attempt, utterance.turn.item_id
        spent_s = attempt.engine_seconds if attempt else 0.0
        heard = attempt.transcript if attempt else None
        why = (heard.exclusion, heard.doubt, heard.speaker) if heard else ("background",)
        self._bus.publish(events.SpeechRejected(item_id, spent_s, *why))
