"""Announcements: when they begin, what ends them, and what caller and model are told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pipeline.commands import (
    AddItem,
    AppendAudio,
    CancelResponse,
    ClearAudio,
    CommitAudio,
    Configure,
    CreateResponse,
    ResponseOptions,
    SessionConfig,
    TruncateItem,
    TurnDetection,
)
from pipeline.engines.contract import ToolCall
from pipeline.errors import EngineError
from pipeline.events import ReplyAudio, ReplyItemStarted, ReplyStarted, SpeechStarted
from pipeline.items import FunctionCallItem, FunctionOutputItem
from pipeline.messages import Tool
from pipeline.speaking.announcements import MOST_WAITING, PAUSE_S, AnnouncementEnd
from pipeline.tools.contract import CallResult
from pipeline.turn_record import TurnRecord
from reachy_voice.testing import (
    AT_ONCE,
    PUSH_TO_TALK,
    VOICE,
    Act,
    Noise,
    Scene,
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    play,
    say,
    silence,
    wait,
    write,
)
from tests.support.scripted_tool_servers import ScriptedToolServer, ScriptedToolServers

pytestmark = pytest.mark.quick

DINNER = "Dinner is ready."
LONG = "Dinner is ready now. There are noodles with tomatoes, and cake for everybody after that."
NO_ANSWERS = replace(VOICE, turn_detection=TurnDetection(create_response=False))
NEVER_STOPS = replace(VOICE, turn_detection=TurnDetection(interrupt_response=False))
PIECE = AppendAudio(Noise(1)(3000, 8_000), 16_000)


class Callers:
    """Callers of announcements and their results."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[AnnouncementEnd]] = []

    def wants(self, text: str = DINNER, within_s: float = 60.0) -> Act:
        def ask(played: Scene) -> Any:
            until = played.loop.time() + within_s
            self.tasks.append(asyncio.create_task(played.session.announce(text, until)))
            return played.settle()

        return ask

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(task.result().outcome, task.result().heard) for task in self.tasks]


def leaves(callers: Callers) -> Act:
    def leave(played: Scene) -> Any:
        callers.tasks.pop().cancel()
        return played.settle()

    return leave


ASK = Callers.wants
SAID = ("said", DINNER)
Row = tuple[tuple[Act, ...], dict[str, Any], list[tuple[str, str]], list[str]]


