"""A robot that lies, or a port of another program: whatever it answers, ``pair`` ends soon, with a
readable error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve

from app.pairing.conversation_app import AppError, Trouble, app_status
from app.pairing.json_http import MAX_BODY_BYTES, NoAnswer, ask
from app.pairing.own_server import OwnServer, look
from app.pairing.steps import RobotAddress
from tests.support.fake_robot import fake_robot

pytestmark = pytest.mark.machine

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DEEP = b"[" * 500_000
QUICK_S = 0.3


@asynccontextmanager
async def answering(*pieces: bytes, endless: bytes = b"") -> AsyncIterator[int]:
    """A port that answers ``pieces``, then ``endless`` again and again."""

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


def robot(port: int) -> RobotAddress:
    return RobotAddress("liar", "127.0.0.1", "127.0.0.1", port)


@pytest.mark.parametrize(
    ("pieces", "endless", "timeout_s", "detail"),
    [
        ((b"\r\n",), b" ", QUICK_S, "its answer does not end"),  # each byte is in time
        ((b"\r\n",), bytes(MAX_BODY_BYTES // 4), 10, "its answer is too long"),
    ],
    ids=["drips", "endless"],
)
async def test_an_answer_without_an_end(
    pieces: tuple[bytes, ...], endless: bytes, timeout_s: float, detail: str
) -> None:
    async with asyncio.timeout(20), answering(HEAD, *pieces, endless=endless) as port:
        with pytest.raises(NoAnswer) as error:
            await ask(f"http://127.0.0.1:{port}/", timeout_s)
    assert error.value.detail == detail


@pytest.mark.parametrize(
    "pieces", [(b"\r\n", DEEP), (b"Content-Encoding: gzip\r\n\r\n", b"\x1f\x8b\x08")]
)
async def test_an_answer_that_is_not_json_stays_bytes(pieces: tuple[bytes, ...]) -> None:
    async with answering(HEAD, *pieces) as port:
        _, body = await ask(f"http://127.0.0.1:{port}/", 5)
    assert isinstance(body, bytes)


async def test_a_redirect_is_not_followed() -> None:
    """Otherwise another robot would be told of this server, and the liar let in."""
    async with fake_robot() as real:
        place = f"ws://{real.address}:{real.app_port}/rpc"
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n"
        async with answering(moved.encode()) as port:
            with pytest.raises(AppError) as failed:
                await app_status(robot(port), 5)
            assert failed.value.detail == "HTTP 307"
            assert (await ask(f"http://127.0.0.1:{port}/", 5))[0] == 307
        assert real.calls == []


async def test_the_app_says_something_nested_without_end() -> None:
    async def answer(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(DEEP.decode())

    async with serve(answer, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(AppError) as failed:
            await app_status(robot(port), 5)
    assert (failed.value.trouble, failed.value.detail) == (Trouble.UNUSABLE, "a frame is not JSON")


async def test_another_program_that_streams_at_our_port() -> None:
    """A camera, say."""
    async with answering(HEAD, b"\r\n", endless=b".") as port, asyncio.timeout(20):
        assert await look("127.0.0.1", port, QUICK_S) is OwnServer.STRANGER
