"""Timers in real sessions over scripted engines, and the time in the prompt."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from app.announcing.announcer import Announcer
from app.clock.clock import Clock
from app.clock.clock_tools import ClockTools, WithClock
from app.clock.phrases import PlainRequests
from app.clock.sentences import Sentences
from app.clock.timers import ClockEntry, Moment
from app.root import ROOT
from app.settings.languages import read_clock
from pipeline.commands import (
    AddItem,
    CancelResponse,
    CreateResponse,
    ResponseOptions,
    SessionConfig,
)
from pipeline.engines.contract import ToolCall
from pipeline.errors import EngineError
from pipeline.events import ReplyAudio, ReplyFinished
from pipeline.items import FunctionCallItem
from pipeline.messages import Message, Tool, ToolChoice
from pipeline.settings import SessionSettings
from pipeline.tools.contract import NoToolServers
from pipeline.waking.calls import Calls
from reachy_voice.testing import (
    VOICE,
    Act,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    play,
    say,
    silence,
    text_item,
    wait,
    write,
)
from tests.clock.test_timers import MemoryFile

pytestmark = pytest.mark.quick

TABLES = read_clock(ROOT / "config" / "languages")
SENTENCES = Sentences(TABLES)
START = datetime(2026, 11, 28, 13, 0).timestamp()
RULE = PlainRequests(TABLES, ("en", "de"), Calls(["Hey Reachy", "okay nabu"], ()), lambda: START)
FIVE = "Set a timer for five minutes."
IS_SET = "The timer is set for 5 min."
IS_UP = "The timer for 5 min is up."


def said(played: Scene) -> str:
    return " ".join("".join(f"{text} " for text in played.words).split())


class Kitchen:
    """A session with a clock."""

    def __init__(
        self, file: MemoryFile | None = None, *, offered: bool = False, language: str = "en"
    ) -> None:
        self.scene: Scene | None = None
        self.announcer = Announcer(lambda: [(self.scene.session, "")] if self.scene else [])
        self.file = file or MemoryFile()
        self.clock = Clock(self.file, self.announcer, SENTENCES, self.now)
        tools = ClockTools(self.clock, "", lambda: language, offered=offered)
        self.servers = WithClock(tools, NoToolServers())

    def now(self) -> Moment:
        at = self.scene.loop.time() if self.scene else 0.0
        return Moment(START + at, at)

    def play(self, *acts: Act, **options: Any) -> Scene:
        running: list[asyncio.Task[None]] = []

        def open(played: Scene) -> None:
            self.scene = played
            running.append(asyncio.create_task(self.clock.run()))

        async def close(played: Scene) -> None:
            running[0].cancel()
            await asyncio.wait(running)

        settings = SessionSettings(rule=RULE)
        return play(open, *acts, close, tool_servers=self.servers, settings=settings, **options)


TRANSLATE = Tool("translate", "", {"type": "object"})
NOTE = AddItem(text_item("note", "The user is Tom.", "system"))


@pytest.mark.parametrize(
    "acts",
    [
        (say(1), silence(5)),
        (write(FIVE), CreateResponse(), wait(5)),
        (write(FIVE), NOTE, CreateResponse(), wait(5)),
    ],
)
def test_a_plain_request_needs_no_model(acts: Sequence[Act]) -> None:
    llm = ScriptedLlm(deltas=("Hello.",))
    kitchen = Kitchen()
    played = kitchen.play(*acts, llm=llm, stt=ScriptedStt((FIVE,)))
    assert said(played) == IS_SET
    assert llm.prompts == []
    (call,) = (i for i in played.session.chat.items if isinstance(i, FunctionCallItem))
    assert (call.name, call.arguments) == ("set_timer", '{"seconds": 300}')
    assert call.server
    assert (call.server.shown, call.server.output) == (False, IS_SET)
    assert [each.length_s for each in kitchen.file.entries] == [300]


def test_a_request_of_its_own_words_is_answered_once() -> None:
    own = ResponseOptions(input=(text_item("own", FIVE),))
    llm = ScriptedLlm(deltas=("Hello.",))
    played = Kitchen().play(CreateResponse(own), wait(8), llm=llm)
    assert (said(played), llm.prompts) == (IS_SET, [])


@pytest.mark.parametrize(
    ("first", "then", "lengths", "answer"),
    [
        (FIVE, "What is the weather?", [300], "Hello."),
        (FIVE, "Set a timer for one minute.", [60, 300], "The timer is set for 1 min."),
        (FIVE, "And thank you.", [300], "Hello."),
        ("Set a timer.", "For five minutes.", [300], IS_SET),
        ("What time is it", "in Rome?", [], "Hello."),
        ("What is the weather?", FIVE, [300], IS_SET),
        ("tell me a story", "Okay Nabu, set a timer for five minutes.", [300], IS_SET),
    ],
)
def test_words_that_follow_before_the_answer_is_heard(
    first: str, then: str, lengths: list[float], answer: str
) -> None:
    """What was asked for is not done twice; what was not understood may be complete now, or is
    something else."""
    kitchen = Kitchen()
    acts = write(first), CreateResponse(), wait(0.05), CancelResponse(), write(then, "item_y")
    played = kitchen.play(*acts, CreateResponse(), wait(5), llm=ScriptedLlm(deltas=("Hello.",)))
    assert [each.length_s for each in kitchen.file.entries] == lengths
    assert said(played).endswith(answer)


@pytest.mark.parametrize("gap_s", [0.6, 1.0, 2.2])
def test_a_plain_request_after_a_question_that_was_not_answered(gap_s: float) -> None:
    """The user goes on before anything is heard; or the answer fails, which is an apology."""
    stt = ScriptedStt(("What is the weather?", FIVE))
    for llm in (ScriptedLlm(first_s=9.0), ScriptedLlm(errors=[EngineError("broken")] * 3)):
        kitchen = Kitchen()
        stt.finished.clear()
        played = kitchen.play(say(1), silence(gap_s), say(1), silence(6), stt=stt, llm=llm)
        assert [each.length_s for each in kitchen.file.entries] == [300]
        assert said(played).endswith(IS_SET)


class SlowFile(MemoryFile):
    async def save(self, entries: Sequence[ClockEntry]) -> None:
        await asyncio.sleep(3)
        await super().save(entries)


def test_speech_does_not_stop_what_a_rule_has_begun() -> None:
    kitchen = Kitchen(SlowFile())
    stt, llm = ScriptedStt((FIVE, "What is the weather?")), ScriptedLlm(deltas=("Fine.",))
    played = kitchen.play(say(1), silence(1), say(0.8), silence(10), stt=stt, llm=llm)
    assert said(played) == f"Fine. {IS_SET}"


def test_it_is_said_at_the_right_second_and_remembered() -> None:
    stt = ScriptedStt((FIVE, "What was that?"))
    llm = ScriptedLlm(deltas=("Your timer.",))
    kitchen = Kitchen()
    played = kitchen.play(say(1), silence(5), wait(305), say(1), silence(5), stt=stt, llm=llm)
    assert said(played) == f"{IS_SET} {IS_UP} Your timer."
    due = next(at for at in played.times_of(ReplyAudio) if at > 60)
    set_at = played.times_of(ReplyFinished)[0]
    assert 299 < due - set_at < 301.5
    texts = [text for role, text in played.prompts[0] if role == "assistant"]
    assert texts[-1] == f"{IS_SET} {IS_UP}"
    assert [role for role, _ in played.prompts[0]] == ["system", "user", "assistant", "user"]
    assert llm.offered[0][0] == ()
    assert kitchen.file.entries == ()


def test_other_words_are_the_models() -> None:
    llm = ScriptedLlm(deltas=("A timer counts down.",))
    played = Kitchen().play(say(1), silence(5), llm=llm, stt=ScriptedStt(("What is a timer?",)))
    assert played.words == ["A timer counts down."]
    assert llm.offered[0][0] == ()


def test_a_model_that_reads_of_the_tools_calls_them_and_answers() -> None:
    call = ToolCall("set_timer", '{"minutes": 5}')
    llm = ScriptedLlm(answers=[(call,)], deltas=("Five minutes it is.",))
    stt = ScriptedStt(("I need five minutes for my egg.",))
    played = Kitchen(offered=True).play(say(1), silence(5), llm=llm, stt=stt)
    assert played.words == ["Five minutes it is."]
    assert [tool.name for tool in llm.offered[0][0]][:2] == ["now", "set_timer"]
    assert played.prompts[1][-1] == ("tool", IS_SET)


def test_the_tools_are_offered_beside_the_clients() -> None:
    llm = ScriptedLlm(deltas=("Fine.",))
    config = replace(VOICE, tools=(Tool("dance", "", {"type": "object"}),))
    played = Kitchen(offered=True).play(say(1), silence(5), llm=llm, config=config)
    assert played.words == ["Fine."]
    names = [tool.name for tool in llm.offered[0][0]]
    tools = ["now", "set_timer", "set_alarm", "set_reminder", "list_timers", "cancel_timer"]
    assert sorted(names) == sorted(["dance", *tools])


def test_a_rule_calls_for_such_a_model_too() -> None:
    llm = ScriptedLlm(deltas=("Five minutes it is.",))
    played = Kitchen(offered=True).play(say(1), silence(5), llm=llm, stt=ScriptedStt((FIVE,)))
    assert played.words == ["Five minutes it is."]
    assert played.prompts[0][-1] == ("tool", IS_SET)


@pytest.mark.parametrize(
    "config",
    [
        replace(VOICE, tools=(Tool("set_timer", "", {"type": "object"}),)),
        replace(VOICE, tool_choice=ToolChoice("none")),
        replace(VOICE, tools=(TRANSLATE,), tool_choice=ToolChoice("required")),
        replace(VOICE, tools=(TRANSLATE,), tool_choice=ToolChoice("named", "translate")),
    ],
)
def test_a_client_with_such_a_tool_or_that_chooses_itself_gets_none(config: SessionConfig) -> None:
    llm = ScriptedLlm(deltas=("Hello.",))
    played = Kitchen().play(say(1), silence(5), llm=llm, stt=ScriptedStt((FIVE,)), config=config)
    assert played.words == ["Hello."]


def test_in_german() -> None:
    stt = ScriptedStt(("Stell einen Timer auf fünf Minuten.",))
    config = replace(VOICE, language="de")
    kitchen = Kitchen(language="de")
    played = kitchen.play(say(1), silence(5), wait(305), stt=stt, config=config)
    assert said(played) == ("Der Timer ist auf 5 min gestellt. Der Timer für 5 min ist abgelaufen.")


@pytest.mark.parametrize(
    ("said", "language", "name"),
    [
        ("Hey Richie, what time is it?", "en", "now"),
        ("Okay Nabu, set a timer for 1.5 minutes.", "en", "set_timer"),
        ("Okay Nabu. Stell den Wecker auf sieben.", "", "set_alarm"),
        ("Okay Nabu, set a timer.", "", "unclear"),
        ("Weck mich", "en", None),
        ("Set a timer for five minutes", "ru", "set_timer"),
        ("Okay Nabu, tell me a story.", "en", None),
        ("Set a timer for five minutes, Nabu.", "en", "set_timer"),
        ("Nabu, no, cancel the timer", "en", "cancel_timer"),
        ("Tell me a story, Nabu.", "en", None),
    ],
)
def test_a_request_behind_a_call_or_beside_a_name(
    said: str, language: str, name: str | None
) -> None:
    call = RULE((said,), language, ("dance",))
    assert (call and call[0]) == name
    call = RULE((said,), language, ("add_reminder",))
    assert (call and call[0]) == (None if name == "unclear" else name)


@pytest.mark.parametrize(("offered", "answer"), [(False, "I did not"), (True, "How long?")])
def test_what_is_not_understood_is_said_unless_the_model_may_know(
    offered: bool, answer: str
) -> None:
    llm, stt = ScriptedLlm(deltas=("How long?",)), ScriptedStt(("Set a timer.",))
    played = Kitchen(offered=offered).play(say(1), silence(5), llm=llm, stt=stt)
    assert said(played).startswith(answer)


# --- the time in the prompt --------------------------------------------------------------------


class Wall:
    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None

    def __call__(self) -> float:
        self.loop = self.loop or asyncio.get_running_loop()
        return START + self.loop.time()


def extends(before: Sequence[Message], after: Sequence[Message]) -> bool:
    return list(after[: len(before)]) == list(before)


def test_the_time_is_told_with_a_turn_and_costs_no_reading() -> None:
    stt = ScriptedStt(("What day is it?", "And the time?", "Thanks."), partials=("What day",) * 3)
    stt.streams = True
    llm = ScriptedLlm()
    turn = say(1), silence(6)
    acts = *turn, *turn, wait(70), *turn
    settings = SessionSettings(clock=Wall(), partials=True)
    played = play(*acts, stt=stt, llm=llm, settings=settings)
    users = [[text for role, text in prompt if role == "user"] for prompt in played.prompts]
    assert users[-1] == [
        "(It is Saturday, 28 November 2026, 13:00.) What day is it?",
        "And the time?",
        "(It is Saturday, 28 November 2026, 13:01.) Thanks.",
    ]
    answered = [prompt for prompt in llm.prompts if prompt[-1].content[-1] in "?."]
    for before, after in itertools.pairwise(answered):
        assert extends(before, after), "the model has read it"
    assert played.prompts[0][0] == ("system", "Be brief.")
    # What it reads ahead is the beginning of what follows.
    ahead = [text for text in llm.read_ahead if text]
    assert ahead
    assert all(users[-1][0].startswith(text.strip()) for text in ahead[:1])


def test_a_time_does_not_change_while_the_user_speaks() -> None:
    """From 13:00:58 to 13:01:04: the reply prepared in the pause is the one that is given."""
    stt = ScriptedStt(("What day is it?",))
    llm = ScriptedLlm()
    acts = wait(57.5), say(2.2), silence(6)
    settings = SessionSettings(clock=Wall())
    played = play(*acts, stt=stt, llm=llm, settings=settings)
    assert len(llm.prompts) == 1, "no reply was discarded"
    assert played.prompts[0][-1][1].startswith("(It is Saturday, 28 November 2026, 13:0")
