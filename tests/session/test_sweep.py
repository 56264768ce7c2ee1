"""The sweep: at every 20 ms of a scenario something unforeseen happens.

Somebody barges in, a client message arrives, an engine crashes, the client disconnects. Whatever
happens whenever: everything begun ends exactly once, no engine keeps working, no reply is sent that
was not asked for, no word is lost or heard twice, and the next question is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from pipeline import events
from pipeline.conversation.prompt import UNHEARD_SPEECH
from pipeline.engines.contract import ToolCall
from reachy_voice.testing import Cast, ScriptedEngine, run_virtual
from reachy_voice.testing.tape import NOISE
from tests.support.talk_script import Script, Stage, Story, brain, cast, ears, require_asked, stage

pytestmark = pytest.mark.machine

STEP_MS = 20
NEXT = "How are you today?"
REPAIR_MS = 200
"""How long an engine is down."""
MUTED_MS = 640
INTERRUPTION = "Please wait now."


@dataclass(frozen=True)
class Scenario:
    """``script``: the conversation, disturbed at every step from ``from_ms`` to ``to_ms``."""

    script: str
    from_ms: int
    to_ms: int
    engines: Callable[[], Cast] = cast
    session: dict[str, Any] = field(default_factory=dict)

    @property
    def by_voice(self) -> bool:
        return bool(self.session.get("audio", {}).get("input", {}).get("turn_detection", True))


PUSH_TO_TALK = {"audio": {"input": {"turn_detection": None}}}


def hesitant() -> Cast:
    engines = cast()
    engines.turn.probabilities["I want the"] = 0.3
    return engines


def talkative() -> Cast:
    engines = cast()
    engines.llm.deltas = ("It is noon. ", 0.1, "Do you want some lunch? ")
    return engines


def waving() -> Cast:
    engines = cast()
    engines.llm.deltas = ("I will wave. ", ToolCall("wave", "{}"))
    return engines


def guessing() -> Cast:
    return cast(ears(streams=True), brain(first_s=0.3))


SCENARIOS = {
    "plain turn": Scenario("320 512 What time is it?", 320, 2_400),
    "resumed pause": Scenario("0 512 I want the\n960 384 blue ball.", 480, 2_600, hesitant),
    "two clauses": Scenario("0 320 Hello.", 256, 3_000, talkative),
    "tool call": Scenario("0 320 Wave.", 256, 1_800, waving),
    "merged sentences": Scenario("0 512 I have a dog.\n1088 512 What does he eat?", 500, 2_900),
    "guess": Scenario("0 960 Tell me a nice joke.", 256, 2_200, guessing),
    "push to talk": Scenario(
        """
        0 640  Turn to the left.
        704 > input_audio_buffer.commit
        704 > response.create
        """,
        600,
        1_700,
        session=PUSH_TO_TALK,
    ),
}


# --- what disturbs -----------------------------------------------------------------------------

Disturb = Callable[[Stage, int], Awaitable[None]]


async def barge_in(played: Stage, at_ms: int) -> None:
    played.script.tape.say(at_ms, INTERRUPTION, 480)


async def make_noise(played: Stage, at_ms: int) -> None:
    played.script.tape.say(at_ms, NOISE, 160)


async def cancel(played: Stage, at_ms: int) -> None:
    await played.wire.send("response.cancel")
    await played.wire.settle()
    before = len(played.wire.events("response.created"))
    assert len(played.wire.events("response.done")) == before, "it ends at once"


async def detection_off(played: Stage, at_ms: int) -> None:
    await played.wire.send("session.update", session={"type": "realtime", **PUSH_TO_TALK})


async def clear(played: Stage, at_ms: int) -> None:
    await played.wire.send("input_audio_buffer.clear")


async def commit(played: Stage, at_ms: int) -> None:
    await played.wire.send("input_audio_buffer.commit")


async def create(played: Stage, at_ms: int) -> None:
    await played.wire.send("response.create")


async def instruct(played: Stage, at_ms: int) -> None:
    await played.wire.send("session.update", session={"type": "realtime", "instructions": "Sing."})


async def delete_last(played: Stage, at_ms: int) -> None:
    items = [event["item"]["id"] for event in played.wire.events("conversation.item.added")]
    if items:
        await played.wire.send("conversation.item.delete", item_id=items[-1])


async def mute(played: Stage, at_ms: int) -> None:
    played.script.muted.append((at_ms, at_ms + MUTED_MS))


def crash(name: str) -> Disturb:
    async def crash_it(played: Stage, at_ms: int) -> None:
        engine: ScriptedEngine = getattr(played.story.engines, name)
        engine.crash()
        asyncio.get_running_loop().call_later(REPAIR_MS / 1000, engine.repair)

    return crash_it


DISTURBANCES: dict[str, Disturb | None] = {
    "barge-in": barge_in,
    "cancel": cancel,
    "client gone": None,
    "turn detection off": detection_off,
    "clear": clear,
    "ears crash": crash("stt"),
    "brain crash": crash("llm"),
    "voice crash": crash("tts"),
    "instinct crash": crash("turn"),
    "noise": make_noise,
    "create": create,
    "commit": commit,
    "instructions": instruct,
    "delete": delete_last,
    "mute": mute,
}
UNDERSTOOD = frozenset({"barge-in", "cancel", "noise", "create", "instructions", "instinct crash"})
"""After these, every spoken word is recognised."""
ANSWERED = frozenset(DISTURBANCES) - {"create", "commit", "clear", "delete", "turn detection off"}
"""After these, the user's last words are answered, if only by an answer that fails. A client that
asks for an answer itself, or removes the user's words, gets what it asks for."""