def rows(callers: Callers) -> dict[str, Row]:
    """Acts, options, the callers' results, and all that is said."""
    dinner, greeting = callers.wants(), "Hello there, my friend. How are you?"
    busy = callers.wants(within_s=2.0)
    long_tts = {"tts": ScriptedTts(seconds_per_word=0.3)}
    return {
        "into silence": ((silence(2), dinner, silence(4)), {}, [SAID], [DINNER]),
        "nobody sends sound": ((wait(2), dinner, wait(4)), {}, [SAID], [DINNER]),
        "while the user speaks": (
            (say(1), dinner, say(1), silence(9)),
            {},
            [SAID],
            [greeting, DINNER],
        ),
        "while it is answered": (
            (say(1), silence(2), dinner, silence(9)),
            {},
            [SAID],
            [greeting, DINNER],
        ),
        "nobody pauses in time": (
            (say(1), busy, say(4), silence(5)),
            {},
            [("busy", "")],
            [greeting],
        ),
        "two at once": (
            (wait(2), dinner, callers.wants("And cake."), wait(6)),
            {},
            [SAID, ("said", "And cake.")],
            [DINNER, "And cake."],
        ),
        "too many": (
            (say(0.5), *(callers.wants() for _ in range(MOST_WAITING + 1)), wait(70)),
            {},
            [*[SAID] * MOST_WAITING, ("full", "")],
            [greeting, *[DINNER] * MOST_WAITING],
        ),
        "interrupted before a word was heard": (
            (wait(2), dinner, wait(0.06), say(1), silence(9)),
            {"settings": AT_ONCE},
            [SAID],
            [DINNER, greeting, DINNER],
        ),
        "interrupted": (
            (wait(2), callers.wants(LONG), wait(3.0), say(1), silence(9)),
            {**long_tts, "settings": AT_ONCE},
            [("interrupted", "Dinner is ready now. There are noodles with tomatoes,")],
            [],
        ),
        "mm-hm over it": (
            (silence(2), callers.wants(LONG), silence(3), say(0.4), silence(9)),
            {"stt": ScriptedStt(("Mm-hmm.",))},
            [("said", LONG)],
            [],
        ),
        "the client cancels it": (
            (wait(2), callers.wants(LONG), wait(2.5), CancelResponse(), wait(2)),
            {},
            [("interrupted", "Dinner is ready now. There are noodles with")],
            [],
        ),
        "the voice fails": (
            (wait(2), dinner, wait(5)),
            {"tts": ScriptedTts(error=EngineError("broken"))},
            [("failed", "")],
            [],
        ),
        "the session ends": ((say(1), dinner, say(0.5)), {}, [("gone", "")], []),
        "the session ends in the middle": (
            (wait(2), callers.wants(LONG), wait(2.5)),
            {},
            [("gone", "Dinner is ready now. There are noodles with")],
            [],
        ),
        "it only transcribes": (
            (wait(2), dinner, wait(2)),
            {"config": replace(VOICE, answers=False)},
            [("gone", "")],
            [],
        ),
        "the caller leaves": ((say(1), dinner, leaves(callers), silence(9)), {}, [], [greeting]),
        "speech cannot stop it": (
            (wait(2), callers.wants(LONG), wait(2), say(1), silence(12)),
            {"config": NEVER_STOPS},
            [("said", LONG)],
            [],
        ),
        "push to talk": (
            (PIECE, dinner, wait(3), CommitAudio(), CreateResponse(), wait(8)),
            {"config": PUSH_TO_TALK},
            [SAID],
            [greeting, DINNER],
        ),
        "push to talk, cleared": (
            (PIECE, dinner, wait(3), ClearAudio(), wait(8)),
            {"config": PUSH_TO_TALK},
            [SAID],
            [DINNER],
        ),
        "push to talk by a client that sends sound all the time": (
            (silence(35), dinner, silence(5)),
            {"config": PUSH_TO_TALK},
            [SAID],
            [DINNER],
        ),
        "push to talk, left behind": (
            (PIECE, wait(15), dinner, wait(4)),
            {"config": PUSH_TO_TALK},
            [SAID],
            [DINNER],
        ),
        "muted in the middle of a word, which the client clears": (
            (say(1), ClearAudio(), wait(2), dinner, wait(4)),
            {},
            [SAID],
            [DINNER],
        ),
        "muted with a click": (
            (silence(1), say(0.04), wait(2), dinner, wait(9)),
            {"stt": ScriptedStt(("",))},
            [SAID],
            [DINNER],
        ),
        "push to talk from the middle of a word on": (
            (say(1), Configure(PUSH_TO_TALK), CommitAudio(), wait(2), dinner, wait(4)),
            {},
            [SAID],
            [DINNER],
        ),
        "in writing": (
            (wait(2), dinner, wait(2)),
            {"config": replace(VOICE, modality="text")},
            [SAID],
            [DINNER],
        ),
    }


@pytest.mark.parametrize("name", rows(Callers()))
def test_an_announcement_ends_as_expected(name: str) -> None:
    callers = Callers()
    acts, options, told, words = rows(callers)[name]
    played = play(*acts, **options)
    assert callers.told == told
    if words:
        assert " ".join(text.strip() for text in played.words) == " ".join(words)
    assert played.refusals == []


@pytest.mark.parametrize(("rest_s", "least_s", "most_s"), [(0.2, 0.55, 0.75), (5.0, 0.0, 0.2)])
def test_it_begins_after_a_moment_of_rest(rest_s: float, least_s: float, most_s: float) -> None:
    callers = Callers()
    played = play(wait(rest_s), callers.wants(), wait(5))
    assert least_s <= played.time_of(ReplyAudio) - rest_s <= most_s
    assert pytest.approx(0.8) == PAUSE_S


def test_it_never_begins_over_a_person() -> None:
    """Whenever it is asked for, and whatever the user does."""
    for at_ms in range(0, 2400, 120):
        callers = Callers()
        acts = say(0.6), silence(0.5), say(0.7), silence(2), wait(7)
        played = play(*_asked_at(at_ms / 1000, callers, acts))
        began = played.times_of(ReplyStarted)[-1]
        spoke = [(0.0, 0.6), (1.1, 1.8)]
        assert not any(start <= began <= end + 0.1 for start, end in spoke), at_ms
        assert callers.told == [SAID]


def _asked_at(at_s: float, callers: Callers, acts: tuple[Act, ...]) -> tuple[Act, ...]:
    async def later(played: Scene) -> None:
        async def ask() -> None:
            await asyncio.sleep(at_s)
            result = callers.wants()(played)  # type: ignore[operator]
            await result

        callers_task.append(asyncio.create_task(ask()))

    callers_task: list[asyncio.Task[None]] = []
    return later, *acts


