"""The conversation keeps exactly what the model wrote, so that its KV prefix stays valid."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from pipeline.commands import CancelResponse, CreateResponse
from pipeline.conversation.prompt import CUT_OFF
from pipeline.engines.contract import Delta, TextDelta, ToolCall
from pipeline.messages import LlmRequest, Message
from pipeline.speaking.text_ahead import AHEAD_CHARS
from pipeline.work import Work
from reachy_voice.testing import ScriptedConversation, ScriptedLlm, ScriptedTts, play, wait

pytestmark = pytest.mark.quick

ODD = (" Well", ",  here", " it is", ":\n\n", "1. *One*", "\n2. Two", "\n\nThat is", " all", ". \n")
TEXT = "".join(ODD).strip()


def last_words(prompt: list[Message]) -> str:
    return next(m.content for m in reversed(prompt) if m.role == "assistant")


def test_the_next_prompt_has_the_exact_words() -> None:
    llm = ScriptedLlm(ODD)
    played = play(CreateResponse(), wait(30), CreateResponse(), llm=llm)
    assert "".join(played.words) == TEXT
    assert last_words(llm.prompts[-1]) == TEXT


def test_heard_text_is_a_prefix_of_the_written_text() -> None:
    for after_ms in range(300, 4000, 230):
        llm = ScriptedLlm(ODD)
        cut = (CreateResponse(), wait(after_ms / 1000), CancelResponse())
        play(*cut, CreateResponse(), wait(0.01), llm=llm)
        assert len(llm.prompts) == 2
        if any(m.role == "assistant" for m in llm.prompts[-1]):
            assert TEXT.startswith(last_words(llm.prompts[-1]).removesuffix(CUT_OFF))


def test_words_after_a_call_are_separate() -> None:
    answer = ("One", " moment", ToolCall("dance", "{}"), "Look", " here.")
    played = play(CreateResponse(), wait(30), llm=ScriptedLlm(answer))
    assert "".join(played.words) == "One moment Look here."
    assert played.statuses == ["completed"]


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


def test_the_model_waits_for_a_slow_voice() -> None:
    llm, ahead = CountingLlm(("Word after word. ",) * 50), list[int]()
    acts = (CreateResponse(), wait(3.5), lambda _: ahead.append(llm.written), wait(5_000))
    played = play(*acts, llm=llm, tts=ScriptedTts(first_s=4))
    assert AHEAD_CHARS <= ahead[0] <= AHEAD_CHARS + 100
    assert played.statuses == ["completed"]
    assert "".join(played.words) == "".join(map(str, llm.deltas)).strip()


def test_a_code_block_longer_than_the_lead_does_not_stop_the_model() -> None:
    code = ("```\n", *["x = 1\n"] * (AHEAD_CHARS // 3), "```\n")
    llm, tts = ScriptedLlm(("Look:\n", *code, "That is it.")), ScriptedTts()
    played = play(CreateResponse(), wait(60), llm=llm, tts=tts)
    assert played.statuses == ["completed"]
    assert tts.said == ["Look:", "That is it."]
