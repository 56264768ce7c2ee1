"""One speculative reply on its own, to test what happens before its gate opens."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from pipeline.audio import AudioFormat
from pipeline.bus import Bus
from pipeline.commands import SessionConfig
from pipeline.context import SessionContext
from pipeline.conversation.chat import Chat
from pipeline.conversation.item_editor import ItemEditor
from pipeline.conversation.reply_prompts import Prompt, ReplyPrompts
from pipeline.conversation.transcribing import Transcriber
from pipeline.engines.stages import KeptVoice, Stages, TtsStage
from pipeline.events import Event
from pipeline.messages import Sampling
from pipeline.settings import SessionSettings
from pipeline.speaking.delivery import ReplyPlan
from pipeline.speaking.playback import Lead
from pipeline.speaking.ramp import Ramp
from pipeline.speaking.reply import Reply
from pipeline.speaking.response import Response
from pipeline.work import Priority, Work
from reachy_voice.testing import LevelVad, ScriptedLlm, ScriptedStt, ScriptedTurn


@asynccontextmanager
async def gated(
    tts: TtsStage, answer: Sequence[str], *, apology: str = "", kept: KeptVoice | None = None
) -> AsyncIterator[tuple[Reply, list[Event]]]:
    """A running speculative reply and everything it publishes."""
    config = SessionConfig("", output_format=AudioFormat(rate=16_000))
    settings = SessionSettings(watched=True, apology=apology)
    plan = ReplyPlan("resp_1", "item_1", config, settings, Sampling(), lead=Lead(0.08, 0.25))
    bus, log = Bus(), list[Event]()
    bus.tap(lambda published: log.append(published.event))
    numbers = itertools.count(1)

    def new_id(prefix: str) -> str:
        return f"{prefix}_{next(numbers)}"

    llm = ScriptedLlm(answer)
    stages = Stages(LevelVad(), ScriptedTurn(), ScriptedStt(), llm, tts, notice_voice=kept)
    context = SessionContext(stages, config, settings, bus, asyncio.TaskGroup(), new_id)
    chat = Chat()
    prompts = ReplyPrompts(context, chat, Transcriber(context, chat, ItemEditor(context, chat)))
    response = Response(context, plan, None, asyncio.get_running_loop().time())
    work = Work(Priority.SPECULATIVE)
    reply = Reply(context, response, prompts, Prompt(), llm.open(), work, Ramp())
    running = asyncio.create_task(reply.run())
    try:
        yield reply, log
    finally:
        reply.cancel("shutdown")
        await asyncio.wait({running})
