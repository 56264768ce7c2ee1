"""What one client may send, how fast, in what frames, and its cost to others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from starlette.websockets import WebSocket
from uvicorn.protocols.utils import ClientDisconnected

from app.server import realtime_socket, server, websocket_link
from app.server.realtime_socket import RealtimeSocket
from app.server.websocket_link import LINK, SLICE_BYTES, WebSocketLink
from tests.support.scripted_server import UPGRADE, Serve, Served, talking
from tests.support.staged_server import StagedAssistant

pytestmark = pytest.mark.machine

CONT, TEXT, PING, PONG = 0x00, 0x01, 0x09, 0x0A
FIN = 0x80


def frame(first: int, payload: bytes = b"") -> bytes:
    """A frame of up to 125 bytes, masked by zeros."""
    return bytes([first, 0x80 | len(payload), 0, 0, 0, 0]) + payload


@contextlib.asynccontextmanager
async def raw(served: Served) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A hand-made WebSocket that has read ``session.created``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(UPGRADE + b"\r\n")
    await reader.readuntil(b"session.created")
    yield reader, writer
    writer.transport.abort()


def link_of(served: Served) -> WebSocketLink:
    (only,) = served.clients.open
    assert isinstance(only, RealtimeSocket)
    return only._link


# --- frames that are no message ----------------------------------------------------------------

FLOODS = {
    "pings": (b"", frame(FIN | PING)),
    "pongs": (b"", frame(FIN | PONG, b"x")),
    "fragments": (frame(TEXT, b"{"), frame(CONT)),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_of_frames_is_read_slowly(
    serving: Serve, monkeypatch: pytest.MonkeyPatch, flood: str
) -> None:
    monkeypatch.setattr(websocket_link, "FRAMES_BURST", 100)
    seen = 0
    begun = asyncio.Event()
    for name in ("handle_ping", "handle_pong", "handle_cont"):
        original = getattr(WebSocketLink, name)

        def counted(self: WebSocketLink, *event: object, original: object = original) -> None:
            nonlocal seen
            seen += 1
            begun.set()
            original(self, *event)  # type: ignore[operator]

        monkeypatch.setattr(WebSocketLink, name, counted)
    served = await serving()
    async with raw(served) as (_, writer), talking(served) as other:
        begin, one = FLOODS[flood]
        writer.write(begin + one * 20_000)
        await other.send("response.create")
        await other.until("response.done")
        await begun.wait()
        assert seen <= SLICE_BYTES / len(one) + 1


async def test_other_tasks_run_between_slices(served: Served) -> None:
    """As in one read of 256 KiB: 40,000 frames, each a message."""
    async with raw(served):
        link = link_of(served)
        link.data_received(frame(FIN | PING) * 40_000)
        assert len(link._unread) >= 40_000 * 6 - SLICE_BYTES
        assert await link.answers(), "what it said is not read yet"


async def test_sliced_frames_arrive_whole_and_in_order(serving: Serve) -> None:
    served = await serving(max_sessions=1)
    async with talking(served) as talk:
        session = await served.session_of(talk)
        for size in (2, 3_000, SLICE_BYTES, 300_000, 10):
            audio = '"audio":"' + "AAAA" * size + '"'
            parts = ['{"type":"input_audio', "_buffer.append", '"', ",", audio, "}"]
            await talk.socket.send(parts)
        await talk.send("response.create")
        await talk.until("response.done")
        lengths = [len(command.pcm) for command in session.commands[1:-1]]  # type: ignore[union-attr]
    assert lengths == [size * 3 // 2 for size in (2, 3_000, SLICE_BYTES, 300_000, 10)]


async def test_a_message_of_too_many_fragments_closes_with_1009(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_link, "MAX_FRAGMENTS", 100)
    served = await serving()
    async with raw(served) as (reader, writer):
        writer.write(frame(TEXT) + frame(CONT) * 200)
        assert b"\x03\xf1too many fragments" in await reader.read()
    await served.clients.empty()


async def test_unread_pongs_do_not_pile_up(serving: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_link, "FRAMES_BURST", 10**9)
    served = await serving()
    async with raw(served):
        link = link_of(served)
        connection = link.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        ping = frame(FIN | PING, b"x" * 125)
        for _ in range(10):
            link.data_received(ping * 1_000)
        while link._unread:
            link._feed()
        assert link.transport.get_write_buffer_size() < 200_000


async def test_invalid_utf8_closes_with_1007_and_writes_no_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async with raw(served) as (reader, writer):
        writer.write(frame(FIN | TEXT, b"\xff\xfe"))
        assert b"\x03\xefnot UTF-8" in await reader.read()
    await served.clients.empty()
    assert not caplog.records


@pytest.mark.parametrize("early", [frame(FIN | TEXT, b"\xff"), b"\xff\xff\xff\xff\xff\xff"])
async def test_garbage_before_the_upgrade_is_answered_is_harmless(
    serving: Serve,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    early: bytes,
) -> None:
    async def accept(websocket: WebSocket) -> None:
        websocket.scope["extensions"][LINK].data_received(early)
        await realtime_socket.accept(websocket)

    monkeypatch.setattr(server, "accept", accept)
    served = await serving()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(UPGRADE + b"\r\n")
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    await served.clients.empty()
    assert not caplog.records


async def test_a_client_that_closes_and_reads_nothing_is_cut(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its close frame arrives, but what it should still receive cannot be sent."""
    served = await serving(StagedAssistant())
    async with raw(served) as (_, writer):
        link = link_of(served)
        link.close_timeout = 0.05
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        link.transport.write(bytes(20_000_000))
        writer.write(frame(FIN | 0x08, b"\x03\xe8"))
        await link.lost.wait()


# --- A client whose pongs we have not read, and one that is cut for want of them ---------------


async def test_paused_reading_does_not_count_as_a_missing_pong(served: Served) -> None:
    async with talking(served) as talk:
        link = link_of(served)
        link.read_paused = True
        link.keepalive_timeout()
        assert not link.close_sent
        assert link.pong_timer is not None
        link.pong_timer.cancel()
        link.read_paused = False
        await served.session_of(talk)  # it is still served


async def test_nothing_is_sent_after_a_cut_and_no_error_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async with talking(served) as talk:
        await served.session_of(talk)
        link = link_of(served)
        link.keepalive_timeout()
        with pytest.raises(ClientDisconnected):
            await link.send({"type": "websocket.send", "text": "{}"})
        await served.clients.empty()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_sending_after_our_own_close_is_an_error(served: Served) -> None:
    async with talking(served) as talk:
        await served.session_of(talk)
        link = link_of(served)
        await link.send({"type": "websocket.close", "code": 1000})
        with pytest.raises(RuntimeError):
            await link.send({"type": "websocket.send", "text": "{}"})
