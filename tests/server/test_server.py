"""The socket: its ways in, hostile and slow clients."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import numpy as np
import pytest
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from app.server import realtime_link, realtime_socket, server
from pipeline import commands, events
from tests.support.scripted_server import UPGRADE, Serve, Served, Talk, closed_with, talking
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine

# --- the socket --------------------------------------------------------------------------------


async def test_both_paths_and_the_subprotocol(served: Served) -> None:
    offered = ["realtime", "openai-insecure-api-key.x"]
    async with talking(served, subprotocols=offered) as talk:
        assert talk.socket.subprotocol == "realtime"
    async with connect(f"ws://127.0.0.1:{served.port}/realtime") as other:
        assert other.subprotocol is None
        assert json.loads(await other.recv())["type"] == "session.created"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("garbage", "invalid_json"),
        (b"\x00\x01", "invalid_frame"),
        ('{"type":"nonsense","event_id":"mine"}', "invalid_value"),
        ('{"type":"input_audio_buffer.append","audio":"' + "A" * 300_001 + '"}', "invalid_value"),
    ],
)
async def test_a_bad_frame_is_one_error_and_the_session_survives(
    served: Served, frame: str | bytes, code: str
) -> None:
    async with talking(served) as talk:
        await talk.socket.send(frame)
        event = await talk.next()
        assert (event["type"], event["error"]["code"]) == ("error", code)
        await talk.send("response.create")
        await talk.until("response.done")


async def test_a_message_over_the_limit_closes_with_1009(serving: Serve) -> None:
    served = await serving(max_message_bytes=10_000)
    async with talking(served) as talk:
        await talk.socket.send("x" * 10_001)
        with closed_with(1009):
            await talk.next()


class SlowUpgrade:
    """Holds every client in mid-upgrade until ``go`` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(server, "accept", self._accept)

    async def _accept(self, websocket: WebSocket) -> None:
        self.begun.set()
        await self.go.wait()
        await realtime_socket.accept(websocket)


async def test_a_client_in_mid_upgrade_takes_a_place(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serving(max_sessions=1)
    upgrade = SlowUpgrade(monkeypatch)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(served.connect().__aenter__())
        await upgrade.begun.wait()
        async with served.connect() as late:
            assert (await Talk(late).next())["error"]["code"] == "session_limit_reached"
        upgrade.go.set()
    assert (await Talk(first.result()).next())["type"] == "session.created"
    await first.result().close()


async def test_a_client_upgraded_after_the_drain_gets_1001(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade = SlowUpgrade(monkeypatch)
    async with asyncio.TaskGroup() as group:
        connecting = group.create_task(served.connect().__aenter__())
        await upgrade.begun.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await served.assistant.draining.wait()
        upgrade.go.set()
    with closed_with(1001):
        await Talk(connecting.result()).until("nothing else")
    await served.task


async def test_silent_clients_are_harmless(served: Served) -> None:
    """One never asks for the upgrade, the other sends nothing after it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    async with talking(served) as mute, talking(served) as other:
        await other.send("response.create")
        await other.until("response.done")
        os.kill(os.getpid(), signal.SIGTERM)
        with closed_with(1001):
            await mute.next()
    await served.task
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(("stall_s", "ping_s"), [(0.05, 20.0), (3600.0, 0.05)])
async def test_a_client_that_stops_reading_is_cut_off(
    serving: Serve, monkeypatch: pytest.MonkeyPatch, stall_s: float, ping_s: float
) -> None:
    """Its socket is full: no reply, close frame or ping gets through."""
    monkeypatch.setattr(realtime_link, "SEND_STALL_S", stall_s)
    monkeypatch.setattr(realtime_socket, "HANG_UP_S", 0.05)
    served = await serving(max_sessions=1, ping_s=ping_s)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=64)
    writer.write(UPGRADE + b"\r\n")
    await reader.readline()
    begin = b'{"type":"input_audio_buffer.clear"}'
    writer.write(bytes([0x81, 0x80 | len(begin), 0, 0, 0, 0]) + begin)  # text, masked by zeros
    session = await served.assistant.opened.get()
    session.begin_reply()
    minute = events.ReplyAudio("resp_1", "item_a", 0, np.zeros(1_440_000, np.int16), 24_000)
    for _ in range(20):  # 77 MB on the wire: more than any socket buffer holds
        session.bus.publish(minute)
    await session.ended.wait()
    session.at_rest.set()
    writer.close()


async def test_a_client_too_far_behind_is_closed_with_1008(served: Served) -> None:
    async with talking(served) as talk:
        session = await served.session_of(talk)
        for _ in range(8_193):  # one more than a subscription holds
            session.bus.publish(events.InputCleared())
        with closed_with(1008):
            await talk.until("nothing else")


async def test_a_failed_session_closes_with_1011_and_the_server_lives(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async with talking(served) as talk:
        session = await served.session_of(talk)
        session.crash.set_exception(RuntimeError("engine room on fire"))
        with closed_with(1011):
            await talk.next()
    assert "engine room on fire" in caplog.text
    async with talking(served):
        pass


async def test_the_timeline_comes_before_response_done_when_asked_for(served: Served) -> None:
    async with talking(served, "?timings=true&model=mine") as talk:
        assert talk.recorder.events[0]["session"]["model"] == "mine"
        await talk.send("response.create")
        await talk.until("response.done")
    assert talk.recorder.types[-2:] == ["reachy_voice.timeline", "response.done"]


async def test_a_touch_over_http_wakes_sleeping_robots(served: Served) -> None:
    wake = "/v1/reachy/wake"
    async with talking(served) as talk:
        session = await served.session_of(talk)
        for asleep, address, woken in (
            (False, "", 0),
            (True, "?address=192.0.2.1", 0),
            (True, "", 1),
        ):
            session.asleep = asleep
            assert (await served.post(wake + address)).json() == {"woken": woken}
        assert session.commands[-1] == commands.WakeUp()
        assert (await served.get(wake)).status_code == 405


async def test_the_conversation_is_not_logged(
    serving: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "uvicorn")
    caplog.set_level("DEBUG", "app")
    served = await serving()
    async with talking(served) as talk:
        await talk.send("session.update", session={"type": "realtime", "instructions": "hush"})
        await talk.send("response.create", response={"instructions": 5, "metadata": {"k": "hush"}})
        await talk.socket.send("hush")
        await talk.send("response.create")
        while (await talk.next())["type"] != "response.done":
            pass
    assert "hush" not in caplog.text
    assert "noon" not in caplog.text


@pytest.mark.parametrize(
    "asking",
    [
        {"additional_headers": {"OpenAI-Beta": "realtime=v1"}},
        {"subprotocols": ["realtime", "openai-beta.realtime-v1"]},
    ],
    ids=["header", "subprotocol"],
)
async def test_a_beta_client_gets_an_error(serving: Serve, asking: dict[str, Any]) -> None:
    served = await serving(StagedAssistant())
    async with connect(served.url, **asking) as socket:
        created, error = [json.loads(await socket.recv()) for _ in range(2)]
    assert created["type"] == "session.created"
    assert error["error"]["code"] == "beta_api_shape_disabled"
    assert "GA" in error["error"]["message"]