@pytest.mark.parametrize(
    ("then", "last"),
    [
        ((write("What?"), CreateResponse(), wait(3)), ("user", "What?")),
        ((silence(1), say(1), silence(4)), ("user", "hello")),
    ],
)
def test_the_model_knows_what_was_announced(then: tuple[Act, ...], last: tuple[str, str]) -> None:
    callers = Callers()
    played = play(wait(2), callers.wants(), wait(4), *then)
    assert played.prompts[-1][-2:] == [("assistant", DINNER), last]
    origins = [record.origin for record in played.events(TurnRecord)]
    assert origins[0] == "say"


def test_words_that_the_voice_could_not_say_are_not_remembered() -> None:
    """Neither those of an announcement, nor those of an answer."""
    ask = (write("What?"), CreateResponse(), wait(4))
    tts = ScriptedTts(errors=[EngineError("broken")])
    played = play(wait(2), Callers().wants(), wait(4), *ask, tts=tts)
    assert played.statuses == ["failed", "completed"]
    assert played.prompts[-1][1:] == [("user", "What?")]
    tts = ScriptedTts(errors=[EngineError("broken")] * 2)
    again = write("And now?", "item_y"), CreateResponse(), wait(4)
    played = play(*ask, *again, tts=tts)
    assert played.prompts[-1][1:] == [("user", "What? And now?")]


def test_it_does_not_wait_for_sound_that_the_client_does_not_play() -> None:
    """Without turn detection an answer is sent at once."""
    callers = Callers()

    def cut(played: Scene) -> Any:
        return played.do(TruncateItem(played.events(ReplyItemStarted)[0].item.id, 0, 1500))

    acts = write("Hi!"), CreateResponse(), wait(1), callers.wants(), wait(1), cut, wait(1.5)
    llm = ScriptedLlm(deltas=("one two three. ",) * 9)
    played = play(*acts, llm=llm, config=PUSH_TO_TALK)
    assert [started.announces for started in played.events(ReplyStarted)] == [False, True]


# --- a question, or a call, that waits for its answer ------------------------------------------


def test_a_question_and_its_answer_stay_together() -> None:
    """The client requests answers itself, here during the announcement."""
    callers = Callers()
    acts = say(1), silence(2.5), callers.wants(), silence(0.9), CreateResponse(), silence(8)
    played = play(*acts, config=NO_ANSWERS, stt=ScriptedStt(("What time is it?",)))
    assert callers.told == [SAID]
    assert played.prompts[-1][-2:] == [("assistant", DINNER), ("user", "What time is it?")]
    assert played.refusals == []
    assert len(played.events(SpeechStarted)) == 1


def test_a_requested_answer_follows_the_announcement() -> None:
    """Even if the conversation awaits no answer: a greeting, for example."""
    callers = Callers()
    greet = CreateResponse(ResponseOptions(instructions="Greet the user."))
    played = play(wait(2), callers.wants(), wait(0.5), greet, wait(9))
    assert (callers.told, played.refusals) == ([SAID], [])
    assert played.statuses == ["completed", "completed"]
    assert played.prompts[-1][0] == ("system", "Greet the user.")


DANCE = Tool("dance", "", {"type": "object"})


def test_a_client_call_and_its_answer_stay_together() -> None:
    callers = Callers()
    llm = ScriptedLlm(answers=[(ToolCall("dance", "{}"),)], deltas=("Done.",))

    async def answer(played: Scene) -> None:
        call = next(i for i in played.session.chat.items if isinstance(i, FunctionCallItem))
        await played.do(
            AddItem(FunctionOutputItem("out", call.call_id, "Danced.")), CreateResponse()
        )

    acts = write("Dance!"), CreateResponse(), wait(1), callers.wants(), wait(1.0), answer, wait(6)
    config: SessionConfig = replace(VOICE, tools=(DANCE,))
    played = play(*acts, llm=llm, config=config)
    assert (callers.told, played.refusals) == ([SAID], [])
    roles = [role for role, _ in played.prompts[-1]]
    assert roles == ["system", "assistant", "user", "assistant", "tool"]
    assert [text.strip() for text in played.words] == [DINNER, "Done."]


def test_a_server_call_is_answered_after_the_announcement() -> None:
    callers = Callers()
    server = ScriptedToolServer(takes_s=2.5, result=CallResult("Rain."))
    llm = ScriptedLlm(answers=[(ToolCall("forecast", "{}"),)], deltas=("It rains.",))
    acts = write("Weather?"), CreateResponse(), wait(1), callers.wants(), wait(9)
    played = play(*acts, llm=llm, tool_servers=ScriptedToolServers((server,)))
    assert callers.told == [SAID]
    assert [text.strip() for text in played.words] == [DINNER, "It rains."]
    assert played.prompts[-1][-1] == ("tool", "Rain.")
