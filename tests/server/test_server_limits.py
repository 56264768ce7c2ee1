"""Incomplete requests and idle connections, which must not harm others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
from collections import Counter
from unittest.mock import AsyncMock

import pytest
from starlette.types import Message, Receive, Scope, Send
from uvicorn.server import ServerState

from app.access.policy import parse_network
from app.server.http_guard import (
    CONNECTION,
    MAX_WAITING,
    MAX_WAITING_EACH,
    TOO_SLOW,
    Connection,
    GuardedHttp,
    HttpGuard,
)
from app.server.listening import uvicorn_config
from app.settings.model import LimitSettings
from reachy_voice.testing import in_virtual_time
from tests.support.scripted_server import UPGRADE, Serve, Served, appear_from, closed_with, talking

pytestmark = pytest.mark.machine

POST = (
    b"POST /v1/realtime/client_secrets HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
)


async def answer_to(served: Served, *parts: bytes) -> bytes:
    """Everything received after sending ``parts`` and then nothing more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    for part in parts:
        writer.write(part)
        await writer.drain()
    got = await reader.read()
    writer.close()
    return got


# --- messages ----------------------------------------------------------------------------------


async def test_a_flood_loses_nothing_and_gets_one_warning(serving: Serve) -> None:
    served = await serving(limits=LimitSettings(messages_per_s=200, message_burst=100))
    async with talking(served) as talk:
        for n in range(400):
            await talk.send("nonsense", event_id=f"n{n}")
        codes, ids = Counter[str](), list[str]()
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
    monkeypatch.setattr("app.access.limits.PATIENCE_S", 0.05)
    served = await serving(limits=LimitSettings(messages_per_s=1_000, message_burst=1))
    async with talking(served) as talk:

        async def flood() -> None:
            while True:
                await talk.send("input_audio_buffer.clear")
                await asyncio.sleep(0)  # the server has the same loop

        with closed_with(1008):
            await flood()


async def test_a_client_that_is_idle_for_too_long_is_closed_with_1000(serving: Serve) -> None:
    limits = LimitSettings().model_copy(update={"idle_s": 0.1})
    served = await serving(limits=limits)
    async with talking(served) as talk:
        with closed_with(1000, "idle for too long"):
            await talk.next()


