"""A robot that lies, or a port that is somebody else's: whatever it answers, ``pair`` ends soon,
with an error for people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve

from app.pairing.app_rpc import AppRpc, RpcFailed, Trouble
from app.pairing.daemon import Daemon, DaemonError
from app.pairing.json_http import MAX_BODY_BYTES
from app.pairing.own_server import Own, OwnServer
from app.pairing.steps import Robot, read_json
from tests.support.fake_robot import fake_robot

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DEEP = b"[" * 500_000
QUICK_S = 0.3


@asynccontextmanager
async def answering(*pieces: bytes, endless: bytes = b"") -> AsyncIterator[int]:
    """A port that says ``pieces`` to whoever comes, then ``endless`` again and again."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.writelines(pieces)
            while endless:
                writer.write(endless)
                await writer.drain()
                await asyncio.sleep(0.001 if len(endless) > 10 else 0.05)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def robot(port: int) -> Robot:
    return Robot("liar", "127.0.0.1", "127.0.0.1", port, port)


async def failure(port: int, timeout_s: float = QUICK_S) -> str:
    async with asyncio.timeout(20), Daemon(robot(port), timeout_s) as daemon:
        with pytest.raises(DaemonError) as error:
            await daemon.current()
    return error.value.detail


async def test_an_answer_that_drips() -> None:
    """Each byte is in time."""
    async with answering(HEAD, b"\r\n", endless=b" ") as port:
        assert await failure(port) == "its answer does not end"


async def test_an_answer_without_end() -> None:
    async with answering(HEAD, b"\r\n", endless=bytes(MAX_BODY_BYTES // 4)) as port:
        assert await failure(port, 10) == "its answer is too long"


async def test_an_answer_that_is_nested_without_end() -> None:
    async with answering(HEAD, b"\r\n", DEEP) as port:
        assert await failure(port) == "its answer is not JSON"
    with pytest.raises(ValueError, match="nested"):
        read_json(DEEP)


async def test_an_answer_that_unpacks_without_end() -> None:
    head = HEAD + b"Content-Encoding: gzip\r\n\r\n"
    async with answering(head, b"\x1f\x8b\x08") as port:
        assert await failure(port) == "its answer is not JSON"


async def test_the_daemon_sends_us_elsewhere() -> None:
    async with fake_robot() as real:
        place = f"http://{real.address}:{real.daemon_port}/api/apps/current-app-status"
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n"
        async with answering(moved.encode()) as port:
            assert await failure(port) == "HTTP 307"


async def test_the_app_sends_us_elsewhere() -> None:
    """Else another robot would be told of this server, and the liar let in."""
    async with fake_robot() as real:
        place = f"ws://{real.address}:{real.app_port}/rpc"
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n"
        async with answering(moved.encode()) as port:
            with pytest.raises(RpcFailed) as failed:
                await AppRpc(robot(port), 5).status()
        assert real.calls == []
    assert (failed.value.trouble, failed.value.detail) == (Trouble.NO_RPC, "HTTP 307")


async def test_the_app_says_something_nested_without_end() -> None:
    async def answer(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(DEEP.decode())

    async with serve(answer, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(RpcFailed) as failed:
            await AppRpc(robot(port), 5).status()
    assert (failed.value.trouble, failed.value.detail) == (Trouble.STRANGE, "a frame is not JSON")


async def test_another_program_at_our_port_that_streams() -> None:
    """A camera, say."""
    streaming = answering(HEAD, b"\r\n", endless=b".")
    async with streaming as port, OwnServer("127.0.0.1", port, QUICK_S) as own, asyncio.timeout(20):
        assert await own.look() is Own.STRANGER
