"""A lying robot, or another program's port: whatever it answers, ``pair`` ends soon with a readable
error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve

from app.pairing.conversation_app import AppError, app_status
from app.pairing.own_server import callers
from app.pairing.steps import NoLocalServer, RobotAddress
from app.server.local_key import MOST_BYTES
from tests.support.fake_robot import fake_robot

pytestmark = pytest.mark.machine

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
DEEP = b"[" * 500_000
QUICK_S = 0.3


@asynccontextmanager
async def answering(*pieces: bytes, endless: bytes = b"") -> AsyncIterator[int]:
    """A port that answers ``pieces``, then repeats ``endless``."""

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
    ("pieces", "endless", "timeout_s"),
    [
        ((HEAD,), b" ", QUICK_S),  # each byte is in time
        ((HEAD,), bytes(MOST_BYTES // 4), 10),
        ((HEAD, DEEP), b"", 10),
        ((), b"", 10),
    ],
    ids=["drips", "endless", "deep", "nothing"],
)
async def test_another_program_at_our_port(
    pieces: tuple[bytes, ...], endless: bytes, timeout_s: float
) -> None:
    """For example a streaming camera."""
    async with asyncio.timeout(20), answering(*pieces, endless=endless) as port:
        with pytest.raises(NoLocalServer, match="cannot use what answers"):
            await callers("127.0.0.1", port, timeout_s)


async def test_a_redirect_is_not_followed() -> None:
    """Otherwise another robot would be set to this server, and the liar admitted."""
    async with fake_robot() as real:
        place = f"ws://{real.address}:{real.app_port}/rpc"
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n"
        async with answering(moved.encode()) as port:
            with pytest.raises(AppError) as failed:
                await app_status(robot(port), 5)
            assert failed.value.why == "HTTP 307"
        assert real.calls == []


async def test_an_endlessly_nested_answer_is_refused() -> None:
    async def answer(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(DEEP.decode())

    async with serve(answer, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(AppError) as failed:
            await app_status(robot(port), 5)
    assert failed.value.why == "a frame is not JSON"