# --- slow requests -----------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [b"", b"G", UPGRADE, b"GET / HTTP/1.1\r\nHost: a\r\nX: ", POST])
async def test_an_endless_request_is_refused_and_cut(
    serving: Serve, begun: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serving(handshake_s=0.05)
    got = await answer_to(served, begun)
    assert got.startswith(b"HTTP/1.1 408")
    assert b"limits.handshake_s" in got
    assert not caplog.records


class CutNote(asyncio.Transport):
    """A connection that records its end."""

    def __init__(self) -> None:
        super().__init__()
        self.last_words: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.last_words.append(data)

    def close(self) -> None:
        pass

    def abort(self) -> None:
        self.last_words.append(b"")


HANDSHAKE_S = 1.0
STRANGER = "192.168.1.66"
GET: Scope = {"type": "http", "headers": []}
PUT: Scope = {**GET, "headers": [(b"content-length", b"2")]}


def on(connection: Connection | None, scope: Scope) -> Scope:
    assert connection is not None
    return {**scope, "state": {CONNECTION: connection}}


async def ok(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers after twice the time limit of a request."""
    await receive()
    await asyncio.sleep(2 * HANDSHAKE_S)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def whole() -> Message:
    return {"type": "http.request", "body": b"{}", "more_body": False}


@in_virtual_time
@pytest.mark.parametrize("scope", [GET, PUT])
async def test_a_complete_request_may_take_longer(scope: Scope) -> None:
    guard, note = HttpGuard(ok, HANDSHAKE_S), CutNote()
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    connection = guard.enter(STRANGER, note)
    await guard(on(connection, scope), whole, send)
    assert note.last_words == []
    assert (b"connection", b"close") in sent[0]["headers"]
    await asyncio.sleep(1.1 * HANDSHAKE_S)
    assert note.last_words == [b""], "it does not read its answer"


@in_virtual_time
@pytest.mark.parametrize(("piece_s", "last_words"), [(0.9, []), (1.1, [TOO_SLOW] * 3)])
async def test_a_steady_upload_may_take_long(piece_s: float, last_words: list[bytes]) -> None:
    async def take(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass

    more = [True, True, False]

    async def piece() -> Message:
        await asyncio.sleep(piece_s * HANDSHAKE_S)
        return {"type": "http.request", "body": b"x", "more_body": more.pop(0)}

    guard, note = HttpGuard(take, HANDSHAKE_S), CutNote()
    connection = guard.enter(STRANGER, note)
    await guard(on(connection, PUT), piece, AsyncMock())
    assert note.last_words == last_words


@in_virtual_time
@pytest.mark.parametrize(("ends", "waited_s"), [(True, 0.0), (False, 1.0)])
async def test_a_refusal_waits_for_the_rest_of_the_request(ends: bool, waited_s: float) -> None:
    """Otherwise closing resets the connection and the client never sees the refusal."""
    parts = [True, True, False] if ends else []
    sent: list[Message] = []

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": []})

    async def part() -> Message:
        if not parts:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": b"x", "more_body": parts.pop(0)}

    async def send(message: Message) -> None:
        sent.append(message)

    guard = HttpGuard(refuse, HANDSHAKE_S)
    await guard(on(guard.enter(STRANGER, CutNote()), PUT), part, send)
    assert sent[0]["status"] == 401
    assert asyncio.get_running_loop().time() == pytest.approx(waited_s)


@in_virtual_time
async def test_a_client_that_stops_reading_its_answer_is_cut() -> None:
    guard, note = HttpGuard(ok, HANDSHAKE_S), CutNote()

    async def send(message: Message) -> None:
        await asyncio.Event().wait()

    connection = guard.enter(STRANGER, note)
    await guard(on(connection, GET), whole, send)
    assert note.last_words == [b"", b""], "for each message that did not go"


async def test_the_handshake_deadline_does_not_apply_to_sessions(serving: Serve) -> None:
    served = await serving(handshake_s=0.05)
    async with talking(served) as talk:
        await answer_to(served, b"G")  # longer than the limit
        await talk.send("response.create")
        await talk.until("response.done")


# --- many connections --------------------------------------------------------------------------


@in_virtual_time
async def test_each_address_has_a_share_of_the_places() -> None:
    guard = HttpGuard(ok, HANDSHAKE_S, [parse_network("192.168.1.2")])
    enter = lambda address: guard.enter(address, CutNote())  # noqa: E731
    first = enter(STRANGER)
    assert first
    assert all(enter(STRANGER) for _ in range(MAX_WAITING_EACH - 1))
    assert not enter(STRANGER)
    assert not enter(f"::ffff:{STRANGER}")
    assert enter("192.168.1.67")
    for _ in range(2):  # leaving twice changes nothing
        guard.leave(first)
    assert enter(STRANGER)
    assert not enter(STRANGER)
    # All addresses of one IPv6 network share places.
    assert all(enter(f"fd00::{n:x}") for n in range(MAX_WAITING_EACH))
    assert not enter("fd00::1:2:3:4")
    assert enter("fd00:0:0:1::1")
    # A trusted proxy and this machine are limited only when all places are taken.
    assert all(enter("192.168.1.2") for _ in range(MAX_WAITING_EACH + 1))
    assert any(not enter("127.0.0.1") for _ in range(MAX_WAITING))
    assert not enter("192.168.1.3")


async def test_a_connection_from_a_port_used_before_is_limited_too(serving: Serve) -> None:
    served = await serving(handshake_s=0.1)
    before, port = connected(served.port)
    await answer_to(served, UPGRADE + b"Content-Length: 2\r\n\r\n")  # it is there
    before.close()  # with a reset, which the server has not yet seen
    again, _ = connected(served.port, port)
    reader, writer = await asyncio.open_connection(sock=again)
    assert (await reader.read()).startswith(b"HTTP/1.1 408")
    writer.close()


def connected(port: int, own_port: int = 0) -> tuple[socket.socket, int]:
    """A connection that ends with a reset, and its local port."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.bind(("127.0.0.1", own_port))
    connection.connect(("127.0.0.1", port))
    return connection, connection.getsockname()[1]


async def test_idle_connections_do_not_block_new_clients(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_a_websocket_frees_its_waiting_place(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.server.http_guard.MAX_WAITING", 1)
    served = await serving(max_sessions=3)
    async with talking(served), talking(served), talking(served):
        pass


async def test_refused_clients_are_limited_and_soon_gone(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.server.http_guard.MAX_WAITING", 3)
    monkeypatch.setattr("app.server.realtime_socket.HANG_UP_S", 0.5)
    served = await serving(max_sessions=1)
    async with talking(served):
        held = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(3)]
        for reader, writer in held:
            writer.write(UPGRADE + b"\r\n")
            await reader.readuntil(b"session_limit_reached")
        assert await answer_to(served, UPGRADE + b"\r\n") == b""
        for reader, writer in held:
            await reader.read()  # it ends although no close frame is answered
            writer.close()


# --- nonsense ----------------------------------------------------------------------------------


async def test_garbage_after_a_refused_request_writes_no_log(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    appear_from(monkeypatch, "192.168.1.66")
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"POST /v1/models HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert b"401" in await reader.readline()
    writer.write(b"zzzz\r\n")
    with contextlib.suppress(ConnectionResetError):
        await reader.read()
    writer.close()
    assert not caplog.records


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("more", [b"\0nonsense\r\n\r\n", b"GET /2 HTTP/1.1\r\nHost: a\r\n\r\n"])
@pytest.mark.parametrize("header", [b"", b"Connection: close\r\n"])
async def test_data_after_a_request_does_not_disturb_its_answer(
    caplog: pytest.LogCaptureFixture, header: bytes, more: bytes, begun: bool
) -> None:
    beginning, ending = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        beginning.set()
        await ending.wait()
        await send({"type": "http.response.body", "body": b"two"})

    guard = HttpGuard(slow, HANDSHAKE_S)
    config = uvicorn_config(guard, max_message_bytes=1_000, ping_s=1.0)
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)
    _, http = await asyncio.get_running_loop().connect_accepted_socket(
        lambda: GuardedHttp(guard, config=config, server_state=ServerState(), app_state={}), ours
    )
    http.data_received(b"GET /1 HTTP/1.1\r\nHost: a\r\n" + header + b"\r\n")
    if begun:
        await beginning.wait()
    http.data_received(more)
    ending.set()
    got = await reader.read()
    writer.close()
    assert got.count(b"HTTP/1.1") == 1
    assert got.startswith(b"HTTP/1.1 200")
    assert got.endswith(b"one\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert not caplog.records


async def test_an_upgrade_with_a_body_is_refused_with_a_reason(served: Served) -> None:
    got = await answer_to(served, UPGRADE + b"Content-Length: 2\r\n\r\n{}")
    assert got.startswith(b"HTTP/1.1 400")
    assert b'"code": "invalid_request"' in got


@pytest.mark.parametrize("path", ["/v1/realtime/", "//v1/realtime", "/v1/models", "/nowhere"])
async def test_a_websocket_to_another_path_gets_404(served: Served, path: str) -> None:
    got = await answer_to(served, UPGRADE.replace(b"/v1/realtime", path.encode()) + b"\r\n")
    assert got.startswith(b"HTTP/1.1 404")
    error = json.loads(got.partition(b"\r\n\r\n")[2])["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "not_found")
    assert "/v1/realtime" in error["message"]


async def test_no_redirect_to_the_host_of_the_request(served: Served) -> None:
    response = await served.get("/ready/")
    assert response.status_code == 404
    assert "location" not in response.headers


# --- the end -----------------------------------------------------------------------------------


async def test_an_incomplete_request_does_not_delay_shutdown(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(POST)
    async with talking(served):  # by now it is there
        os.kill(os.getpid(), signal.SIGTERM)
        await served.task
    with contextlib.suppress(ConnectionResetError):
        await reader.read()
    writer.close()
    assert not caplog.records


async def test_shutdown_answers_a_waiting_upgrade(served: Served) -> None:
    begun = asyncio.Event()

    async def cut_dead(*who: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    served.clients.cut_dead = cut_dead  # type: ignore[assignment, method-assign]
    answering = asyncio.create_task(answer_to(served, UPGRADE + b"\r\n"))
    await begun.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    got = await answering
    assert got.startswith(b"HTTP/1.1 503")
    assert b"The server is shutting down." in got
    await served.task