# --- one run -----------------------------------------------------------------------------------


def disturb(scenario: Scenario, name: str, at_ms: int) -> Story:
    script = Script.parse(scenario.script)
    engines = scenario.engines()
    engines.stt.tape = script.tape
    act = DISTURBANCES[name]

    async def main() -> Story:
        async with stage(script, engines, session=scenario.session) as played:
            await played.until(at_ms)
            if act is None:
                return played.story
            await act(played, at_ms)
            await played.until(max(at_ms + MUTED_MS, scenario.to_ms))
            now_ms = await played.to_rest()
            require_rest(played, name, scenario.by_voice)
            await ask_next(played, now_ms, scenario.by_voice and name != "turn detection off")
            require_next_answered(played)
        return played.story

    story: Story = run_virtual(main())
    require_ends(story)
    return story


async def ask_next(played: Stage, at_ms: int, by_voice: bool) -> None:
    played.script.tape.say(at_ms, NEXT, 320)
    await played.until(at_ms + 320)
    if not by_voice:
        await played.wire.send("input_audio_buffer.commit")
        await played.wire.send("response.create")
    await played.to_rest()


# --- what must hold ----------------------------------------------------------------------------


def require_ends(story: Story) -> None:
    """Every answer that began has ended, once."""
    began = [event.reply_id for event in story.events(events.ReplyStarted)]
    ended = [event.reply_id for event in story.events(events.ReplyFinished)]
    assert sorted(began) == sorted(ended)
    assert len(set(ended)) == len(ended)


def require_rest(played: Stage, disturbance: str, by_voice: bool) -> None:
    """All is closed and idle, no word is lost, and nobody is left without an answer."""
    story = played.story
    played.wire.recorder.finish()
    require_asked(story)
    for engine in story.engines.engines:
        assert engine.running == 0, f"{type(engine).__name__} works for nobody"
    assert story.engines.stt.opened == 0
    require_words(story, disturbance, by_voice)
    if disturbance in ANSWERED:
        require_answered(story)


def require_words(story: Story, disturbance: str, by_voice: bool) -> None:
    """No word twice, and none lost."""
    heard = " ".join(event.text for event in story.events(events.TranscriptReady)).split()
    said = story.engines.stt.tape.said
    assert not [word for word in said if heard.count(word) > said.count(word)]
    if disturbance in UNDERSTOOD and by_voice:
        assert sorted(heard) == sorted(said)


def require_answered(story: Story) -> None:
    """An answer was begun after the last words of the user."""
    kinds = [type(event) for _, event in story.happened]
    committed = [at for at, kind in enumerate(kinds) if kind is events.InputCommitted]
    if committed:
        assert events.ReplyStarted in kinds[committed[-1] :], "nobody answers"


def require_next_answered(played: Stage) -> None:
    """The session is as good as new: the next question was answered, with all words before it."""
    story = played.story
    played.wire.recorder.finish()
    last = played.wire.events("response.done")[-1]["response"]
    assert last["status"] == "completed"
    prompt = story.engines.llm.prompts[-1]
    assert prompt[-1].role == "user"
    assert prompt[-1].content.endswith(NEXT)
    read = " ".join(message.content for message in prompt if message.role == "user")
    deleted = story.events(events.ItemDeleted)
    if not deleted:
        told = [event.text for event in story.events(events.TranscriptReady)]
        assert read.replace(UNHEARD_SPEECH, "").split() == " ".join(told).split()


# --- the sweep ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_sweep(name: str) -> None:
    scenario = SCENARIOS[name]
    kinds = list(DISTURBANCES)
    for number, at_ms in enumerate(range(scenario.from_ms, scenario.to_ms, STEP_MS)):
        disturb(scenario, kinds[number % len(kinds)], at_ms)
