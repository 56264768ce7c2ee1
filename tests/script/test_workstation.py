"""The workstation's stack, whole: NeMo, llama.cpp and qwen-tts behind the WebSocket.

The checkpoints are tiny; the libraries are real and run where they do in production. The client
behaves like the robot's app, in real time. The tiny voice is unintelligible, and the language
model's words are not checked.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from app.compose import Assistant
from app.models.weights import WeightsCache
from app.server.serving import local_server
from app.settings.load import load_settings
from pipeline.audio import LISTEN_RATE, Pcm
from pipeline.engines.registry import Kind
from pipeline.workers.process_worker import ProcessWorker
from tests.clients.robot_app import (
    CALLED,
    COMPLETED,
    DELTA,
    STARTED,
    STOPPED,
    RobotApp,
    RobotTool,
    robot_app,
    session_of,
)
from tests.support.tiny_models.parakeet import FILE
from tests.support.tiny_parakeet import GAP, needs_nemo, say
from tests.support.tiny_qwen import directory, needs_qwen

pytestmark = [
    pytest.mark.engines,
    pytest.mark.nemo,
    pytest.mark.qwen,
    pytest.mark.real,
    needs_nemo,
    needs_qwen,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

DONE = "response.done"
WEEK = "How many days are there in a week?"
STORY = "Tell me a short story."
TIME = "What time is it?"
TURN = "Turn your head to the left."


def overrides() -> list[str]:
    """One line of YAML per engine, in the form of ``--set``."""
    return [
        f"stt={{engine: parakeet, weights: null, model_file: {FILE}, precision: fp32}}",
        f"tts={{engine: qwen3-tts, weights: null, model_dir: {directory()}, precision: fp32,"
        " seed: 4}",
        "llm.threads=1",
        "conversation.sampling.max_tokens=32",
        "conversation.sampling.seed=1",
        # Its hum would count as a fault.
        "playback.watch_voice=false",
    ]


@dataclass(frozen=True)
class Workstation:
    url: str
    assistant: Assistant


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workstation(
    weights: Callable[[str], Path], cache: WeightsCache
) -> AsyncIterator[Workstation]:
    settings = load_settings(None, await asyncio.to_thread(overrides)).settings
    for name in settings.weights():
        weights(name)
    assistant = Assistant(settings, cache)
    async with local_server(assistant) as url:
        yield Workstation(url, assistant)


def spoken(phrase: str) -> Pcm:
    """Speech at 16 kHz, as a person says it; the app adds the room's silence after it."""
    return np.concatenate((GAP, say(phrase, "en-us+m3")))


def samples_of(events: list[dict[str, Any]]) -> int:
    """Audio in these events, 16 kHz."""
    return sum(len(base64.b64decode(event["delta"])) // 2 for event in events)


async def answered(app: RobotApp, count: int = 1) -> dict[str, Any]:
    response: dict[str, Any] = (await app.event(DONE, count))["response"]
    return response


async def test_the_big_engines_run_in_separate_processes(workstation: Workstation) -> None:
    for kind in (Kind.STT, Kind.TTS):
        worker = workstation.assistant.engines[kind]
        assert isinstance(worker, ProcessWorker)
        assert worker.pid
    assert workstation.assistant.describe(Kind.STT) == "parakeet"


async def test_a_voice_turn(workstation: Workstation) -> None:
    async with robot_app(workstation.url) as app:
        app.hears(spoken(WEEK))
        assert (await app.event(COMPLETED))["transcript"] == WEEK
        response = await answered(app)
        assert response["status"] in ("completed", "incomplete")
        (message,) = response["output"]
        assert message["content"][0]["transcript"].strip()
        assert samples_of(app.all(DELTA)) >= LISTEN_RATE // 10
        assert app.count(STARTED) == app.count(STOPPED) == 1
        assert not app.errors


async def test_a_tool_turn(workstation: Workstation) -> None:
    called: list[Any] = []
    directions = {"type": "string", "enum": ["left", "right", "up", "down", "front"]}
    parameters = {
        "type": "object",
        "properties": {"direction": directions},
        "required": ["direction"],
    }
    move = RobotTool(
        "move_head",
        run=lambda arguments: called.append(arguments) or {"status": "ok"},
        parameters=parameters,
    )
    session = session_of([move], "You are Reachy Mini.") | {"tool_choice": "required"}
    async with robot_app(workstation.url, tools=[move], session=session) as app:
        app.hears(spoken(TURN))
        assert (await app.event(COMPLETED))["transcript"] == TURN
        call = await app.event(CALLED)
        assert call["name"] == "move_head"
        # Before the app asks for a comment, which it does after this response.
        await app.update({"tool_choice": "none"})
        first, second = await answered(app), await answered(app, 2)
        assert first["output"][-1]["type"] == "function_call"
        assert called[0]["direction"] in directions["enum"]
        assert [item["type"] for item in second["output"]] == ["message"]
        assert samples_of(app.all(DELTA)) > 0
        assert not app.errors


async def test_a_barge_in(workstation: Workstation) -> None:
    async with robot_app(workstation.url) as app:
        app.hears(spoken(STORY))
        await app.event(DELTA)
        app.hears(spoken(TIME))
        await app.event(STARTED, 2)
        interrupted = await answered(app)
        assert interrupted["status"] == "cancelled"
        assert interrupted["status_details"]["reason"] == "turn_detected"
        assert app.player.queued_s == 0
        assert (await app.event(COMPLETED, 2))["transcript"] == TIME
        # It recognises and answers the interrupting words.
        assert (await answered(app, 2))["status"] in ("completed", "incomplete")
        assert not app.errors


@pytest.mark.parametrize("kind", [Kind.STT, Kind.TTS])
async def test_a_killed_engine_costs_at_most_one_turn(workstation: Workstation, kind: Kind) -> None:
    worker = workstation.assistant.engines[kind]
    assert isinstance(worker, ProcessWorker)
    async with robot_app(workstation.url) as app:
        for _ in range(3):
            # The turn before has used the engine, so its loss has been noticed.
            await worker.ready.wait()
            started, given, done = app.count(STARTED), app.count(DELTA), app.count(DONE)
            app.hears(spoken(STORY))
            await app.event(STARTED, started + 1)
            if kind is Kind.TTS:
                await app.event(DELTA, given + 1)
            assert worker.pid
            os.kill(worker.pid, signal.SIGKILL)
            # Answered or failed, the response ends and the client is told. The loss may be
            # noticed only at the next turn.
            lost = [(await answered(app, done + 1))["status"] == "failed"]
            await worker.ready.wait()
            done = app.count(DONE)
            app.hears(spoken(TIME))
            lost.append((await answered(app, done + 1))["status"] == "failed")
            assert sum(lost) <= 1
        assert app.close_code is None
