"""Requests that do not arrive, connections that only wait, and what they cannot do to others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from scripted_server import Serve, Served, appear_from, servers, talking
from websockets.exceptions import ConnectionClosed

from app.http_guard import MAX_WAITING, MAX_WAITING_EACH, WaitingRoom
from app.settings import LimitSettings

UPGRADE = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
POST = (
    b"POST /v1/realtime/client_secrets HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
)


@pytest.fixture
async def serving(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    async with servers() as start:
        yield start


async def answer_to(served: Served, *parts: bytes) -> bytes:
    """Everything that comes back when ``parts`` are sent and then nothing more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    for part in parts:
        writer.write(part)
        await writer.drain()
    got = await reader.read()
    writer.close()
    return got


# --- messages ----------------------------------------------------------------------------------


async def test_a_flood_loses_nothing_and_is_told_so_once(serving: Serve) -> None:
    served = await serving(limits=LimitSettings(messages_per_s=2_000, message_burst=100))
    async with talking(served) as talk:
        for n in range(400):
            await talk.send("nonsense", event_id=f"n{n}")
        codes, ids = Counter[str](), []
        while len(ids) < 400:
            error = (await talk.next())["error"]
            codes[error["code"]] += 1
            if error["event_id"] is not None:
                ids.append(error["event_id"])
        await talk.send("response.create")
        await talk.until("response.done")
    assert ids == [f"n{n}" for n in range(400)]
    assert codes == {"invalid_value": 400, "rate_limit_exceeded": 1}


async def test_a_flood_that_does_not_end_is_closed_with_1008(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.limits.PATIENCE_S", 0.05)
    served = await serving(limits=LimitSettings(messages_per_s=1_000, message_burst=1))
    async with talking(served) as talk:

        async def flood() -> None:
            while True:
                await talk.send("input_audio_buffer.clear")

        with pytest.raises(ConnectionClosed) as closed:
            await flood()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


async def test_a_client_that_is_idle_for_too_long_is_closed_with_1000(serving: Serve) -> None:
    limits = LimitSettings().model_copy(update={"idle_s": 0.1})
    served = await serving(limits=limits)
    async with talking(served) as talk:
        with pytest.raises(ConnectionClosed) as closed:
            await talk.next()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1000
    assert "idle" in closed.value.rcvd.reason


# --- slow requests -----------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [b"", b"G", UPGRADE, b"GET / HTTP/1.1\r\nHost: a\r\nX: "])
async def test_a_request_that_never_ends_is_told_so_and_cut(serving: Serve, begun: bytes) -> None:
    served = await serving(handshake_s=0.05)
    got = await answer_to(served, begun)
    assert got.startswith(b"HTTP/1.1 408")
    assert b"limits.handshake_s" in got


async def test_a_body_that_never_ends_is_cut(
    serving: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serving(handshake_s=0.05)
    assert b"408" in await answer_to(served, POST)
    assert not caplog.records


async def test_bytes_that_trickle_in_win_no_time(serving: Serve) -> None:
    served = await serving(handshake_s=0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)

    async def trickle() -> None:
        for byte in UPGRADE:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)

    trickling = asyncio.create_task(trickle())
    got = await reader.read()
    trickling.cancel()
    await asyncio.wait({trickling})
    assert b"408" in got
    writer.close()


async def test_the_second_request_of_a_connection_has_to_arrive_too(serving: Serve) -> None:
    served = await serving(handshake_s=0.05)
    whole = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(whole)
    assert (await reader.readuntil(b'{"status":"ok"}')).startswith(b"HTTP/1.1 200")
    writer.write(whole[:20])
    assert b"408" in await reader.read()
    writer.close()


async def test_whoever_has_come_in_is_not_hurried(serving: Serve) -> None:
    served = await serving(handshake_s=0.05)
    async with talking(served) as talk:
        await answer_to(served, b"G")  # as long as the limit, and more
        await talk.send("response.create")
        await talk.until("response.done")


# --- many connections --------------------------------------------------------------------------


def test_the_waiting_room_has_a_share_for_each_stranger() -> None:
    room = WaitingRoom()
    assert all(room.enter("192.168.1.66") for _ in range(MAX_WAITING_EACH))
    assert not room.enter("192.168.1.66")
    assert room.enter("192.168.1.67")
    room.leave("192.168.1.66")
    assert room.enter("192.168.1.66")


def test_the_waiting_room_has_a_size() -> None:
    room = WaitingRoom()
    assert all(room.enter("127.0.0.1") for _ in range(MAX_WAITING))
    for address in ("127.0.0.1", "192.168.1.66", ""):
        assert not room.enter(address)
    room.leave("127.0.0.1")
    assert room.enter("192.168.1.66")


async def test_connections_that_only_wait_keep_nobody_else_out(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serving()
    appear_from(monkeypatch, "192.168.1.66")
    held = [
        await asyncio.open_connection("127.0.0.1", served.port) for _ in range(MAX_WAITING_EACH)
    ]
    assert await answer_to(served) == b""
    appear_from(monkeypatch, "127.0.0.1")
    async with talking(served):
        pass
    for _, writer in held:
        writer.close()
    for reader, _ in held:
        assert await reader.read() == b""
    appear_from(monkeypatch, "192.168.1.66")  # their places are free again
    assert b"401" in await answer_to(served, UPGRADE + b"\r\n")


async def test_a_websocket_does_not_take_a_place_to_wait(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.http_guard.MAX_WAITING", 1)
    served = await serving(max_sessions=3)
    async with talking(served), talking(served), talking(served):
        pass
