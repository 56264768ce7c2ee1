"""Calls that end early or send too much, and controls that come before them."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from app.server.call_link import CallLink
from app.settings.model import LimitSettings
from app.webrtc.peer import Peer
from tests.clients.engines import TIME
from tests.support.caller import CALLS, SESSION, Caller, calling, tone, tone_cast
from tests.support.protocol_client import text_item
from tests.support.scripted_server import Serve, Served, closed_with, talking
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine  # sound in real time


async def test_a_control_may_come_before_the_call_is_connected(served: Served) -> None:
    caller = Caller()
    try:
        answer = await served.post(CALLS, content=await caller.offer())
        call_id = answer.headers["Location"].rpartition("/")[2]
        async with talking(served, f"?call_id={call_id}") as control:
            await control.send("session.update", session={**SESSION, "instructions": "Sing."})
            await control.send("conversation.item.create", item=text_item())
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


async def test_messages_within_the_limits_are_all_handled(
    served: Served,
) -> None:
    async with calling(served) as caller:
        for _ in range(700):
            caller.send("conversation.item.create", item=text_item())
        for _ in range(700):
            await caller.until("conversation.item.done")


async def test_messages_over_the_limits_are_read_later(serving: Serve) -> None:
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


async def test_an_endless_message_ends_the_call(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.webrtc.peer.MOST_IN_PARTS", 50_000 - 1024 * 1024)
    async with calling(served) as caller:
        sctp = caller.sctp
        sctp._remote_max_message_size = 0  # the SDP answer asks for shorter ones
        caller.send("conversation.item.create", item={**text_item(), "id": "x" * 300_000})
        await served.clients.empty()


async def test_a_call_that_cannot_be_closed_does_not_affect_others(
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
                other.send("conversation.item.create", item=text_item())
                await other.until("conversation.item.done")
                await served.post(f"{other.location}/hangup")
                await other.closed.wait()
        caller.send("conversation.item.create", item=text_item())
        await caller.until("conversation.item.done")
    assert "A call failed" in caplog.text


async def test_speech_for_a_client_without_audio_is_not_kept(served: Served) -> None:
    caller = Caller()
    try:
        silent = (await caller.offer()).replace("a=sendrecv", "a=sendonly")
        await caller.accept(await served.post(CALLS, content=silent))
        caller.microphone.say(tone(TIME))
        await caller.until("response.done")
        (link,) = served.clients.open
        assert isinstance(link, CallLink)
        assert not link.output.clear()
    finally:
        await caller.leave()
