"""Calls that end early or send too much, and controls that do not wait for them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from app.access.policy import Rules, digest
from app.server.call_link import CallLink
from app.server.gate import Access
from app.settings.model import LimitSettings
from app.webrtc.peer import Peer
from tests.clients.engines import TIME
from tests.support.caller import Caller, calling, post, tone, tone_cast
from tests.support.scripted_server import (
    Serve,
    Served,
    appear_from,
    closed_with,
    refusal,
    talking,
)
from tests.support.staged_server import StagedAssistant
from tests.webrtc.test_calls import CALLS, SESSION, offer

pytestmark = pytest.mark.quick

ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]}


@pytest.fixture
async def served(serving: Serve) -> Served:
    return await serving(StagedAssistant(cast=tone_cast()), webrtc=True)


async def test_a_client_that_calls_again_before_its_loss_is_noticed_resumes(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.webrtc.peer.SILENCE_S", 0.1)
    key = {"Authorization": "Bearer mine"}
    async with calling(served, headers=key) as caller:
        caller.send("conversation.item.create", item=ITEM)
        added = await caller.until("conversation.item.done")
        caller.vanish()
        await asyncio.sleep(0.3)
        assert len(served.sockets) == 1
        async with calling(served, headers=key) as again:
            again.send("conversation.item.retrieve", item_id=added["item"]["id"])
            assert (await again.until("conversation.item.retrieved"))["item"] == added["item"]


async def test_a_control_may_come_before_the_call_is_connected(served: Served) -> None:
    caller = Caller()
    try:
        answer = await post(served, CALLS, content=await caller.offer())
        call_id = answer.headers["Location"].rpartition("/")[2]
        async with talking(served, f"?call_id={call_id}") as control:
            await control.send("session.update", session={**SESSION, "instructions": "Sing."})
            await control.send("conversation.item.create", item=ITEM)
            await asyncio.sleep(0.1)
            await caller.accept(answer)
            for each in (control, caller):
                assert (await each.until("session.updated"))["session"]["instructions"] == "Sing."
                await each.until("conversation.item.done")
        assert caller.types[0] == "session.created"
    finally:
        await caller.leave()


async def test_a_control_of_a_client_that_reads_nothing_is_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app.server.realtime_link.SEND_STALL_S", 0.2)
    monkeypatch.setattr("app.webrtc.peer.FULL_BYTES", 20_000)
    async with (
        calling(served) as caller,
        talking(served, f"?call_id={caller.location.rpartition('/')[2]}") as control,
    ):
        caller.vanish()
        for _ in range(3):
            long = {**SESSION, "instructions": "Sing. " * 2000}
            await control.send("session.update", session=long)
        with closed_with(1008):
            await control.until("nothing else")
    assert "Exception" not in caplog.text


async def test_a_call_that_is_hung_up_before_it_connects_gives_its_place_back(
    served: Served,
) -> None:
    answer = await post(served, CALLS, content=await offer())
    assert (await post(served, f"{answer.headers['Location']}/hangup")).status_code == 200
    began = time.monotonic()
    await served.sockets.empty()
    assert time.monotonic() - began < 3


async def test_as_many_messages_at_once_as_the_limits_allow_are_carried_out(
    served: Served,
) -> None:
    async with calling(served) as caller:
        for _ in range(700):
            caller.send("conversation.item.create", item=ITEM)
        for _ in range(700):
            await caller.until("conversation.item.done")


async def test_more_messages_than_the_limits_allow_are_read_later(serving: Serve) -> None:
    limits = LimitSettings(messages_per_s=50, message_burst=20)
    served = await serving(StagedAssistant(cast=tone_cast()), webrtc=True, limits=limits)
    async with calling(served) as caller:
        for n in range(60):
            caller.send("nonsense", event_id=f"n{n}")
        errors = [(await caller.next())["error"] for _ in range(61)]
    assert Counter(each["code"] for each in errors) == {
        "invalid_value": 60,
        "rate_limit_exceeded": 1,
    }


async def test_a_message_without_an_end_ends_the_call(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.webrtc.peer.MOST_IN_PARTS", 50_000 - 1024 * 1024)
    async with calling(served) as caller:
        sctp = caller.sctp
        sctp._remote_max_message_size = 0  # the answer asks for shorter ones
        caller.send("conversation.item.create", item={**ITEM, "id": "x" * 300_000})
        await served.sockets.empty()


@pytest.mark.parametrize(
    ("address", "key", "owns"),
    [
        ("192.168.1.66", "right", True),
        ("192.168.1.66", "other", False),
        ("192.168.1.67", "right", False),
        ("127.0.0.1", "", False),
    ],
)
async def test_a_call_is_ended_and_steered_by_its_client_only(
    serving: Serve, monkeypatch: pytest.MonkeyPatch, address: str, key: str, owns: bool
) -> None:
    access = Access(Rules(keys=(digest(b"right"), digest(b"other"))))
    served = await serving(StagedAssistant(cast=tone_cast()), webrtc=True, access=access)
    appear_from(monkeypatch, "192.168.1.66")
    mine = {"Authorization": "Bearer right"}
    answer = await post(served, CALLS, content=await offer(), headers=mine)
    call = answer.headers["Location"]
    appear_from(monkeypatch, address)
    theirs = {"Authorization": f"Bearer {key}"} if key else {}
    await is_owned(served, call, theirs, owns)


@pytest.mark.parametrize("key", ["maker", "again", "stranger"])
async def test_who_made_the_secret_of_a_call_ends_and_steers_it(
    serving: Serve, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    access = Access(Rules(keys=(digest(b"maker"), digest(b"stranger"))))
    served = await serving(StagedAssistant(cast=tone_cast()), webrtc=True, access=access)
    appear_from(monkeypatch, "192.168.1.66")
    made = {"Authorization": "Bearer maker"}
    first, again = [
        (await post(served, "/v1/realtime/client_secrets", headers=made)).json()["value"]
        for _ in range(2)
    ]
    headers = {"Authorization": f"Bearer {first}"}
    call = (await post(served, CALLS, content=await offer(), headers=headers)).headers["Location"]
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
    hangup = await post(served, f"{call}/hangup", headers=headers)
    assert hangup.status_code == (200 if owned else 404)


@pytest.mark.parametrize(
    "line", ["a=ssrc:{n} a:b", "a=rtpmap:{n} a/1", "a=rtcp-fb:* nack", "a=fmtp:111 x={n}"]
)
async def test_an_offer_of_many_lines_is_refused_at_once(served: Served, line: str) -> None:
    lines = [line.format(n=n) for n in range(9000)]
    good = await offer()
    end = good.index("m=application")
    long = good[:end] + "\r\n".join([*lines, ""]) + good[end:]
    began = time.process_time()
    answer = await post(served, CALLS, content=long)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_offer")
    assert "300 lines" in answer.json()["error"]["message"]
    assert time.process_time() - began < 2


async def test_an_offer_may_have_many_addresses(served: Served) -> None:
    good = await offer()
    candidate = "a=candidate:{n} 1 udp 1 10.0.0.1 9 typ host\r\n"
    many = "".join(candidate.format(n=n) for n in range(1000))
    assert (await post(served, CALLS, content=good + many)).status_code == 201


async def test_a_call_that_cannot_be_closed_harms_no_other(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    close = Peer.close

    async def fail(self: Peer) -> None:
        await close(self)
        raise OSError("no network")

    async with calling(served) as caller:
        with monkeypatch.context() as broken:
            broken.setattr(Peer, "close", fail)
            async with calling(served) as other:
                other.send("conversation.item.create", item=ITEM)
                await other.until("conversation.item.done")
                await post(served, f"{other.location}/hangup")
                await other.closed.wait()
        caller.send("conversation.item.create", item=ITEM)
        await caller.until("conversation.item.done")
    assert "A call failed" in caplog.text


async def test_speech_for_a_client_that_takes_no_sound_is_not_kept(served: Served) -> None:
    caller = Caller()
    try:
        silent = (await caller.offer()).replace("a=sendrecv", "a=sendonly")
        await caller.accept(await post(served, CALLS, content=silent))
        caller.microphone.say(tone(TIME))
        await caller.until("response.done")
        (link,) = served.sockets.open
        assert isinstance(link, CallLink)
        assert link.output.playing is None
    finally:
        await caller.leave()
