"""``POST /v1/reachy/say`` on a real port, into real sessions over scripted engines."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from app.access.policy import Rules
from app.server.gate import Access
from app.settings.model import LimitSettings
from reachy_voice.testing import ScriptedTts
from tests.support.scripted_server import Served, servers, talking
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine

DINNER = "Dinner is ready."


async def post(served: Served, body: dict[str, Any], **options: Any) -> httpx.Response:
    async with httpx.AsyncClient(**options) as client:
        return await client.post(f"http://127.0.0.1:{served.port}/v1/reachy/say", json=body)


async def test_an_announcement_is_an_ordinary_response_in_all_conversations() -> None:
    async with servers() as start:
        served = await start(StagedAssistant())
        async with talking(served) as one, talking(served) as other:
            for talk in (one, other):
                await talk.send("input_audio_buffer.clear")
                await talk.until("input_audio_buffer.cleared")
            asked = asyncio.create_task(post(served, {"text": DINNER}))
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


async def test_an_announcement_ends_with_its_http_client() -> None:
    async with servers() as start:
        assistant = StagedAssistant(tts=ScriptedTts(first_s=0.0))
        served = await start(assistant)
        async with talking(served) as talk:
            await talk.send("conversation.item.create", item=QUESTION)
            await talk.send("response.create")
            await talk.until("response.created")
            with pytest.raises(httpx.ReadTimeout):
                await post(served, {"text": DINNER}, timeout=0.2)
            await talk.until("response.done")
        assert DINNER not in assistant.tts.said


QUESTION = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}


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
async def test_bad_requests_are_refused(body: dict[str, Any], status: int, code: str) -> None:
    async with servers() as start:
        served = await start(StagedAssistant(), limits=LimitSettings(http_body_kb=2))
        answer = await post(served, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_access_is_checked() -> None:
    async with servers() as start:
        served = await start(StagedAssistant(), access=Access(Rules(loopback=False)))
        answer = await post(served, {"text": DINNER})
    assert answer.status_code == 401
