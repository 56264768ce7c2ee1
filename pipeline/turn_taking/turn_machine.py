"""Decides what becomes of the user's speech. Pure: ``on`` takes a fact and returns actions, which
``TurnRunner`` carries out.

Why an answer was cut: only ``_publish`` cuts one, for the reason that the words gave
(``pipeline.turn_taking.barge_in``), or because it had hardly begun (``Onset.effect``). Why a turn
waits: see ``pipeline.turn_taking.endpointing``. Its states: ``pipeline.turn_taking.turn``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from pipeline.events import StopReason
from pipeline.hearing.turn_taker import TurnEnd, TurnPause
from pipeline.settings import BargeIn
from pipeline.turn_record import Interruption
from pipeline.turn_taking.barge_in import OverlapReview, Verdict, ignored, interrupts
from pipeline.turn_taking.turn import Turn, TurnState
from pipeline.turn_taking.turn_facts import (
    Act,
    Action,
    ClientRequest,
    Conclusion,
    Configuration,
    Do,
    Fact,
    Ignore,
    Mistake,
    NothingLeft,
    Onset,
    Reading,
    Resume,
    Resumption,
    SpeechProgress,
    Start,
    Stop,
)

Actions = Iterator[Action]


class TurnMachine:
    """The turns of one listener: one may be open, and others wait to be committed."""

    def __init__(self, settings: BargeIn, answers: bool) -> None:
        """``answers``: whether the session answers turns by itself."""
        self.open: Turn | None = None
        """The turn whose end has not been heard."""
        self.ended: list[Turn] = []
        """Turns that are over but not committed yet, oldest first."""
        self._settings = settings
        self._answers = answers
        self._closed_to = 0
        """Sample index before which no turn may begin."""

    def on(self, fact: Fact) -> list[Action]:
        """Take a fact; returns what to do now, in order."""
        return list(self._on(fact))

    def _on(self, fact: Fact) -> Actions:
        match fact:
            case Onset():
                yield from self._begin(fact)
            case SpeechProgress():
                yield from self._look(fact)
            case Reading(turn, verdict, text):
                yield from self._judge(turn, verdict, text)
            case TurnPause():
                yield from self._pause(fact)
            case Resumption():
                yield from self._resume(fact)
            case Mistake(turn):
                turn.mistake = True
            case TurnEnd():
                yield from self._end(fact)
            case Conclusion():
                yield from self._conclude(fact)
            case NothingLeft(turn):
                yield from self._settle(turn)
            case Configuration(answers):
                self._answers = answers
                for turn in self.turns:
                    turn.wants_answer = turn.wants_answer and answers
            case ClientRequest():
                yield from self._serve(fact)

    @property
    def turns(self) -> list[Turn]:
        """All turns that are not committed yet, oldest first."""
        return [*self.ended, self.open] if self.open else list(self.ended)

    # -- speech begins

    def _begin(self, fact: Onset) -> Actions:
        """Publish a new turn at once, or review it first. If a turn is open, it was background: the
        new speaker is nearer."""
        background, self.open = self.open, None
        if background:
            self._closed_to = fact.at
            was_published = not background.state.overlaps
            yield from self._drop(background, "spoke again", fact.at)
            if was_published:
                yield Act(Do.REJECT, background)
        start = max(fact.at - fact.padding_samples, self._closed_to, 0)
        needs_review = fact.effect == "review"
        state = TurnState.OVERLAP if needs_review else TurnState.SPEECH
        review = OverlapReview(self._settings, fact.at)
        turn = self.open = Turn(fact.item_id, start, fact.at, state, review)
        yield Act(Do.LISTEN, turn)
        if needs_review:
            yield Act(Do.HOLD, turn)
        else:
            yield from self._publish(turn, "any speech" if fact.effect == "interrupt" else None)

    def _publish(self, turn: Turn, why: Interruption | None) -> Actions:
        """The user speaks to the robot. A turn that still waits for its transcript belongs to the
        same thought, and is answered together with this one."""
        for before in itertools.takewhile(lambda other: other is not turn, list(self.ended)):
            if before.state.overlaps:
                yield from self._interrupt(before, "words")
            if before.state is TurnState.END:
                before.move("merge")
                yield Stop(before, "spoke again", before.end)
        yield Start(turn, why)
        yield Act(Do.INTERRUPT, turn)

    # -- speech over an answer

    def _look(self, fact: SpeechProgress) -> Actions:
        turn = self.open
        if turn and turn.state.speaks and turn.state.overlaps:
            match turn.review.hear(fact.end, fact.is_reading):
                case "read the words":
                    yield Act(Do.READ, turn)
                case "judge by length":
                    yield Act(Do.MEASURE, turn)

    def _judge(self, turn: Turn, verdict: Verdict, text: str | None) -> Actions:
        if not turn.state.overlaps:
            return
        if text and turn.state.speaks:
            turn.review.readings.append(text)
        if interrupts(verdict):
            yield from self._interrupt(turn, verdict)
        elif ignored(verdict):
            turn.harmless_for = verdict
            if turn.state.holds:
                turn.move("release")
                yield Act(Do.RELEASE, turn)

    def _interrupt(self, turn: Turn, why: Interruption) -> Actions:
        """Speech over an answer is meant for the robot."""
        turn.move("interrupt")
        yield from self._publish(turn, why)

    # -- a pause

    def _pause(self, fact: TurnPause) -> Actions:
        if turn := self.open:
            turn.move("pause")
            turn.speech_end, turn.end = fact.speech_end, fact.end
            turn.wants_answer, turn.mistake = self._answers, False
            yield Act(Do.ATTEMPT, turn)

    def _resume(self, fact: Resumption) -> Actions:
        if turn := self.open:
            went_on = turn.state.overlaps and not turn.state.holds
            turn.move("resume")
            yield Resume(turn, fact.start, fact.within_word)
            if turn.state.holds:
                yield Act(Do.HOLD, turn)
                turn.review.resume(fact.end, went_on)

    # -- the turn is over

    def _end(self, fact: TurnEnd) -> Actions:
        if turn := self.open:
            self.open = None
            turn.move("end")
            turn.background_db = fact.below_db
            self.ended.append(turn)
            self._closed_to = turn.end
            yield Act(Do.CONCLUDE, turn)

    def _conclude(self, fact: Conclusion) -> Actions:
        turn = fact.turn
        if turn.state.holds:
            yield from self._interrupt(turn, "words")  # no more can be known
        overlaps = turn.state.overlaps
        self.ended.remove(turn)
        if overlaps or turn.mistake or not fact.text:
            yield Act(Do.FORGET_SPEAKER, turn)
        if overlaps and turn.harmless_for:
            turn.move("ignore")
            yield Ignore(turn, fact.exclusion or turn.harmless_for)
            return
        merged = turn.state is TurnState.MERGED
        if not merged:
            yield Stop(turn, "silence", turn.end)
        turn.move("reject" if fact.text == "" else "commit")
        yield Act(Do.REJECT if fact.text == "" else Do.COMMIT, turn)
        if turn.mistake and turn.wants_answer and not (merged or self.turns):
            yield Act(Do.CONTINUE, turn)
        else:
            yield from self._settle(turn, merged)

    def _settle(self, turn: Turn, merged: bool = False) -> Actions:
        """Answer a committed turn if it wants an answer; no interrupted answer goes on after it."""
        if turn.state is TurnState.COMMITTED:
            do = Do.ANSWER_LATER if merged else Do.ANSWER
            yield Act(do if turn.wants_answer else Do.DISCARD_ANSWER, turn)

    # -- requests of the client

    def _serve(self, fact: ClientRequest) -> Actions:
        match fact.kind:
            case "cancel":
                if self.open and self.open.state.overlaps:
                    yield from self._interrupt(self.open, "client")
            case "commit":
                turn, self.open = self.open, None
                if turn:
                    self._closed_to = fact.end
                    yield from self._hand_over(turn, fact.end)
            case "commit ended":
                for turn in self.ended:
                    yield from self._hand_over(turn, turn.end)
                self.ended.clear()
            case "clear":
                turn, self.open = self.open, None
                self._closed_to = max(self._closed_to, fact.end)
                if turn:
                    yield from self._drop(turn, "client", fact.end)
            case "clear ended":
                ended, self.ended = self.ended, []
                for turn in ended:
                    yield from self._drop(turn, "client", turn.end)

    def _hand_over(self, turn: Turn, end: int) -> Actions:
        """The client commits the turn itself."""
        if turn.state.overlaps:
            yield from self._interrupt(turn, "client")
        stopped = turn.state is TurnState.MERGED
        turn.move("commit")
        yield Act(Do.HAND_OVER, turn)
        if not stopped:
            yield Stop(turn, "client", end)

    def _drop(self, turn: Turn, why: StopReason, end: int) -> Actions:
        """Drop the turn; none of it is committed."""
        state = turn.state
        turn.move("drop")
        yield Act(Do.DROP, turn)
        if state.overlaps:
            yield Act(Do.RELEASE, turn)
        elif state is not TurnState.MERGED:
            yield Stop(turn, why, end)
