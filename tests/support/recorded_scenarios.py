"""What can happen in a session, as scenarios on a tape (``recorded_scene``)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from pipeline.commands import (
    AddItem,
    CancelResponse,
    ClearAudio,
    CommitAudio,
    Configure,
    CreateResponse,
    DeleteItem,
    Direction,
    NoteDirection,
    ResponseOptions,
    RetrieveItem,
    TruncateItem,
    TurnDetection,
)
from pipeline.engines.contract import ToolCall
from pipeline.errors import EngineError, PromptTooLong
from pipeline.events import ReplyItemFinished, ReplyItemStarted
from pipeline.items import FunctionCallItem, FunctionOutputItem, MessageItem, TextPart
from pipeline.messages import Tool
from pipeline.recording.tape import Tape
from pipeline.settings import Sector, SessionSettings, Speculation
from tests.support.recorded_scene import VOICE, recorded_scene
from tests.support.scripted import AT_ONCE, ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedTurn

PUSH_TO_TALK = replace(VOICE, turn_detection=None)
DANCE = Tool("dance", "Dance.", {"type": "object", "properties": {"is": {"type": "string"}}})


def user_text(text: str) -> MessageItem:
    return MessageItem("item_x", "user", (TextPart(text),))


Scenario = Callable[[Tape], Awaitable[None]]


async def question(tape: Tape) -> None:
    async with recorded_scene(tape) as played:
        await played.say(1.0)
        await played.hear(6.0)


async def barge_in(tape: Tape) -> None:
    stt = ScriptedStt(texts=("who are you?", "stop", "thanks"))
    async with recorded_scene(tape, stt=stt, settings=AT_ONCE) as played:
        await played.say(1.003)
        await played.hear(1.713)
        await played.say(0.7)
        await played.hear(1.0)
        await played.say(0.5)
        await played.hear(4.0)


async def over_an_answer(tape: Tape) -> None:
    """A listener agrees, then interrupts; both are weighed."""
    stt = ScriptedStt(texts=("who are you?", "yeah", "yeah", "but tell me", "but tell me more"))
    llm = ScriptedLlm(deltas=tuple(f"{word} " for word in ("and then I went on " * 5).split()))
    async with recorded_scene(tape, stt=stt, llm=llm) as played:
        await played.say(1.003)
        await played.hear(1.713)
        await played.say(0.3)
        await played.hear(1.5)
        await played.say(0.8)
        await played.hear(4.0)


async def speculation(tape: Tape) -> None:
    stt = ScriptedStt(texts=("I want", "I want some tea"))
    async with recorded_scene(tape, stt=stt, turn=ScriptedTurn(probability=0.2)) as played:
        await played.say(1.0)
        await played.hear(0.3)
        await played.say(1.0)
        await played.hear(5.0)


async def partials(tape: Tape) -> None:
    words = [
        "I",
        "want",
        "some",
        "tea",
        "with",
        "milk",
        "and",
        "a",
        "lot",
        "of",
        "sugar",
        "please",
        "now",
    ]
    grown = [" ".join(words[: n // 3 + 1]) for n in range(3 * len(words))]
    # 50 ms: the transcript comes between two frames, so that its order against them is known.
    stt = ScriptedStt((" ".join(words),), takes_s=0.05, partials=grown, streams=True)
    speculation = Speculation(on_partials="always")
    settings = SessionSettings(partials=True, speculation=speculation)
    async with recorded_scene(tape, stt=stt, settings=settings) as played:
        await played.say(1.3)
        await played.hear(0.1)
        await played.say(0.6)
        await played.hear(5.0)


async def broken_engines(tape: Tape) -> None:
    errors = [EngineError("The llm broke", why="no reason"), PromptTooLong(9, 5)]
    llm = ScriptedLlm(errors=[*errors, RuntimeError("a secret")])
    stt, tts = ScriptedStt(), ScriptedTts()
    async with recorded_scene(tape, llm=llm, stt=stt, tts=tts) as played:
        for _ in range(3):
            await played.say(1.0)
            await played.hear(3.0)
        tts.error = EngineError("The tts broke")
        await played.say(1.0)
        await played.hear(3.0)
        stt.error = EngineError("The stt broke")
        await played.say(1.0)
        await played.hear(3.0)


async def push_to_talk(tape: Tape) -> None:
    async with recorded_scene(tape, config=PUSH_TO_TALK) as played:
        await played.say(1.0)
        await played.do(CommitAudio(), CreateResponse())
        await played.hear(3.0)
        await played.do(CommitAudio("event_1"), CommitAudio("event_2"))
        await played.hear(0.3)
        await played.do(ClearAudio())


async def items_and_tools(tape: Tape) -> None:
    call = ToolCall("dance", '{"is": "waltz"}')
    llm = ScriptedLlm(answers=[("Dancing. ", call), ("Done.",)])
    config = replace(VOICE, tools=(DANCE,))
    async with recorded_scene(tape, llm=llm, config=config) as played:
        await played.do(AddItem(user_text("Dance!")), CreateResponse())
        await played.hear(3.0)
        made = played.events(ReplyItemFinished)[-1].item
        assert isinstance(made, FunctionCallItem)
        output = FunctionOutputItem("item_o", made.call_id, '{"json": 1}')
        await played.do(AddItem(output), CreateResponse())
        await played.hear(2.0)
        spoken = played.events(ReplyItemStarted)[0].item.id
        await played.do(TruncateItem(spoken, 0, 200), RetrieveItem(spoken), DeleteItem("item_x"))
        await played.do(DeleteItem("nothing"))


async def out_of_band(tape: Tape) -> None:
    aside = ResponseOptions(
        in_conversation=False, modality="text", input=(user_text("Hm?"),), metadata={"is": "x"}
    )
    async with recorded_scene(tape) as played:
        await played.say(1.0)
        await played.hear(0.6)
        await played.do(CreateResponse(aside))
        await played.hear(0.2)
        await played.do(CancelResponse())
        await played.hear(3.0)


async def idle_and_settings(tape: Tape) -> None:
    config = replace(VOICE, turn_detection=TurnDetection(idle_timeout_ms=5000))
    async with recorded_scene(tape, config=config) as played:
        await played.say(1.0)
        await played.hear(9.0)
        await played.do(Configure(replace(config, instructions="Be long.", speed=1.5)))
        await played.say(0.5)
        await asyncio.sleep(3.0)  # the client stalls: the clock feeds silence


async def ends_in_the_middle(tape: Tape) -> None:
    async with recorded_scene(tape) as played:
        await played.say(1.0)
        await played.hear(1.2)


async def owed_answers(tape: Tape) -> None:
    """Noise ends an answer that has just begun; a commit comes while a turn that ended waits; a
    turn waits until another answer is over."""
    stt = ScriptedStt(texts=("Tell me", "", "about tea", "and milk", "thanks", "bye"))
    async with recorded_scene(tape, stt=stt, tts=ScriptedTts(first_s=0.5)) as played:
        await played.say(1.024)
        await played.hear(0.4)
        await played.say(0.3)
        await played.hear(6.0)
        stt.takes_s = 1.5
        await played.say(1.024)
        await played.hear(1.2)
        await played.say(0.5)
        await played.do(CommitAudio(), CreateResponse())
        await played.hear(9.0)
        stt.takes_s = 0.06
        patient = TurnDetection(interrupt_response=False)
        await played.do(Configure(replace(VOICE, turn_detection=patient)))
        await played.say(1.0)
        await played.hear(0.6)
        await played.say(0.5)
        await played.hear(8.0)


async def directions(tape: Tape) -> None:
    """Somebody speaks from elsewhere, then who is meant."""
    settings = SessionSettings(accept=Sector(90, 60))
    async with recorded_scene(tape, settings=settings) as played:
        for azimuth_deg in (200.0, 200.0, 100.0, 100.0):
            await played.do(NoteDirection(Direction(azimuth_deg, speech=True)))
            await played.say(0.4)
        await played.hear(5.0)


SCENARIOS: list[Scenario] = [
    *(question, barge_in, over_an_answer, speculation, partials, broken_engines, push_to_talk),
    *(items_and_tools, out_of_band, idle_and_settings, ends_in_the_middle),
    *(owed_answers, directions),
]
