"""Calls by aiortc with a real server over scripted engines."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aioice.ice
import pytest

from app.access.policy import Rules, digest
from app.server.gate import Access
from app.settings.model import LimitSettings
from pipeline.items import MessageItem
from tests.clients.engines import NOON, STORY, TALE, TIME, WAIT, WEATHER, WEATHER_ARGUMENTS
from tests.support.caller import Caller, calling, post, tone, tone_cast
from tests.support.scripted_server import Serve, Served, appear_from, closed_with, refusal, talking
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.quick

SESSION = {"type": "realtime", "instructions": "Be brief."}
TOOLS = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]


@pytest.fixture
async def served(serving: Serve) -> Served:
    return await serving(StagedAssistant(cast=tone_cast()), webrtc=True)


async def test_a_question_is_heard_and_answered_aloud(served: Served) -> None:
    async with calling(served) as caller:
        caller.microphone.say(tone(TIME))
        await caller.until("output_audio_buffer.started")
        said = await caller.until("response.output_audio_transcript.done")
        assert said["transcript"] == NOON
        await caller.until("output_audio_buffer.stopped")
        assert 0.2 < len(caller.audible()) * 0.02 < 0.5
        assert "response.output_audio.delta" not in caller.types


async def test_a_tool_is_called_over_the_channel(served: Served) -> None:
    async with calling(served, session={**SESSION, "tools": TOOLS}) as caller:
        caller.microphone.say(tone(WEATHER))
        call = await caller.until("response.function_call_arguments.done")
        assert json.loads(call["arguments"]) == WEATHER_ARGUMENTS
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        caller.send("conversation.item.create", item=output)
        caller.send("response.create")
        await caller.hears()
        said = await caller.until("response.output_audio_transcript.done")
        assert said["transcript"] == "The tool says sunny."


async def test_what_was_not_said_into_a_muted_microphone_is_answered_once_unmuted(
    served: Served,
) -> None:
    async with calling(served) as caller:
        caller.microphone.muted = True
        caller.microphone.say(tone(STORY))
        await caller.microphone.silent.wait()
        caller.microphone.muted = False
        caller.microphone.say(tone(TIME))
        said = await caller.until("response.output_audio_transcript.done")
        assert said["transcript"] == NOON


async def test_the_client_clears_what_is_played(served: Served) -> None:
    """As the Agents SDK interrupts: one response ends, and its speech with it."""
    async with calling(served) as caller:
        caller.microphone.say(tone(STORY))
        await caller.hears()
        caller.send("output_audio_buffer.clear")
        await caller.until("output_audio_buffer.cleared")
        done = await caller.until("response.done")
        assert done["response"]["status_details"]["reason"] == "client_cancelled"


async def test_push_to_talk_commits_what_the_track_brought(served: Served) -> None:
    heard = {"turn_detection": None, "transcription": {"model": "any"}}
    session = {**SESSION, "audio": {"input": heard}}
    async with calling(served, session=session) as caller:
        caller.send("input_audio_buffer.clear")
        await caller.until("input_audio_buffer.cleared")
        caller.microphone.say(tone(TIME))
        await caller.microphone.silent.wait()
        caller.send("input_audio_buffer.commit")
        done = await caller.until("conversation.item.input_audio_transcription.completed")
        assert done["transcript"] == TIME


async def test_a_control_socket_follows_and_steers_the_call(served: Served) -> None:
    async with calling(served) as caller:
        call_id = caller.location.rpartition("/")[2]
        async with talking(served, f"?call_id={call_id}") as control:
            await control.send("session.update", session={**SESSION, "instructions": "Sing."})
            for each in (control, caller):
                updated = await each.until("session.updated")
                assert updated["session"]["instructions"] == "Sing."
            assert (await post(served, f"{caller.location}/hangup")).status_code == 200
            await caller.closed.wait()
            with closed_with(1000):
                await control.until("nothing else")
    assert (await refusal(served, f"?call_id={call_id}")).status_code == 404
    assert (await post(served, f"{caller.location}/hangup")).status_code == 404


async def test_a_conversation_is_resumed_after_the_network_was_lost(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.webrtc.peer.SILENCE_S", 0.1)
    monkeypatch.setattr(aioice.ice, "CONSENT_INTERVAL", 0.01)
    key = {"Authorization": "Bearer mine"}
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]}
    async with calling(served, headers=key) as caller:
        caller.send("conversation.item.create", item=item)
        added = await caller.until("conversation.item.done")
        caller.vanish()
        await served.sockets.empty()
    async with calling(served, headers=key) as again:
        again.send("conversation.item.retrieve", item_id=added["item"]["id"])
        assert (await again.until("conversation.item.retrieved"))["item"] == added["item"]


async def test_loss_and_jitter_lose_no_turn(served: Served) -> None:
    async with calling(served) as caller:
        caller.spoil(loss=0.05, jitter_s=0.05)
        for _ in range(3):
            caller.microphone.say(tone(TIME))
            await caller.until("output_audio_buffer.stopped")
        session = served.assistant.sessions[-1]
        heard = [each.text for each in session.chat.items if each.role == "user"]
        assert heard == [TIME] * 3


async def offer() -> str:
    caller = Caller()
    try:
        return await caller.offer()
    finally:
        await caller.leave()


CALLS = "/v1/realtime/calls"


async def test_what_cannot_be_a_call_is_refused(served: Served) -> None:
    good = await offer()
    table: list[tuple[dict[str, Any], str]] = [
        ({"content": ""}, "invalid_offer"),
        ({"content": "hello"}, "invalid_offer"),
        ({"content": good.replace("m=audio", "m=video")}, "invalid_offer"),
        ({"content": good.replace("opus/48000/2", "speex/16000")}, "invalid_offer"),
        ({"content": good[: good.index("m=application")]}, "invalid_offer"),
        ({"files": {"session": (None, "{}")}}, "missing_required_parameter"),
        ({"files": {"sdp": (None, good), "session": (None, "[]")}}, "invalid_json"),
        (
            {"files": {"sdp": (None, good), "session": (None, '{"voice": 1}')}},
            "missing_required_parameter",
        ),
    ]
    for body, code in table:
        answer = await post(served, CALLS, **body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), body
    assert (await post(served, CALLS, content="x" * 300_000)).status_code == 413
    await served.sockets.empty()


async def test_a_full_server_and_one_without_webrtc_say_so(serving: Serve) -> None:
    served = await serving(StagedAssistant(cast=tone_cast()), webrtc=True, max_sessions=1)
    async with talking(served):
        full = await post(served, CALLS, content=await offer())
        assert (full.status_code, full.json()["error"]["code"]) == (429, "session_limit_reached")
    without = await serving()
    off = await post(without, CALLS, content=await offer())
    assert (off.status_code, off.json()["error"]["code"]) == (501, "webrtc_off")
    assert "server.webrtc" in off.json()["error"]["message"]


async def test_a_call_that_never_connects_gives_its_place_back(
    serving: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    limits = LimitSettings(handshake_s=0.2)
    served = await serving(StagedAssistant(cast=tone_cast()), webrtc=True, limits=limits)
    assert (await post(served, CALLS, content=await offer())).status_code == 201
    await served.sockets.empty()
    assert "UDP" in caplog.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer right"}, 201),
        ({"Authorization": "Bearer right", "Origin": "https://elsewhere.example"}, 403),
        ({"Authorization": "SECRET"}, 201),
        ({"Authorization": "SECRET", "Origin": "https://elsewhere.example"}, 201),
    ],
)
async def test_access_is_that_of_a_websocket(
    serving: Serve, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], status: int
) -> None:
    access = Access(Rules(keys=(digest(b"right"),)))
    served = await serving(StagedAssistant(cast=tone_cast()), webrtc=True, access=access)
    appear_from(monkeypatch, "192.168.1.66")
    secret, _ = access.secrets.issue(60, SESSION)
    sent = {name: value.replace("SECRET", f"Bearer {secret}") for name, value in headers.items()}
    answer = await post(served, CALLS, content=await offer(), headers=sent)
    assert answer.status_code == status
    assert ("Origin" in headers) == ("access-control-allow-origin" in answer.headers)
    hangup = await post(served, f"{CALLS}/rtc_1/hangup", headers=sent)
    assert hangup.status_code == (404 if status == 201 else status)
    if status == 201:
        async with served.connect(additional_headers=sent) as socket:
            await socket.recv()
    else:
        assert (await refusal(served, additional_headers=sent)).status_code == status


async def test_an_interruption_is_silent_at_once_and_cuts_the_history(served: Served) -> None:
    async with calling(served) as caller:
        caller.microphone.say(tone(STORY))
        await caller.hears()
        caller.microphone.say(tone(WAIT, 0.8))
        cleared = await caller.until("output_audio_buffer.cleared")
        at = asyncio.get_running_loop().time()
        told = await caller.until("response.done")
        assert told["response"]["id"] == cleared["response_id"]
        assert told["response"]["status"] == "cancelled"
        await caller.until("output_audio_buffer.started")
        early = [when for when in caller.audible(at) if when < at + 0.4]
        assert len(early) <= 3, "60 ms"
        session = served.assistant.sessions[-1]
        (story, *_) = (
            each
            for each in session.chat.items
            if isinstance(each, MessageItem) and each.role == "assistant"
        )
        sent_s = story.parts[0].audio.seconds
        assert 0 < story.parts[0].seconds < sent_s + 0.001  # equal if it drained meanwhile
        assert TALE.startswith(story.text)
        assert len(story.text) < len(TALE) / 4
