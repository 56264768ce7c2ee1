"""Turns over real servers: llama.cpp's llama-server, and the audio server in ``examples``."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from app.compose import Assistant
from app.models.weights import WeightsCache
from app.server.serving import local_server
from app.settings.load import load_settings
from benchmarks.wer import word_errors
from pipeline.audio import LISTEN_RATE
from pipeline.engines.contract import Finished
from pipeline.engines.registry import Kind
from pipeline.errors import EngineError, PromptTooLong
from pipeline.messages import LlmRequest, Message, Sampling
from pipeline.work import Work
from tests.clients.robot_app import COMPLETED, DELTA, STARTED, robot_app
from tests.engines.by_url.test_url_templates import TALKS
from tests.server.test_url_turn import TOOL, talking
from tests.support.deltas import text_of
from tests.support.places import DATA
from tests.support.protocol_client import text_item
from tests.support.real_servers import (
    BUILT,
    MODEL,
    ROOT,
    RealServer,
    audio_server,
    behind_one_url,
    llama_server,
    needs_llama_server,
)
from tests.support.recordings import recording
from tests.support.scripted_server import Talk
from tests.support.url_engines import HELLO, answer, running, told
from tests.support.watched_log import watched_log

pytestmark = [
    pytest.mark.engines,
    pytest.mark.real,
    needs_llama_server,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

CHAT, DONE = "openai-chat", "response.done"
WRITTEN = {"output_modalities": ["text"]}
ENDLESS = "llm.extra={ignore_eos: true}"
SHORT = "conversation.sampling.max_tokens=24"
PARAMETERS: Any = TOOL["parameters"]
DANCE = {**TOOL, "parameters": {**PARAMETERS, "required": ["steps"]}}
STEADY = Sampling(temperature=0.0, max_tokens=48)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def audio(weights: Callable[[str], Path]) -> AsyncIterator[RealServer]:
    for name in ("silero-vad", "moonshine-tiny-en", "piper-joe", MODEL, "smart-turn-v3.2"):
        weights(name)
    async with audio_server() as server:
        yield server


@asynccontextmanager
async def served(
    cache: WeightsCache, brain: RealServer, audio: RealServer, *more: str
) -> AsyncIterator[str]:
    """Our server over theirs, with the shipped profile."""
    urls = (f"stt.url={audio.url}", f"llm.url={brain.url}", f"tts.url={audio.url}")
    steady = ("conversation.sampling.temperature=0", "conversation.sampling.max_tokens=48")
    patient = ("llm.first_s=120", "tts.first_s=120")  # servers on a busy machine are slow
    loaded = await asyncio.to_thread(load_settings, "remote", (*urls, *steady, *patient, *more))
    assistant = await asyncio.to_thread(Assistant, loaded.settings, cache)
    async with local_server(assistant) as url:
        yield url


async def test_the_documentation_names_the_tested_version() -> None:
    program = Path(BUILT.read_text()) / "llama-server"
    told = await asyncio.to_thread(
        subprocess.run, [program, "--version"], capture_output=True, text=True, check=True
    )
    found = re.search(r"version: (\S+) \(build \d+, commit (\w+)\)", told.stdout + told.stderr)
    assert found
    assert f"llama.cpp {found[1]} ({found[2]})" in (ROOT / "docs" / "servers.md").read_text()
    assert f"llama.cpp {found[1]}" in (ROOT / "README.md").read_text()


# --- whole turns -------------------------------------------------------------------------------


async def test_a_spoken_turn(cache: WeightsCache, audio: RealServer) -> None:
    question = recording("goforward")
    async with (
        llama_server(cache) as brain,
        served(cache, brain, audio) as url,
        robot_app(url) as app,
    ):
        for number in (1, 2):
            app.hears(question.pcm)
            heard = await app.event(COMPLETED, number)
            assert word_errors(question.text, heard["transcript"]).errors <= 1
            response = (await app.event(DONE, number))["response"]
            assert response["status"] in ("completed", "incomplete")
            assert response["output"][0]["content"][0]["transcript"].strip()
            assert response["usage"]["input_token_details"]["cached_tokens"] > 0, "read ahead"
        assert app.player.pcm_bytes > LISTEN_RATE
        assert not app.errors


async def test_speech_over_the_answer_stops_the_model(
    cache: WeightsCache, audio: RealServer
) -> None:
    longest = "conversation.sampling.max_tokens=1000"
    async with (
        llama_server(cache) as brain,
        served(cache, brain, audio, ENDLESS, longest) as url,
        robot_app(url) as app,
    ):
        app.hears(recording("goforward").pcm)
        await app.event(DELTA)
        brain.program.forget()  # attempts that were abandoned
        app.hears(recording("something").pcm)
        await app.event(STARTED, 2)
        response = (await app.event(DONE))["response"]
        assert response["status"] == "cancelled"
        await brain.program.until("cancel task")
        stopped = await brain.program.until("stop processing")
        assert int(stopped.partition("n_tokens = ")[2].partition(",")[0]) < 1000


PENALTY = "conversation.sampling.repeat_penalty=1.1"
"""Without it, the packaged small model says nothing about a result."""


@pytest.mark.parametrize("kind", ["auto", "required"])
async def test_a_tool_turn(cache: WeightsCache, audio: RealServer, kind: str) -> None:
    """A small model calls a tool unforced if the conversation shows how."""
    async with (
        llama_server(cache) as brain,
        served(cache, brain, audio, "llm.word_judge=null", PENALTY) as url,
        talking(url, tools=[DANCE], tool_choice=kind, **WRITTEN) as talk,
    ):
        for number in range(3 if kind == "auto" else 0):
            call = {"type": "function_call", "name": "dance", "arguments": '{"steps": 3}'}
            result = {"type": "function_call_output", "output": "ok"}
            for item in (
                text_item("Dance three steps!"),
                call,
                result,
                text_item("I dance.", "assistant", "output_text"),
            ):
                if item["type"].startswith("function"):
                    item["call_id"] = f"call_{number}"
                await talk.send("conversation.item.create", item=item)
        response = await talk.ask(text_item("Dance three steps!"))
        (call,) = (item for item in response["output"] if item["type"] == "function_call")
        assert call["name"] == "dance"
        assert isinstance(json.loads(call["arguments"])["steps"], int)
        await talk.send("session.update", session={"type": "realtime", "tool_choice": "none"})
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "ok"}
        response = await talk.ask(result)
        assert [item["type"] for item in response["output"]] == ["message"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_model_lost_in_mid_answer_costs_that_answer(
    cache: WeightsCache, audio: RealServer, number: signal.Signals
) -> None:
    async with AsyncExitStack() as stack:
        log = stack.enter_context(told())
        brain = await stack.enter_async_context(llama_server(cache))
        ours = served(cache, brain, audio, ENDLESS, "llm.word_judge=null")
        talk = await stack.enter_async_context(talking(await stack.enter_async_context(ours)))
        await begin(talk, 1000)
        brain.program.process.send_signal(number)
        await apologised(talk)
        await brain.program.kill()
        await stack.enter_async_context(llama_server(cache, port=brain.port))
        await log.until("is back")
        await answers(talk)


async def test_a_voice_lost_in_mid_answer_costs_that_answer(
    cache: WeightsCache, audio: RealServer
) -> None:
    async with AsyncExitStack() as stack:
        log = stack.enter_context(told())
        apology = stack.enter_context(watched_log("reachy_voice.tts"))
        brain = await stack.enter_async_context(llama_server(cache))
        voice = await stack.enter_async_context(audio_server())
        ours = served(cache, brain, audio, ENDLESS, "llm.word_judge=null", f"tts.url={voice.url}")
        talk = await stack.enter_async_context(talking(await stack.enter_async_context(ours)))
        await apology.until("the voice takes")  # then it is kept
        await begin(talk, 1000)
        await voice.program.kill()
        await apologised(talk)
        await stack.enter_async_context(audio_server(voice.port))
        await log.until("is back")
        await answers(talk)


async def test_another_server_behind_the_url_takes_over(
    cache: WeightsCache, audio: RealServer
) -> None:
    """A clause begun by the lost voice is said again; for an answer begun by the lost model there
    is an apology, and the next answer comes."""
    async with AsyncExitStack() as stack:
        brains = [await stack.enter_async_context(llama_server(cache)) for _ in range(2)]
        voices = [await stack.enter_async_context(audio_server()), audio]
        brain_url, voice_url = [
            await stack.enter_async_context(behind_one_url(*each)) for each in (brains, voices)
        ]
        urls = (f"llm.url={brain_url}", f"tts.url={voice_url}", "llm.word_judge=null")
        ours = served(cache, brains[0], audio, ENDLESS, SHORT, *urls)
        talk = await stack.enter_async_context(talking(await stack.enter_async_context(ours)))
        await begin(talk, 24)
        await voices[0].program.kill()
        done = (await talk.until(DONE))["response"]
        assert done["status"] in ("completed", "incomplete"), done["status_details"]
        assert "Sorry" not in transcript(talk)
        await begin(talk, 24)
        await brains[0].program.kill()
        await apologised(talk)
        await answers(talk)


async def begin(talk: Talk, tokens: int) -> None:
    """Run an answer, of ``tokens``, up to its first sound."""
    await talk.send("conversation.item.create", item=text_item("Tell me a story."))
    await talk.send("response.create", response={"max_output_tokens": tokens})
    await talk.until(DELTA)


async def answers(talk: Talk) -> None:
    response = await talk.ask(text_item("Hello?"))
    assert response["status"] in ("completed", "incomplete")


async def apologised(talk: Talk) -> None:
    assert (await talk.until(DONE))["response"]["status"] == "failed"
    assert "Sorry" in transcript(talk)


def transcript(talk: Talk) -> str:
    spoken = "response.output_audio_transcript.delta"
    return "".join(event["delta"] for event in talk.recorder.events if event["type"] == spoken)


async def test_a_history_that_is_too_long_loses_its_beginning(
    cache: WeightsCache, audio: RealServer
) -> None:
    async with (
        llama_server(cache, slot_tokens=1024) as brain,
        served(cache, brain, audio, "llm.word_judge=null") as url,
        talking(url, **WRITTEN) as talk,
    ):
        long = [text_item(f"Number {number}: " + "many words " * 100) for number in range(6)]
        response = await talk.ask(*long)
        assert response["status"] in ("completed", "incomplete")
        assert 0 < response["usage"]["input_tokens"] < 1024


async def test_two_conversations_keep_their_caches(cache: WeightsCache, audio: RealServer) -> None:
    async with (
        llama_server(cache, slots=2) as brain,
        served(cache, brain, audio, "llm.word_judge=null") as url,
        talking(url, instructions="You are a pirate. " * 20, **WRITTEN) as pirate,
        talking(url, instructions="You cook tomatoes. " * 20, **WRITTEN) as cook,
    ):
        for turn in range(3):
            for talk in (pirate, cook):
                usage = (await talk.ask(text_item("What do you do?")))["usage"]
                cached = usage["input_token_details"]["cached_tokens"]
                assert turn == 0 or cached > 0.8 * usage["input_tokens"]


# --- requests ----------------------------------------------------------------------------------


async def test_the_request_after_an_abandoned_answer_uses_its_cache(cache: WeightsCache) -> None:
    """If it still ran, the next prompt would be read anew in the other slot and keep the model from
    stopping."""
    async with (
        llama_server(cache, slots=2) as brain,
        running(Kind.LLM, CHAT, brain.url, extra={"ignore_eos": True}) as engine,
    ):
        conversation = engine.open()
        asked = Message("user", "word " * 200)
        for _ in range(5):
            left = conversation.reply(LlmRequest([asked]), Work())
            async with aclosing(left) as deltas:
                await anext(deltas)
            warmed = await conversation.warm(LlmRequest([asked]), Work())
            assert warmed.usage.evaluated <= 1


async def test_the_model_and_its_limits_are_found(cache: WeightsCache) -> None:
    async with (
        llama_server(cache, slots=2, slot_tokens=512) as brain,
        running(Kind.LLM, CHAT, brain.url) as engine,
    ):
        found = engine.server
        assert (found.family.name, found.model) == ("llama-server", MODEL)
        assert (found.context_tokens, found.slots) == (512, 2)
        assert not found.shows_tools
        with pytest.raises(PromptTooLong) as refused:
            await answer(engine, Message("user", "word " * 2000))
        assert refused.value.prompt_tokens > refused.value.limit_tokens == 512


@pytest.mark.parametrize("name", ["qwen3.5", "mistral-nemo", "ministral3", "llama3", "gemma3"])
async def test_strict_templates_refuse_nothing_we_send(
    cache: WeightsCache, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    template = DATA / "chat_templates" / f"{name}.jinja"
    brief = Sampling(temperature=0.0, max_tokens=4)
    async with (
        llama_server(cache, "--jinja", "--chat-template-file", str(template)) as brain,
        running(Kind.LLM, CHAT, brain.url) as engine,
    ):
        for talk in TALKS:
            assert await answer(engine, *talk, sampling=brief)
    assert "simpler form" not in caplog.text


THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif %}"
)
"""As in templates of thinking models: the prompt opens the thought, or closes it at once."""
MARK = " Xyzzy."
"""The end of the thought, inserted by the server."""


@pytest.mark.parametrize("form", ["auto", "none"])
async def test_thoughts_are_not_spoken(cache: WeightsCache, tmp_path: Path, form: str) -> None:
    (tmp_path / "thinking.jinja").write_text(THINKING)
    template = ("--chat-template-file", str(tmp_path / "thinking.jinja"))
    budget = ("--reasoning-budget", "12", "--reasoning-budget-message", MARK)
    thinks = {"chat_template_kwargs": {"enable_thinking": True}, "ignore_eos": True}
    async with llama_server(cache, *template, *budget, "--reasoning-format", form) as brain:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            asked = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 40}
            raw = await client.post(f"{brain.url}/chat/completions", json={**asked, **thinks})
            assert MARK in raw.text
        async with running(Kind.LLM, CHAT, brain.url, extra=thinks) as engine:
            spoken = await answer(engine, sampling=STEADY)
            assert text_of(spoken).strip()
            assert "Xyzzy" not in text_of(spoken)
            assert "think>" not in text_of(spoken)
        async with running(Kind.LLM, CHAT, brain.url) as engine:
            assert text_of(await answer(engine, sampling=STEADY)).strip()


async def test_an_error_in_mid_stream(cache: WeightsCache) -> None:
    """Two answers fill the context that they share."""
    async with (
        llama_server(cache, "-kvu", slots=2, slot_tokens=128) as brain,
        running(Kind.LLM, CHAT, brain.url, extra={"ignore_eos": True}) as engine,
    ):
        both = (answer(engine, sampling=Sampling(temperature=0.0)) for _ in range(2))
        for outcome in await asyncio.gather(*both, return_exceptions=True):
            assert isinstance(outcome, EngineError)
            assert "in the middle of its answer, Context size has been exceeded" in str(outcome)
        *_, finished = await answer(engine, *HELLO, sampling=STEADY)
        assert isinstance(finished, Finished)
