"""``POST /v1/reachy/say`` on a real port, into real sessions over scripted engines."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect

from app.access.policy import Rules
from app.cli.say import say
from app.models.weights import WeightsCache
from app.server.gate import Access
from app.settings.model import LimitSettings
from pipeline.engines.registry import Kind
from reachy_voice.testing import ScriptedTts
from tests.models.test_exchange import running
from tests.support.protocol_client import text_item
from tests.support.scripted_server import Serve, talking
from tests.support.small_engines import install
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine

DINNER = "Dinner is ready."
SAY = "/v1/reachy/say"


async def test_an_announcement_is_an_ordinary_response_in_all_conversations(serving: Serve) -> None:
    served = await serving(StagedAssistant())
    async with talking(served) as one, talking(served) as other:
        for talk in (one, other):
            await talk.send("input_audio_buffer.clear")
            await talk.until("input_audio_buffer.cleared")
        asked = asyncio.create_task(served.post(SAY, json={"text": DINNER}))
        for talk in (one, other):
            created = await talk.until("response.created")
            assert created["response"]["metadata"] is None
            said = await talk.until("response.output_audio_transcript.done")
            assert said["transcript"] == DINNER
            done = (await talk.until("response.done"))["response"]
            assert (done["status"], done["output"][0]["role"]) == ("completed", "assistant")
        answer = (await asked).json()
    heard = {"name": "127.0.0.1", "outcome": "said", "heard": DINNER}
    assert answer == {"conversations": [heard, heard], "kept_s": 0}


async def test_an_announcement_ends_with_its_http_client(serving: Serve) -> None:
    assistant = StagedAssistant(tts=ScriptedTts(first_s=0.0))
    served = await serving(assistant)
    async with talking(served) as talk:
        await talk.send("conversation.item.create", item=QUESTION)
        await talk.send("response.create")
        await talk.until("response.created")
        with pytest.raises(httpx.ReadTimeout):
            await served.post(SAY, json={"text": DINNER}, timeout=0.2)
        await talk.until("response.done")
    assert DINNER not in assistant.tts.said


QUESTION = text_item("Hi")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"text": DINNER, "keep_s": 0}, 409, "not_said"),
        ({"text": "..."}, 409, "not_said"),
        ({"text": DINNER, "to": "nowhere"}, 400, "unknown_name"),
        ({"text": "x" * 1001}, 400, "invalid_value"),
        ({"text": DINNER, "within_s": 0}, 400, "invalid_value"),
        ({}, 400, "invalid_value"),
        ({"text": "x" * 3000}, 413, "request_too_large"),
    ],
)
async def test_bad_requests_are_refused(
    serving: Serve, body: dict[str, Any], status: int, code: str
) -> None:
    served = await serving(StagedAssistant(), limits=LimitSettings(http_body_kb=2))
    answer = await served.post(SAY, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_a_whole_server_keeps_time_and_says_what_the_command_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the engines is made up; the model has only its one answer."""
    install(monkeypatch)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("REACHY_VOICE__PATHS__ACCESS_FILE", str(tmp_path / "access.json"))
    settings = tmp_path / "my.yaml"
    engines = "\n".join(f"{kind}: {{engine: small}}" for kind in Kind)
    clock = "conversation: {clock: true}\n"
    settings.write_text(f"{clock}server: {{port: 0}}\nplayback: {{watch_voice: false}}\n{engines}")
    timer = ask("Set a timer for one second.")
    cache = await asyncio.to_thread(WeightsCache, tmp_path)
    async with running(settings, cache) as server, connect(server.url) as socket:
        told_time = server.assistant.session_settings().clock
        assert told_time
        assert abs(told_time() - time.time()) < 60
        for message in (*timer, {"type": "response.create"}):
            await socket.send(json.dumps(message))
        assert await next_said(socket) == "The timer is set for 1 s."
        file = tmp_path / "timers.json"
        assert '"timer"' in await asyncio.to_thread(file.read_text)
        assert await next_said(socket) == "The timer for 1 s is up."
        sets = [f"server.port={server.port}"]
        saying = asyncio.create_task(asyncio.to_thread(say, DINNER, overrides=sets))
        assert await next_said(socket) == DINNER
        await saying


def ask(text: str) -> list[dict[str, Any]]:
    return [{"type": "conversation.item.create", "item": text_item(text)}]


async def next_said(socket: ClientConnection) -> str:
    async for message in socket:
        event = json.loads(message)
        if event["type"] == "response.output_audio_transcript.done":
            return str(event["transcript"])
    return ""


async def test_access_is_checked(serving: Serve) -> None:
    served = await serving(StagedAssistant(), access=Access(Rules(loopback=False)))
    answer = await served.post(SAY, json={"text": DINNER})
    assert answer.status_code == 401
