"""Language models by URL: prompts that are read ahead, too long, or waiting."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext

import pytest

from pipeline.errors import EngineError, PromptTooLong
from pipeline.messages import LlmRequest, Message, Usage
from pipeline.work import Cancelled, Priority, Work
from tests.engines.by_url.test_url_llm import PATH, last
from tests.support.deltas import text_of
from tests.support.far_server import FarServer, Mood, problem
from tests.support.url_engines import DANCE, HELLO, answer, chat_with

pytestmark = pytest.mark.machine


@pytest.mark.parametrize(
    ("messages", "said", "end"),
    [
        (HELLO, "", "Hello, who are you?"),
        (HELLO, "And what", "Hello, who are you? And what"),
        (HELLO[:1], "What time", "What time"),
        ((*HELLO, Message("assistant", "I am Reachy.")), "", "."),
    ],
)
async def test_prompts_are_read_ahead(messages: tuple[Message, ...], said: str, end: str) -> None:
    far = FarServer()
    async with chat_with(far) as engine:
        warmed = await engine.open().warm(LlmRequest(messages, [DANCE], unfinished=said), Work())
    asked = last(far)
    assert asked["stream"] is False
    assert asked["max_tokens"] == 1
    assert asked["messages"][-1] == {"role": "user", "content": end}
    assert asked["tools"]
    assert warmed.usage == Usage(20, 12, 8, 7)
    assert 0 < warmed.fixed_tokens <= 20


async def test_paid_servers_get_no_read_ahead() -> None:
    far = FarServer("openai")
    async with chat_with(far) as engine:
        talk = engine.open()
        await talk.warm(LlmRequest(HELLO), Work())
        assert not far.asked(PATH)
        [_ async for _ in talk.reply(LlmRequest(HELLO), Work())]
        assert (await talk.warm(LlmRequest(HELLO), Work())).usage.prompt == 27


async def test_a_server_that_refuses_reading_ahead_is_not_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    far = FarServer()
    refusal = {"error": {"message": "Hello, who are you? cannot be read", "code": 400}}
    far.moods[PATH] = [problem(400, refusal)]
    async with chat_with(far) as engine:
        talk = engine.open()
        for _ in range(2):
            await talk.warm(LlmRequest(HELLO), Work())
        assert len(far.asked(PATH)) == 1
        assert "no longer read ahead" in caplog.text
        assert "Hello" not in caplog.text
        assert text_of(await answer(engine))


@pytest.mark.parametrize(
    "failure",
    [
        problem(200, {"error": {"code": 429, "message": "Tokens per minute limit exceeded"}}),
        problem(200, {"error": "Request failed", "error_type": "generation"}),
        problem(402, {"error": {"message": "Insufficient credits"}}),
    ],
)
async def test_a_temporary_failure_does_not_end_reading_ahead(failure: Mood) -> None:
    far = FarServer(moods={PATH: [failure]})
    async with chat_with(far) as engine:
        talk = engine.open()
        with pytest.raises(EngineError) as failed:
            await talk.warm(LlmRequest(HELLO), Work())
        assert not isinstance(failed.value, PromptTooLong)
        assert (await talk.warm(LlmRequest(HELLO), Work())).usage.prompt


async def test_reading_ahead_reports_a_prompt_that_is_too_long() -> None:
    far = FarServer()
    error = {"type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 8192}
    far.moods[PATH] = [problem(400, {"error": {"message": "", **error}})] * 2
    async with chat_with(far) as engine:
        with pytest.raises(PromptTooLong):
            await engine.open().warm(LlmRequest(HELLO), Work())
        with pytest.raises(PromptTooLong):
            await answer(engine)


# --- room and slots ---------------------------------------------------------------------------

CALL = {"id": "c", "type": "function", "function": {"name": "dance", "arguments": "{}"}}
STREET = "今天天气很好，我们一起去公园散步吧。"


@pytest.mark.parametrize(
    ("result", "refused"),
    [
        ("The lamp in the kitchen is on. " * 300, False),
        ("3141592653589793" * 300, True),
        ("12 7 93 4 " * 700, True),
        ("9f86d081884c7d65" * 320, True),
        ("n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg" * 160, True),
        ("acgtgcat" * 1000, True),
        (STREET * 300, True),
        ("Сегодня очень хорошая погода. " * 300, True),
        (json.dumps([{"id": n, "xy": [n / 7, n]} for n in range(160)]), True),
    ],
)
async def test_a_token_dense_result_is_refused_before_it_is_cut(result: str, refused: bool) -> None:
    dense = (*HELLO, Message("assistant", "", (CALL,)), Message("tool", result, tool_call_id="c"))
    far = FarServer("ollama")
    async with chat_with(far) as engine:
        for measured in (False, True):
            talk = engine.open()
            if measured:
                await talk.warm(LlmRequest(HELLO, [DANCE]), Work())
            with pytest.raises(PromptTooLong) if refused else nullcontext():
                await talk.warm(LlmRequest(dense, [DANCE]), Work())


@pytest.mark.parametrize("ahead", [True, False])
async def test_a_prompt_that_would_be_cut_silently_is_refused(ahead: bool) -> None:
    """Ollama would cut it; other servers report it."""
    long = (*HELLO, Message("user", "word " * 20_000))
    far = FarServer("ollama")
    async with chat_with(far, read_ahead=ahead) as engine:
        talk = engine.open()
        [_ async for _ in talk.reply(LlmRequest(HELLO), Work())]
        with pytest.raises(PromptTooLong) as refused:
            await talk.warm(LlmRequest(long), Work())
        assert refused.value.limit_tokens == 4096
        with pytest.raises(PromptTooLong):
            [_ async for _ in talk.reply(LlmRequest(long), Work())]
        far.kind = "vllm"
    async with chat_with(far) as engine:
        talk = engine.open()
        await talk.warm(LlmRequest(HELLO), Work())
        assert await talk.warm(LlmRequest(long), Work())


async def test_requests_beyond_the_servers_slots_wait_here() -> None:
    """Confirmed requests go first."""
    far = FarServer(moods={PATH: [Mood(body=[None])] * 4})
    async with chat_with(far) as engine:
        guesses = [Work(Priority.SPECULATIVE) for _ in range(5)]
        asking = [asyncio.create_task(answer(engine, work=work)) for work in guesses]
        for _ in range(4):
            await far.until_asked(PATH)
        confirmed = asyncio.create_task(answer(engine, Message("user", "At once!")))
        await asyncio.sleep(0)
        guesses[0].cancel()
        assert text_of(await confirmed)
        assert far.asked(PATH)[4].json["messages"][-1]["content"] == "At once!"
        assert text_of(await asking[4])
        for work in guesses:
            work.cancel()
        ended = await asyncio.gather(*asking[:4], return_exceptions=True)
        assert all(isinstance(error, Cancelled) for error in ended)
        assert len(far.asked(PATH)) == 6
