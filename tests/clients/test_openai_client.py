"""The official openai client does whole turns with the real server and the real engines."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from app.compose import Assistant
from app.models.weights import WeightsCache
from app.server.serving import local_server
from app.settings.load import load_settings
from benchmarks.wer import word_errors
from pipeline.audio import LISTEN_RATE, Pcm, pcm_to_bytes, resampled
from tests.support.protocol_client import text_item

pytestmark = [pytest.mark.clients, pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

QUICK = ("llm.threads=1", "conversation.sampling.max_tokens=48", "conversation.sampling.seed=1")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(weights: Callable[[str], Path], cache: WeightsCache) -> AsyncIterator[str]:
    settings = load_settings(None, QUICK).settings
    for name in settings.weights():
        weights(name)
    async with local_server(Assistant(settings, cache)) as address:
        yield address


def client(url: str) -> AsyncOpenAI:
    base = url.replace("ws://", "http://").removesuffix("/realtime")
    return AsyncOpenAI(base_url=base, api_key="unused")


def at_24k(pcm: Pcm) -> Pcm:
    return resampled(pcm, LISTEN_RATE, 24_000)


async def send(connection: Any, pcm: Pcm) -> None:
    """Append in 20 ms chunks, as fast as possible."""
    for start in range(0, len(pcm), 480):
        chunk = pcm_to_bytes(pcm[start : start + 480])
        await connection.input_audio_buffer.append(audio=base64.b64encode(chunk).decode())


async def events_until(connection: Any, kind: str) -> list[Any]:
    events = []
    async with asyncio.timeout(60):
        async for event in connection:
            assert event.type != "error", event
            events.append(event)
            if event.type == kind:
                return events
    raise AssertionError(f"the connection ended before {kind}: {[e.type for e in events]}")


def first(events: list[Any], kind: str) -> Any:
    return next(event for event in events if event.type == kind)


TRANSCRIBE = {"input": {"transcription": {"model": "gpt-4o-transcribe"}}}
ROOM = np.random.default_rng(0).normal(0, 8, 24_000 * 2).astype(np.int16)


async def test_the_embedded_model_completes_a_tool_turn(url: str) -> None:
    weather: Any = {
        "type": "function",
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "day": {"type": "string", "enum": ["today", "tomorrow"]},
            },
            "required": ["city", "day"],
            "additionalProperties": False,
        },
    }
    async with client(url).realtime.connect(model="reachy-voice") as connection:
        await connection.session.update(session={"type": "realtime", "tools": [weather]})
        asked: Any = text_item("What is the weather in Paris?")
        await connection.conversation.item.create(item=asked)
        await connection.response.create(response={"tool_choice": "required"})
        events = await events_until(connection, "response.done")
        call = first(events, "response.function_call_arguments.done")
        assert call.name == "get_weather"
        arguments = json.loads(call.arguments)
        assert set(arguments) == {"city", "day"}
        assert arguments["day"] in ("today", "tomorrow")
        output: Any = {"type": "function_call_output", "output": '{"weather": "sunny"}'}
        await connection.conversation.item.create(item={**output, "call_id": call.call_id})
        await connection.response.create(response={"tool_choice": "none"})
        events = await events_until(connection, "response.done")
        assert events[-1].response.status in ("completed", "incomplete")
        # Such a small model may answer in markup, which is not read aloud.
        assert first(events, "response.output_audio_transcript.done").transcript


async def test_the_plain_routes_use_the_same_engines(url: str) -> None:
    text = "The train to Berlin leaves at nine o'clock. It is a cold and rainy morning."
    async with client(url) as openai:
        for kind in ("wav", "mp3"):
            sound = await openai.audio.speech.create(
                model="any", voice="", input=text, response_format=kind
            )
            heard = await openai.audio.transcriptions.create(
                model="any", file=(f"said.{kind}", sound.content)
            )
            assert word_errors(text, heard.text).rate <= 0.2, heard.text
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        schema |= {"required": ["name"], "additionalProperties": False}
        answer = await openai.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": "A boy called Tom has a dog."}],
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        )
        assert list(json.loads(answer.choices[0].message.content or "")) == ["name"]
        stream = await openai.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": "Say hello."}],
            max_tokens=20,
            stream=True,
        )
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
