"""Calls by aiortc with a real server over scripted engines."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import aioice.ice
import numpy as np
import pytest
from aiortc import RTCRtpSender
from aiortc.stats import RTCRemoteInboundRtpStreamStats
from av import AudioCodecContext, AudioFrame, CodecContext

from app.access.client_secrets import ClientSecrets
from app.access.policy import Rules, digest, parse_network
from app.server.gate import Access
from app.settings.model import LimitSettings
from app.webrtc.output_queue import FRAME_SAMPLES, RATE, OutputQueue
from app.webrtc.peer import Peer
from app.webrtc.tracks import PacketEar
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


async def test_a_browsers_blob_is_a_field_and_others_have_no_effect(served: Served) -> None:
    session = json.dumps({**SESSION, "instructions": "Sing."}).encode()
    blobs = {
        "sdp": ("blob", (await offer()).encode(), "application/sdp"),
        "session": ("blob", session, "application/json"),
        "more": (None, "more"),
    }
    answer = await post(served, CALLS, files=blobs)
    assert answer.status_code == 201, answer.text


async def test_speech_before_the_track_is_silent_is_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the client is there: it reports what it hears."""
    async with calling(served) as caller:
        caller.microphone.say(tone(TIME, 1.5))
        await caller.until("input_audio_buffer.speech_started")
        await caller.microphone.silent.wait()
        caller.mute()
        said = await caller.until("response.output_audio_transcript.done")
        assert said["transcript"] == NOON
        await caller.until("output_audio_buffer.stopped")
        monkeypatch.setattr(Peer, "_silent", True)
        (link,) = served.sockets.open
        await link.cut_if_dead()
        assert not link.ended.is_set()


async def test_what_was_heard_of_the_first_answer_is_as_the_client_reports(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lag_s(peer: Peer) -> float:
        return 30.0

    monkeypatch.setattr(Peer, "player_lag_s", lag_s)
    async with calling(served) as caller:
        caller.microphone.say(tone(STORY))
        await caller.hears()
        caller.microphone.say(tone(WAIT, 0.8))
        await caller.until("output_audio_buffer.cleared")
        await caller.until("output_audio_buffer.started")
        items = served.assistant.sessions[-1].chat.items
        first = next(item for item in items if item.role == "assistant")
        assert (first.text, first.parts[0].seconds) == ("", 0.0)


@pytest.mark.parametrize(
    ("trip_s", "jitter_s", "lag_s"), [(0.0, 0.0, 0.08), (0.2, 0.01, 0.18), (0.2, 0.1, 0.32)]
)
async def test_the_lag_is_that_of_the_way_and_of_the_buffer(
    monkeypatch: pytest.MonkeyPatch, trip_s: float, jitter_s: float, lag_s: float
) -> None:
    report = RTCRemoteInboundRtpStreamStats(
        timestamp=datetime.now(UTC),
        type="remote-inbound-rtp",
        id="",
        ssrc=1,
        kind="audio",
        transportId="",
        packetsReceived=1,
        packetsLost=0,
        jitter=round(jitter_s * RATE),
        roundTripTime=trip_s,
        fractionLost=0,
    )
    found: dict[str, Any] = {}

    async def stats(sender: RTCRtpSender) -> dict[str, Any]:
        return found

    monkeypatch.setattr(RTCRtpSender, "getStats", stats)
    peer = Peer()
    await peer.answer(await offer(), OutputQueue(lambda reply_id, state: None))
    assert await peer.player_lag_s() == pytest.approx(0.08)
    found[""] = report
    assert await peer.player_lag_s() == pytest.approx(lag_s)
    await peer.close()


def test_a_pause_of_the_sender_is_silence() -> None:
    """With DTX, no packets come where nobody speaks; their times tell."""
    both = np.full((1, 2 * FRAME_SAMPLES), 9000, np.int16)
    frame = AudioFrame.from_ndarray(both, "s16", "stereo")
    frame.sample_rate = RATE
    opus = CodecContext.create("libopus", "w")
    assert isinstance(opus, AudioCodecContext)
    opus.format, opus.layout, opus.sample_rate = "s16", "stereo", RATE
    (packet,) = opus.encode(frame)
    heard: list[int] = []
    ear = PacketEar(lambda pcm: heard.append(len(pcm)))
    for number, at_ms in enumerate((0, 20, 440, 860, 86_400_000)):  # it was muted for a day
        time = (2**32 - FRAME_SAMPLES + at_ms * RATE // 1000) % 2**32
        ear.add(SimpleNamespace(sequence_number=number, timestamp=time, _data=bytes(packet)))
    assert sum(heard) == 5 * FRAME_SAMPLES + 2 * RATE * 400 // 1000


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


ELSEWHERE, LISTED = "https://elsewhere.example", "https://listed.example"
STRANGER, ALLOWED = "192.168.1.66", "192.168.1.77"
KEY = {"Authorization": "Bearer right"}


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        (STRANGER, {}, 401),
        (STRANGER, {"Authorization": "Bearer wrong"}, 401),
        (STRANGER, KEY, 201),
        (STRANGER, {**KEY, "Origin": ELSEWHERE}, 403),
        (STRANGER, {**KEY, "Origin": LISTED}, 201),
        (STRANGER, {"Authorization": "SECRET"}, 201),
        (STRANGER, {"Authorization": "SECRET", "Origin": ELSEWHERE}, 201),
        (STRANGER, {"Authorization": "EXPIRED"}, 401),
        (ALLOWED, {}, 201),
        (ALLOWED, {"Origin": ELSEWHERE}, 403),
        (ALLOWED, {"Origin": LISTED}, 201),
        (ALLOWED, {"Host": "elsewhere.example"}, 403),
        (ALLOWED, {"Host": "localhost"}, 201),
    ],
)
async def test_access_is_that_of_a_websocket(
    serving: Serve,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    headers: dict[str, str],
    status: int,
) -> None:
    clock = [0.0]
    secrets = ClientSecrets(now=lambda: clock[0])
    addresses, origins = (parse_network(ALLOWED),), frozenset({f"{LISTED}:443"})
    rules = Rules(addresses=addresses, keys=(digest(b"right"),), origins=origins)
    served = await serving(
        StagedAssistant(cast=tone_cast()), webrtc=True, access=Access(rules, secrets=secrets)
    )
    appear_from(monkeypatch, address)
    expired, _ = secrets.issue(60, SESSION)
    clock[0] = 100.0
    secret, _ = secrets.issue(60, SESSION)
    shown = {"SECRET": f"Bearer {secret}", "EXPIRED": f"Bearer {expired}"}
    sent = {name: shown.get(value, value) for name, value in headers.items()}
    answer = await post(served, CALLS, content=await offer(), headers=sent)
    assert answer.status_code == status
    is_expired = status == 401 and answer.json()["error"]["code"] == "expired_client_secret"
    assert is_expired == ("EXPIRED" in headers.values())
    assert ("Origin" in headers) == ("access-control-allow-origin" in answer.headers)
    hangup = await post(served, f"{CALLS}/rtc_1/hangup", headers=sent)
    assert hangup.status_code == (404 if status == 201 else status)
    if "Host" in headers:
        return  # clients of WebSockets write their own
    if status == 201:
        async with served.connect(additional_headers=sent) as socket:
            await socket.recv()
    else:
        assert (await refusal(served, additional_headers=sent)).status_code == status


async def test_an_interruption_is_silent_at_once_and_cuts_the_history(served: Served) -> None:
    async with calling(served) as caller:
        caller.microphone.say(tone(STORY))
        for _ in range(10):  # more than the player holds
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
