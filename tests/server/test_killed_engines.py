"""The real engines are killed while the official openai client talks: it stays connected."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.compose import Assistant
from app.models.weights import WeightsCache
from app.server.serving import local_server
from app.settings.load import load_settings
from pipeline.engines.registry import Kind
from pipeline.workers.process_worker import ProcessWorker
from tests.clients.test_openai_client import (
    QUICK,
    ROOM,
    TRANSCRIBE,
    at_24k,
    client,
    events_until,
    send,
)
from tests.support.recordings import recording

pytestmark = [pytest.mark.engines, pytest.mark.real]

MORTAL = (Kind.VAD, Kind.STT, Kind.LLM, Kind.TTS)
ANSWERED = ("completed", "incomplete")  # "incomplete": it reached the length limit

WHEN = {
    Kind.VAD: "input_audio_buffer.speech_started",
    Kind.STT: "input_audio_buffer.speech_started",
    Kind.LLM: "input_audio_buffer.speech_stopped",
    Kind.TTS: "response.output_audio.delta",
}


async def test_a_killed_engine_fails_at_most_one_turn(
    weights: Callable[[str], Path], cache: WeightsCache
) -> None:
    places = tuple(f"{kind}.run_in=process" for kind in MORTAL)
    settings = await asyncio.to_thread(
        lambda: load_settings(None, (*QUICK, "conversation.sampling.max_tokens=12", *places))
    )
    for name in settings.settings.weights():
        await asyncio.to_thread(weights, name)
    assistant = await asyncio.to_thread(Assistant, settings.settings, cache)
    asked = np.concatenate((ROOM[:12_000], at_24k(recording("goforward").pcm), ROOM))
    async with local_server(assistant) as url:
        async with client(url).realtime.connect(model="reachy-voice") as connection:
            await connection.session.update(session={"type": "realtime", "audio": TRANSCRIBE})
            await events_until(connection, "session.updated")
            for kind in MORTAL:
                worker = assistant.engines[kind]
                assert isinstance(worker, ProcessWorker)
                before = worker.pid
                assert before
                sending = asyncio.create_task(send(connection, asked))
                await events_until(connection, WHEN[kind])
                os.kill(before, signal.SIGKILL)
                assert await status(connection) in (*ANSWERED, "failed")
                await sending
                await worker.ready.wait()
                assert worker.pid != before
                await asyncio.gather(send(connection, asked), well(connection, kind))
        async with httpx.AsyncClient(trust_env=False) as http:
            ready = await http.get(
                url.replace("ws://", "http://").removesuffix("/v1/realtime") + "/ready"
            )
        assert ready.json() == {"ready": True, "reasons": {}, "notes": {}}


async def well(connection: Any, kind: Kind) -> None:
    assert await status(connection) in ANSWERED, kind


async def status(connection: Any) -> str:
    """Status of the next response that nobody interrupts."""
    while True:
        done = (await events_until(connection, "response.done"))[-1].response
        if done.status != "cancelled":
            return str(done.status)
