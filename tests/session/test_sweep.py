"""The sweep: at every 20 ms of a scenario something unforeseen happens.

Somebody barges in, a client message arrives, an engine crashes, the client disconnects. Whatever
happens whenever: everything begun ends exactly once, no engine keeps working, no reply is sent that
was not asked for, no word is lost or heard twice, and the next question is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import pytest

from pipeline import events
from pipeline.conversation.prompt import UNHEARD_SPEECH
from pipeline.engines.contract import ToolCall
from reachy_voice.testing import (
    Cast,
    ScriptedEngine,
    Tape,
    run_virtual,
    silence,
    speak,
    wait,
)
from reachy_voice.testing.tape import NOISE
from tests.support.stories import Story, brain, cast, ears, require_asked, told
from tests.support.wired import send

pytestmark = pytest.mark.machine

STEP_MS = 20
NEXT = "How are you today?"
REPAIR_MS = 200
"""How long an engine is down."""
MUTED_MS = 640
INTERRUPTION = "Please wait now."


@dataclass(frozen=True)
class Scenario:
    """What the user says (when, what and for how long, in ms), disturbed at every step from
    ``from_ms`` to ``to_ms``."""

    speech: Sequence[tuple[int, str, int]]
    from_ms: int
    to_ms: int
    engines: Callable[[], Cast] = cast
    asks_ms: int = 0
    """When the client commits the speech and asks for the answer; 0: turns are detected."""


PUSH_TO_TALK = {"audio": {"input": {"turn_detection": None}}}
ASK = send("input_audio_buffer.commit"), send("response.create")


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
    "plain turn": Scenario([(320, "What time is it?", 512)], 320, 2_400),
    "resumed pause": Scenario(
        [(0, "I want the", 512), (960, "blue ball.", 384)], 480, 2_600, hesitant
    ),
    "two clauses": Scenario([(0, "Hello.", 320)], 256, 3_000, talkative),
    "tool call": Scenario([(0, "Wave.", 320)], 256, 1_800, waving),
    "merged sentences": Scenario(
        [(0, "I have a dog.", 512), (1088, "What does he eat?", 512)], 500, 2_900
    ),
    "guess": Scenario([(0, "Tell me a nice joke.", 960)], 256, 2_200, guessing),
    "push to talk": Scenario([(0, "Turn to the left.", 640)], 600, 1_700, asks_ms=704),
}


# --- what disturbs -----------------------------------------------------------------------------

Disturb = Callable[[Story], Awaitable[None]]


def tape_of(story: Story) -> Tape:
    tape = story.wire.scene.tape
    assert tape
    return tape


async def barge_in(story: Story) -> None:
    tape_of(story).say(story.wire.now_ms, INTERRUPTION, 480)


async def make_noise(story: Story) -> None:
    tape_of(story).say(story.wire.now_ms, NOISE, 160)


async def cancel(story: Story) -> None:
    await story.wire.send("response.cancel")
    await story.wire.settle()
    before = len(story.wire.events("response.created"))
    assert len(story.wire.events("response.done")) == before, "it ends at once"


async def detection_off(story: Story) -> None:
    await story.wire.send("session.update", session={"type": "realtime", **PUSH_TO_TALK})


async def clear(story: Story) -> None:
    await story.wire.send("input_audio_buffer.clear")


async def commit(story: Story) -> None:
    await story.wire.send("input_audio_buffer.commit")


async def create(story: Story) -> None:
    await story.wire.send("response.create")


async def instruct(story: Story) -> None:
    await story.wire.send("session.update", session={"type": "realtime", "instructions": "Sing."})


async def delete_last(story: Story) -> None:
    items = [event["item"]["id"] for event in story.wire.events("conversation.item.added")]
    if items:
        await story.wire.send("conversation.item.delete", item_id=items[-1])


async def mute(story: Story) -> None:
    await story.wire.act(wait(MUTED_MS / 1000))


def crash(name: str) -> Disturb:
    async def crash_it(story: Story) -> None:
        engine: ScriptedEngine = getattr(story.engines, name)
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
    engines = scenario.engines()
    act = DISTURBANCES[name]
    by_voice = not scenario.asks_ms

    async def main() -> Story:
        async with told(engines, session={} if by_voice else PUSH_TO_TALK) as story:
            for words in scenario.speech:
                tape_of(story).say(*words)
            await play_until(story, scenario, at_ms)
            if act is None:
                return story
            await act(story)
            await play_until(story, scenario, max(at_ms + MUTED_MS, scenario.to_ms))
            await story.rest()
            require_rest(story, name, by_voice)
            await ask_next(story, by_voice and name != "turn detection off")
            require_next_answered(story)
        return story

    story: Story = run_virtual(main())
    require_ends(story)
    return story


async def play_until(story: Story, scenario: Scenario, end_ms: int) -> None:
    begin_ms = story.wire.now_ms
    if begin_ms < scenario.asks_ms <= end_ms:
        await story.wire.act(silence((scenario.asks_ms - begin_ms) / 1000), *ASK)
        begin_ms = story.wire.now_ms
    await story.wire.act(silence((end_ms - begin_ms) / 1000))


async def ask_next(story: Story, by_voice: bool) -> None:
    await story.wire.act(speak(NEXT, 0.32), *(() if by_voice else ASK))
    await story.rest()


# --- what must hold ----------------------------------------------------------------------------


def require_ends(story: Story) -> None:
    """Every answer that began has ended, once."""
    began = [event.reply_id for event in story.events(events.ReplyStarted)]
    ended = [event.reply_id for event in story.events(events.ReplyFinished)]
    assert sorted(began) == sorted(ended)
    assert len(set(ended)) == len(ended)


def require_rest(story: Story, disturbance: str, by_voice: bool) -> None:
    """All is closed and idle, no word is lost, and nobody is left without an answer."""
    story.wire.recorder.finish()
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
    said = tape_of(story).said
    assert not [word for word in said if heard.count(word) > said.count(word)]
    if disturbance in UNDERSTOOD and by_voice:
        assert sorted(heard) == sorted(said)


def require_answered(story: Story) -> None:
    """An answer was begun after the last words of the user."""
    kinds = [type(event) for _, event in story.happened]
    committed = [at for at, kind in enumerate(kinds) if kind is events.InputCommitted]
    if committed:
        assert events.ReplyStarted in kinds[committed[-1] :], "nobody answers"


def require_next_answered(story: Story) -> None:
    """The session is as good as new: the next question was answered, with all words before it."""
    story.wire.recorder.finish()
    last = story.wire.events("response.done")[-1]["response"]
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
