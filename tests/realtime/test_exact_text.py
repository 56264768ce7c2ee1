"""What the model wrote is what the conversation keeps, so that its KV prefix stays valid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from pipeline.commands import CancelResponse, CreateResponse
from pipeline.conversation.prompt import CUT_OFF
from pipeline.engines.contract import Delta, TextDelta, ToolCall
from pipeline.events import ReplyFinished, ReplyText
from pipeline.messages import LlmRequest, Message
from pipeline.speaking.text_ahead import AHEAD_CHARS
from pipeline.work import Work
from reachy_voice.testing import (
    Scene,
    ScriptedConversation,
    ScriptedLlm,
    ScriptedTts,
    in_virtual_time,
    scene,
)

pytestmark = pytest.mark.quick

ODD = (" Well", ",  here", " it is", ":\n\n", "1. *One*", "\n2. Two", "\n\nThat is", " all", ". \n")
TEXT = "".join(ODD).strip()


def last_words(prompt: list[Message]) -> str:
    return next(m.content for m in reversed(prompt) if m.role == "assistant")


def told(played: Scene) -> str:
    return "".join(event.text for event in played.events(ReplyText))


@in_virtual_time
async def test_the_next_prompt_has_the_exact_words() -> None:
    llm = ScriptedLlm(ODD)
    async with scene(llm=llm) as played:
        await played.do(CreateResponse())
        await asyncio.sleep(30)
        await played.do(CreateResponse())
        assert told(played) == TEXT
        assert last_words(llm.prompts[-1]) == TEXT


@in_virtual_time
async def test_heard_text_is_a_prefix_of_the_written_text() -> None:
    for after_ms in range(300, 4000, 230):
        llm = ScriptedLlm(ODD)
        async with scene(llm=llm) as played:
            await played.do(CreateResponse())
            await asyncio.sleep(after_ms / 1000)
            await played.do(CancelResponse())
            await played.do(CreateResponse())
            await asyncio.sleep(0.01)
            assert len(llm.prompts) == 2
            if any(m.role == "assistant" for m in llm.prompts[-1]):
                assert TEXT.startswith(last_words(llm.prompts[-1]).removesuffix(CUT_OFF))


@in_virtual_time
async def test_words_behind_a_call_stand_apart() -> None:
    answer = ("One", " moment", ToolCall("dance", "{}"), "Look", " here.")
    async with scene(llm=ScriptedLlm(answer)) as played:
        await played.do(CreateResponse())
        await asyncio.sleep(30)
        assert told(played) == "One moment Look here."
        (finished,) = played.events(ReplyFinished)
        assert finished.status == "completed"


class CountingLlm(ScriptedLlm):
    written = 0

    def open(self) -> ScriptedConversation:
        return CountingConversation(self)


class CountingConversation(ScriptedConversation):
    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        assert isinstance(self.llm, CountingLlm)
        async for delta in super().reply(request, work):
            self.llm.written += len(delta.text) if isinstance(delta, TextDelta) else 0
            yield delta


@in_virtual_time
async def test_the_model_waits_for_a_slow_voice() -> None:
    llm = CountingLlm(("Word after word. ",) * 200)
    async with scene(llm=llm, tts=ScriptedTts(first_s=4)) as played:
        await played.do(CreateResponse())
        await asyncio.sleep(3.5)
        assert AHEAD_CHARS <= llm.written <= AHEAD_CHARS + 100
        await asyncio.sleep(20_000)
        assert played.events(ReplyFinished)
        assert told(played) == "".join(map(str, llm.deltas)).strip()


@in_virtual_time
async def test_a_block_of_code_longer_than_the_model_may_run_ahead_does_not_stop_it() -> None:
    code = ("```\n", *["x = 1\n"] * (AHEAD_CHARS // 3), "```\n")
    async with scene(llm=ScriptedLlm(("Look:\n", *code, "That is it."))) as played:
        await played.do(CreateResponse())
        await asyncio.sleep(60)
        (finished,) = played.events(ReplyFinished)
        assert finished.status == "completed"
        assert isinstance(played.stages.tts, ScriptedTts)
        assert played.stages.tts.said == ["Look:", "That is it."]
