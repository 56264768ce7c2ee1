"""Carries out what ``TurnMachine`` decides: recognises, commits and answers speech, and interrupts
answers. What happens is told by ``pipeline.turn_taking.turns`` (what is heard, what the client
wants), ``overlaps`` and ``attempts`` (what was said)."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing

from pipeline.context import SessionContext
from pipeline.conversation.transcribing import Transcriber
from pipeline.hearing.listening import Listener
from pipeline.hearing.recognition import StableWords, recognition_of
from pipeline.speaking.replies import Replies
from pipeline.turn_taking.attempts import Attempts
from pipeline.turn_taking.overlaps import Overlaps
from pipeline.turn_taking.speech_events import SpeechEvents
from pipeline.turn_taking.turn import Turn
from pipeline.turn_taking.turn_facts import (
    Act,
    Action,
    ClientRequest,
    Do,
    Fact,
    Ignore,
    NothingLeft,
    Resume,
    Start,
    Stop,
)
from pipeline.turn_taking.turn_machine import TurnMachine
from pipeline.turn_taking.utterance import Attempt, TurnUtterance


class TurnRunner:
    """The work for the turns of one session. Lives in the session's TaskGroup."""

    def __init__(
        self,
        context: SessionContext,
        listener: Listener,
        events: SpeechEvents,
        overlaps: Overlaps,
        attempts: Attempts,
        replies: Replies,
        transcriber: Transcriber,
    ) -> None:
        self._context = context
        self._tasks = context.tasks
        self._listener = listener
        self._events = events
        self._overlaps = overlaps
        self._attempts = attempts
        self._replies = replies
        self._transcriber = transcriber
        self._machine = TurnMachine(context.settings.barge_in, context.config.answers_turns)
        self._utterances: dict[Turn, TurnUtterance] = {}
        self._facts: deque[Fact] = deque()
        """The fact that is being acted on, and those that its actions have brought."""

    @property
    def busy(self) -> bool:
        """Whether a turn is open, waits to be committed, or is being committed."""
        return bool(self._utterances)

    @property
    def open(self) -> TurnUtterance | None:
        """The turn whose end has not been heard."""
        return self._utterances[self._machine.open] if self._machine.open else None

    @property
    def ended(self) -> list[TurnUtterance]:
        """Turns that have ended but are not committed yet, oldest first."""
        return [self._utterances[turn] for turn in self._machine.ended]

    def feed(self, utterance: TurnUtterance, end: int) -> None:
        """Feed the recogniser up to ``end``; once speech resumed, without the assumed silence."""
        speaks, start = utterance.turn.state.speaks, utterance.fed_to
        pcm = (self._listener.read_sent if speaks else self._listener.read)(start, end)
        if len(pcm):
            utterance.recognition.append(pcm)
        utterance.fed_to = max(start, end)

    def drop_open(self) -> None:
        """Forget the open turn; none of it is committed."""
        self._listener.forget_turn()
        self.tell(ClientRequest("clear", self._listener.heard_end))

    # -- actions

    def tell(self, fact: Fact) -> None:
        """Take a fact, and do what follows from it. A fact that an action brings is taken once all
        actions are done."""
        self._facts.append(fact)
        if len(self._facts) > 1:
            return
        try:
            while self._facts:
                for action in self._machine.on(self._facts[0]):
                    self._carry_out(action)
                self._facts.popleft()
        finally:
            self._facts.clear()
        for turn in self._utterances.keys() - set(self._machine.turns):
            del self._utterances[turn]
        if not self.busy:
            self._replies.answer_pending()

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Act):
            if action.do is Do.LISTEN:
                self._listen(action.turn)
            else:
                self._act(action.do, self._utterances[action.turn])
            return
        utterance = self._utterances[action.turn]
        match action:
            case Start(_, why):
                utterance.reading.cancel()
                self._events.start(utterance, why)
            case Resume(turn, at, within_word):
                if not turn.state.overlaps:
                    self._events.resume(turn, at)
                self._attempts.resume(utterance, at, within_word)
            case Stop(turn, stop_reason, at):
                self._events.stop(turn, at, stop_reason)
            case Ignore(_, reason):
                utterance.reading.cancel()
                self._events.ignore(utterance, reason)

    def _act(self, do: Do, utterance: TurnUtterance) -> None:
        attempt = utterance.attempt
        match do:
            case Do.HOLD:
                if hold := self._overlaps.hold():
                    self._release(utterance)
                    utterance.hold = hold
            case Do.RELEASE:
                self._release(utterance)
            case Do.READ:
                self._read(utterance)
            case Do.MEASURE:
                self.tell(self._overlaps.read_length(utterance))
            case Do.INTERRUPT if self._context.config.interruptible:
                utterance.hold, utterance.cut_reply = None, self._replies.interrupt()
            case Do.INTERRUPT:
                self._release(utterance)
            case Do.ATTEMPT:
                self._attempt(utterance)
            case Do.DROP:
                utterance.reading.cancel()
                self._attempts.discard(utterance)
                utterance.recognition.stop()
            case Do.HAND_OVER:
                self._attempts.discard(utterance)
                self._replies.forget_pending()
            case Do.FORGET_SPEAKER:
                self._listener.forget_speaker()
                if not self._machine.turns:  # else a later turn shows the language
                    self._context.heard_language = utterance.language_before
            case Do.REJECT:
                self._events.reject(utterance)
            case _:
                assert attempt, f"{do} without a pause"
                self._settle(do, utterance, attempt)

    def _settle(self, do: Do, utterance: TurnUtterance, attempt: Attempt) -> None:
        """Actions that end a turn after a pause."""
        match do:
            case Do.CONCLUDE:
                attempt.news.set()
            case Do.COMMIT:
                if attempt.speculative:
                    attempt.speculative.speech.committed = True
                item_id = utterance.turn.item_id
                self._transcriber.commit(item_id, utterance.recognition, attempt.words)
            case Do.ANSWER:
                if not self._replies.fits(attempt.reply):
                    self._attempts.discard_answer(attempt)
                work, since = attempt.work, attempt.paused_at
                self._replies.answer(attempt.reply, work, since, attempt.error)
            case Do.ANSWER_LATER:
                self._attempts.discard_answer(attempt)
                self._replies.answer_later(attempt.paused_at)
            case Do.DISCARD_ANSWER:
                self._attempts.discard_answer(attempt)
            case Do.CONTINUE:
                if (cut := utterance.cut_reply) and self._replies.resume(cut, attempt.paused_at):
                    self._attempts.discard_answer(attempt)
                else:
                    self.tell(NothingLeft(utterance.turn))

    def _listen(self, turn: Turn) -> None:
        def on_words(words: str, stable: StableWords) -> None:
            if turn.state.overlaps:
                utterance.unpublished_words += words
                return
            self._events.words(turn, words)
            if turn is self._machine.open:
                self._attempts.hear_words(utterance, words, stable)

        wants_words = self._events.partials or self._attempts.wants_partials
        recognition = recognition_of(self._context, on_words if wants_words else None)
        utterance = self._utterances[turn] = TurnUtterance(
            turn, recognition.begin(self._tasks), turn.start, self._context.heard_language
        )

    def _release(self, utterance: TurnUtterance) -> None:
        hold, utterance.hold = utterance.hold, None
        if hold:
            hold.release()

    def _read(self, utterance: TurnUtterance) -> None:
        if self._listener.hears_the_answer():
            self.drop_open()
        else:
            utterance.is_reading = True
            self._tasks.create_task(self._look(utterance))

    async def _look(self, utterance: TurnUtterance) -> None:
        reading = await self._overlaps.read_words(utterance)
        utterance.is_reading = False
        if utterance.turn.state.speaks and not utterance.reading.cancelled:
            self.tell(reading)

    def _attempt(self, utterance: TurnUtterance) -> None:
        turn = utterance.turn
        if not turn.state.overlaps:
            self._events.pause(turn)
        self.feed(utterance, turn.end)
        before = self._utterances[self._machine.ended[-1]] if self._machine.ended else None
        attempt = self._attempts.begin(utterance)
        task = before.attempt.task if before and before.attempt else None
        attempt.task = self._tasks.create_task(self._follow(utterance, attempt, task))

    async def _follow(
        self, utterance: TurnUtterance, attempt: Attempt, before: asyncio.Task[None] | None
    ) -> None:
        async with aclosing(self._attempts.facts(utterance, attempt, before)) as facts:
            async for fact in facts:
                self.tell(fact)
