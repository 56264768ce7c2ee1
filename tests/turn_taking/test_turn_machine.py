"""Whatever happens, the machine of turns loses no words, answers once and lets the answer go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.hearing.turn_taker import TurnEnd, TurnPause
from pipeline.settings import BargeIn
from pipeline.turn_record import Ignored, Interruption
from pipeline.turn_taking.barge_in import Verdict, ignored
from pipeline.turn_taking.turn import TRANSITIONS, Move, Turn, TurnState
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
    Resumption,
    SpeechProgress,
    Start,
    Stop,
)
from pipeline.turn_taking.turn_machine import TurnMachine

pytestmark = pytest.mark.quick

ARCHITECTURE = Path(__file__).parents[2] / "docs/architecture.md"
STATES = {state.value: state for state in TurnState}
VERDICTS: tuple[Verdict, ...] = (
    "unsure",
    *[why for why in get_args(Interruption) if why in ("words", "command", "long")],
    *[why for why in get_args(Ignored) if why in ("backchannel", "echo")],
)
AUDIBLE: tuple[Literal["no", "interrupt", "review"], ...] = ("no", "interrupt", "review", "review")
REQUESTS = [
    ClientRequest(kind) for kind in ("commit", "commit ended", "clear", "clear ended", "cancel")
]
TEXTS = ("so", "", None)
LAST = (TurnState.COMMITTED, TurnState.IGNORED, TurnState.REJECTED, TurnState.DROPPED)


def transitions_in_the_docs() -> Iterator[tuple[str, TurnState, TurnState]]:
    text = ARCHITECTURE.read_text("utf-8")
    for row in text.partition("| move | when |")[2].partition("\n\n")[0].splitlines()[2:]:
        move, _, pairs = (cell.strip() for cell in row.strip("|").split("|"))
        for pair in pairs.split(";"):
            before, _, after = pair.partition("→")
            for state in before.split(","):
                yield move, STATES[state.strip()], STATES[after.strip()]


def test_the_table_of_transitions_in_the_docs() -> None:
    in_code = {
        (move, before, after)
        for move, states in TRANSITIONS.items()
        for before, after in states.items()
    }
    assert set(transitions_in_the_docs()) == in_code


def test_every_state_can_be_reached_and_left() -> None:
    after = {state for states in TRANSITIONS.values() for state in states.values()}
    before = {state for states in TRANSITIONS.values() for state in states}
    assert after == set(TurnState)
    assert before == set(TurnState) - set(LAST)
    assert set(TRANSITIONS) == set(get_args(Move))


class World:
    """Sends facts as a listener, engines and a client may, and checks the actions."""

    def __init__(self) -> None:
        self.machine = TurnMachine(BargeIn(), True)
        self.now = 0
        self.turns: list[Turn] = []
        self.outcomes: dict[Turn, Do | type[Ignore]] = {}
        self.answers: Counter[Turn] = Counter()
        self.started: list[Turn] = []
        self.stopped: list[Turn] = []
        self.held: set[Turn] = set()
        self.cut: Turn | None = None
        """The turn that interrupted the answer that was heard."""
        self.audible = False
        self.reads = False
        self.waiting = False
        """Whether an answer waits for a later turn."""
        self.configured = False
        self.continued: Turn | None = None

    def tell(self, fact: Fact) -> None:
        for action in self.machine.on(fact):
            self.check(action, fact)
        assert self.held == {turn for turn in self.machine.turns if turn.state.holds}
        self.waiting = self.waiting and bool(self.machine.turns)  # else the session answers now
        known = {turn for turn in self.machine.turns if not turn.state.overlaps}
        assert known <= set(self.started)
        assert not [turn for turn in self.machine.turns if turn.state in LAST]

    def check(self, action: Action, fact: Fact) -> None:
        turn = action.turn
        match action:
            case Act():
                self.check_act(action.do, turn, fact)
            case Start():
                assert turn not in self.started
                assert self.stopped == self.started, "one turn after the other is published"
                self.started.append(turn)
            case Stop():
                self.stopped.append(turn)
                assert self.stopped == self.started
            case Ignore(_, why):
                assert ignored(why)
                assert turn not in self.started
                self.finish(turn, Ignore)

    def check_act(self, do: Do, turn: Turn, fact: Fact) -> None:
        match do:
            case Do.LISTEN:
                self.turns.append(turn)
            case Do.HOLD:
                self.held.add(turn)
            case Do.RELEASE:
                self.held.discard(turn)
            case Do.INTERRUPT:
                self.held.discard(turn)
                if self.audible:
                    self.audible, self.cut = False, turn
            case Do.READ:
                self.reads = True
            case Do.DROP:
                assert isinstance(fact, Onset | ClientRequest)
                self.finish(turn, do)
            case Do.REJECT if self.outcomes.get(turn) is not Do.DROP:  # else it was background
                assert isinstance(fact, Conclusion)
                assert fact.text == ""
                self.finish(turn, do)
            case Do.COMMIT | Do.HAND_OVER:
                self.finish(turn, do)
            case Do.ANSWER:
                self.answers[turn] += 1
                self.waiting = False
            case Do.ANSWER_LATER:
                self.answers[turn] += 1
                self.waiting = True
            case Do.DISCARD_ANSWER:
                assert not turn.wants_answer
            case Do.CONTINUE:
                assert turn.mistake
                self.answers[turn] += 1
                self.continued, self.waiting = turn, False

    def finish(self, turn: Turn, outcome: Do | type[Ignore]) -> None:
        assert turn not in self.outcomes, "a turn has one outcome"
        self.outcomes[turn] = outcome

    # -- what may happen

    def step(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.now += 2_000
        fact: Fact = draw(st.sampled_from(draw(st.sampled_from(self.possible()))))
        match fact:
            case Onset():
                self.audible = fact.effect != "no"
            case Reading(turn) if turn is self.machine.open:
                self.reads = False
            case NothingLeft(turn):
                self.answers[turn] -= 1
            case Configuration():
                self.configured = True
        self.continued = None
        self.tell(fact)
        if isinstance(fact, ClientRequest) and fact.kind != "cancel":
            self.waiting = False  # the session gives the answer, or the client asks for it

    def possible(self) -> list[list[Fact]]:
        """What may happen next, by kind."""
        name, now = f"item_{len(self.turns)}", self.now
        onsets: list[Fact] = [Onset(name, now, 4_800, each) for each in AUDIBLE]
        if self.continued:
            return [[NothingLeft(self.continued)], onsets]
        turn = self.machine.open
        facts: list[list[Fact]] = [onsets, [Configuration(True), Configuration(False)]]
        facts.append([request._replace(end=now) for request in REQUESTS])
        readings: list[Fact] = [Reading(turn, each, "so") for each in VERDICTS] if turn else []
        if turn and turn.state.speaks:
            silence = TurnPause(now - 512, now)
            facts += [[silence], [silence], [SpeechProgress(now, self.reads)]]
            facts += [readings] * self.reads
        elif turn:
            facts += [[TurnEnd(now)], [TurnEnd(now)], readings, [Resumption(now, now + 512, False)]]
            if turn is self.cut and not turn.state.overlaps:
                facts.append([Mistake(turn)])
        if ended := self.machine.ended:
            facts.append([Reading(ended[0], each, "so") for each in VERDICTS])
            facts += [[Conclusion(ended[0], text) for text in TEXTS]] * 3
        return facts

    def finish_all(self) -> None:
        """The user falls silent."""
        if self.machine.open:
            if self.machine.open.state.speaks:
                self.tell(TurnPause(self.now, self.now))
            self.tell(TurnEnd(self.now))
        while self.machine.ended:
            self.tell(Conclusion(self.machine.ended[0], "so"))


@given(st.data())
def test_no_sequence_of_facts_loses_words_answers_twice_or_leaves_an_answer_held(
    data: st.DataObject,
) -> None:
    world = World()
    for _ in range(data.draw(st.integers(1, 25))):
        world.step(data.draw)
    world.finish_all()
    assert set(world.outcomes) == set(world.turns)
    assert not world.held
    assert world.started == world.stopped
    assert not world.waiting or world.configured
    for turn, outcome in world.outcomes.items():
        if outcome is Do.COMMIT:
            assert world.answers[turn] == turn.wants_answer
        else:
            assert not world.answers[turn] or (outcome is Do.REJECT and turn.mistake)


def test_words_read_in_a_pause_are_evidence_once() -> None:
    """They are read again before the turn ends, and were an earlier look then."""
    machine = TurnMachine(BargeIn(), answers=True)
    machine.on(Onset("item", 0, 0, "review"))
    turn = machine.turns[0]
    machine.on(Reading(turn, "unsure", "very well"))
    machine.on(TurnPause(14_400, 14_912))
    machine.on(Reading(turn, "too short", "very well, you heard"))
    assert turn.review.readings == ["very well"]
