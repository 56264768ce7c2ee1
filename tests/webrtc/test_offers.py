"""Call offers: which are accepted, who owns a call, and functions that need no sound."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

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
from tests.support.caller import CALLS, SESSION, offer, tone_cast
from tests.support.scripted_server import Serve, Served, appear_from, refusal, talking
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine


@pytest.mark.parametrize(
    ("trip_s", "jitter_s", "lag_s"), [(0.0, 0.0, 0.08), (0.2, 0.01, 0.18), (0.2, 0.1, 0.32)]
)
async def test_the_lag_is_network_delay_plus_buffer(
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


@pytest.mark.parametrize(
    ("times_ms", "pauses_ms"),
    [
        ((0, 20, 440, 860, 86_400_000), 800),  # it was muted for a day
        ((0, 21, 40, 62, 80), 0),  # by a clock of milliseconds
    ],
)
def test_a_senders_pause_is_silence(times_ms: Sequence[int], pauses_ms: int) -> None:
    """With DTX, no packets come in silence; timestamps show it."""
    both = np.full((1, 2 * FRAME_SAMPLES), 9000, np.int16)
    frame = AudioFrame.from_ndarray(both, "s16", "stereo")
    frame.sample_rate = RATE
    opus = CodecContext.create("libopus", "w")
    assert isinstance(opus, AudioCodecContext)
    opus.format, opus.layout, opus.sample_rate = "s16", "stereo", RATE
    (packet,) = opus.encode(frame)
    heard: list[int] = []
    ear = PacketEar(lambda pcm: heard.append(len(pcm)))
    for number, at_ms in enumerate(times_ms):
        time = (2**32 - FRAME_SAMPLES + at_ms * RATE // 1000) % 2**32
        ear.add(SimpleNamespace(sequence_number=number, timestamp=time, _data=bytes(packet)))
    assert sum(heard) == 5 * FRAME_SAMPLES + RATE * pauses_ms // 1000


async def test_a_browsers_blob_is_a_field_and_others_have_no_effect(served: Served) -> None:
    session = json.dumps({**SESSION, "instructions": "Sing."}).encode()
    blobs = {
        "sdp": ("blob", (await offer()).encode(), "application/sdp"),
        "session": ("blob", session, "application/json"),
        "more": (None, "more"),
    }
    answer = await served.post(CALLS, files=blobs)
    assert answer.status_code == 201, answer.text


async def test_a_form_may_be_named_in_capitals(served: Served) -> None:
    form = '--X\r\nContent-Disposition: form-data; name="session"\r\n\r\n[]\r\n--X--\r\n'
    named = {"Content-Type": "Multipart/Form-Data; boundary=X"}
    answer = await served.post(CALLS, content=form, headers=named)
    assert answer.json()["error"]["code"] == "missing_required_parameter"


async def test_an_invalid_offer_is_refused(served: Served) -> None:
    good = await offer()
    table: list[tuple[dict[str, Any], str]] = [
        ({"content": ""}, "invalid_offer"),
        ({"content": "hello"}, "invalid_offer"),
        ({"content": good.replace("m=audio", "m=video")}, "invalid_offer"),
        ({"content": good.replace("opus/48000/2", "speex/16000")}, "invalid_offer"),
        ({"content": good[: good.index("m=application")]}, "invalid_offer"),
        ({"content": good.replace("a=fingerprint", "a=finger")}, "invalid_offer"),
        ({"content": good.replace("a=ice-pwd", "a=ice")}, "invalid_offer"),
        ({"files": {"session": (None, "{}")}}, "missing_required_parameter"),
        ({"files": {"sdp": (None, good), "session": (None, "[]")}}, "invalid_json"),
        (
            {"files": {"sdp": (None, good), "session": (None, '{"voice": 1}')}},
            "missing_required_parameter",
        ),
    ]
    for body, code in table:
        answer = await served.post(CALLS, **body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), body
    assert (await served.post(CALLS, content="x" * 300_000)).status_code == 413
    await served.clients.empty()


async def test_a_full_server_and_one_without_webrtc_refuse(serving: Serve) -> None:
    served = await serving(StagedAssistant(cast=tone_cast()), webrtc=True, max_sessions=1)
    async with talking(served):
        full = await served.post(CALLS, content=await offer())
        assert (full.status_code, full.json()["error"]["code"]) == (429, "session_limit_reached")
        [caller] = (await served.get("/callers")).json()["callers"]
        assert (caller["open"], caller["refused"], caller["status"]) == (1, 1, 503)
    without = await serving()
    off = await without.post(CALLS, content=await offer())
    assert (off.status_code, off.json()["error"]["code"]) == (501, "webrtc_off")
    assert "server.webrtc" in off.json()["error"]["message"]


async def test_a_call_that_never_connects_frees_its_place(
    serving: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    limits = LimitSettings(handshake_s=0.2)
    served = await serving(StagedAssistant(cast=tone_cast()), webrtc=True, limits=limits)
    assert (await served.post(CALLS, content=await offer())).status_code == 201
    await served.clients.empty()
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
    answer = await served.post(CALLS, content=await offer(), headers=sent)
    assert answer.status_code == status
    is_expired = status == 401 and answer.json()["error"]["code"] == "expired_client_secret"
    assert is_expired == ("EXPIRED" in headers.values())
    assert ("Origin" in headers) == ("access-control-allow-origin" in answer.headers)
    hangup = await served.post(f"{CALLS}/rtc_1/hangup", headers=sent)
    assert hangup.status_code == (404 if status == 201 else status)
    if "Host" in headers:
        return  # WebSocket clients write their own
    if status == 201:
        async with served.connect(additional_headers=sent) as socket:
            await socket.recv()
    else:
        assert (await refusal(served, additional_headers=sent)).status_code == status


async def test_a_call_hung_up_before_it_connects_frees_its_place(
    served: Served,
) -> None:
    answer = await served.post(CALLS, content=await offer())
    assert (await served.post(f"{answer.headers['Location']}/hangup")).status_code == 200
    async with asyncio.timeout(20):
        await served.clients.empty()


@pytest.mark.parametrize(
    ("address", "key", "owns"),
    [
        ("192.168.1.66", "right", True),
        ("192.168.1.66", "other", False),
        ("192.168.1.67", "right", False),
        ("127.0.0.1", "", False),
    ],
)
async def test_only_its_client_ends_and_controls_a_call(
    serving: Serve, monkeypatch: pytest.MonkeyPatch, address: str, key: str, owns: bool
) -> None:
    access = Access(Rules(keys=(digest(b"right"), digest(b"other"))))
    served = await serving(StagedAssistant(cast=tone_cast()), webrtc=True, access=access)
    appear_from(monkeypatch, "192.168.1.66")
    mine = {"Authorization": "Bearer right"}
    answer = await served.post(CALLS, content=await offer(), headers=mine)
    call = answer.headers["Location"]
    appear_from(monkeypatch, address)
    theirs = {"Authorization": f"Bearer {key}"} if key else {}
    await is_owned(served, call, theirs, owns)


@pytest.mark.parametrize("key", ["maker", "again", "stranger"])
async def test_the_maker_of_its_secret_ends_and_controls_a_call(
    serving: Serve, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    access = Access(Rules(keys=(digest(b"maker"), digest(b"stranger"))))
    served = await serving(StagedAssistant(cast=tone_cast()), webrtc=True, access=access)
    appear_from(monkeypatch, "192.168.1.66")
    made = {"Authorization": "Bearer maker"}
    first, again = [
        (await served.post("/v1/realtime/client_secrets", headers=made)).json()["value"]
        for _ in range(2)
    ]
    headers = {"Authorization": f"Bearer {first}"}
    call = (await served.post(CALLS, content=await offer(), headers=headers)).headers["Location"]
    if key != "again":
        appear_from(monkeypatch, "192.168.1.99")
    theirs = {"Authorization": f"Bearer {again if key == 'again' else key}"}
    await is_owned(served, call, theirs, key != "stranger")


async def is_owned(served: Served, call: str, headers: dict[str, str], owned: bool) -> None:
    query = f"?call_id={call.rpartition('/')[2]}"
    if owned:
        async with talking(served, query, additional_headers=headers):
            pass
    else:
        assert (await refusal(served, query, additional_headers=headers)).status_code == 404
    hangup = await served.post(f"{call}/hangup", headers=headers)
    assert hangup.status_code == (200 if owned else 404)


@pytest.mark.parametrize(
    "line", ["a=ssrc:{n} a:b", "a=rtpmap:{n} a/1", "a=rtcp-fb:* nack", "a=fmtp:111 x={n}"]
)
async def test_an_offer_of_many_lines_is_refused_at_once(served: Served, line: str) -> None:
    lines = [line.format(n=n) for n in range(9000)]
    good = await offer()
    end = good.index("m=application")
    long = good[:end] + "\r\n".join([*lines, ""]) + good[end:]
    answer = await served.post(CALLS, content=long)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_offer")
    assert "300 lines" in answer.json()["error"]["message"]


async def test_an_offer_may_have_many_addresses(served: Served) -> None:
    good = await offer()
    candidate = "a=candidate:{n} 1 udp 1 10.0.0.1 9 typ host\r\n"
    many = "".join(candidate.format(n=n) for n in range(1000))
    assert (await served.post(CALLS, content=good + many)).status_code == 201


async def test_an_extension_of_the_offer_may_have_attributes(served: Served) -> None:
    """As GStreamer writes them."""
    good = (await offer()).replace(":ssrc-audio-level", ":ssrc-audio-level vad=on")
    assert "vad=on" in good
    assert (await served.post(CALLS, content=good)).status_code == 201
