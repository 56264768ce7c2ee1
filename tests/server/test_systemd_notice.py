"""Notices to systemd, on a real socket."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.server.systemd_notice import notify_systemd
from reachy_voice.testing import in_virtual_time
from tests.support.beside import beside
from tests.support.far_server import FarServer, serving
from tests.support.programs import running

pytestmark = pytest.mark.engines

READY = "READY=1\nSTATUS=serving"
STARTING = "STATUS=the engines are starting"
MORE_TIME = "EXTEND_TIMEOUT_USEC=60000000"
ENDING = "STOPPING=1\nSTATUS=ending"
ALIVE = "WATCHDOG=1"


class Manager:
    """Receives as systemd does."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)

    def told(self) -> list[str]:
        found = []
        while True:
            try:
                found.append(self.socket.recv(1000).decode())
            except BlockingIOError:
                return found

    async def next(self) -> str:
        return (await asyncio.get_running_loop().sock_recv(self.socket, 1000)).decode()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.socket.close()


@in_virtual_time
async def test_it_is_ready_with_its_engines_then_sends_keepalives(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}
    ready = asyncio.Event()
    async with beside(notify_systemd(ready, environ)):
        await asyncio.sleep(31)
        assert manager.told() == [STARTING, MORE_TIME, MORE_TIME, MORE_TIME]
        ready.set()
        await asyncio.sleep(31)
        assert manager.told() == [READY, ALIVE, ALIVE, ALIVE]
    assert manager.told() == [ENDING]
    manager.socket.close()


@pytest.mark.parametrize("more", [{}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}])
async def test_without_a_watchdog_one_keepalive_is_sent(
    tmp_path: Path, manager: Manager, more: dict[str, str]
) -> None:
    ready = asyncio.Event()
    ready.set()
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), **more}
    async with beside(notify_systemd(ready, environ)):
        assert [await manager.next() for _ in range(3)] == [STARTING, READY, ALIVE]
    assert manager.told() == [ENDING]


async def test_a_hanging_event_loop_sends_no_keepalives(tmp_path: Path, manager: Manager) -> None:
    ready = asyncio.Event()
    ready.set()
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000"}
    async with beside(notify_systemd(ready, environ)):
        while await manager.next() != ALIVE:
            pass
        manager.told()
        time.sleep(0.05)  # noqa: ASYNC251 - 25 times what systemd would wait
        assert manager.told() == []
        assert await manager.next() == ALIVE


async def test_an_abstract_address(tmp_path: Path) -> None:
    name = f"reachy-voice-test-{os.getpid()}"
    manager = Manager(f"\0{name}")
    async with beside(notify_systemd(asyncio.Event(), {"NOTIFY_SOCKET": f"@{name}"})):
        assert [await manager.next() for _ in range(2)] == [STARTING, MORE_TIME]
    manager.socket.close()


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/no/such/socket"}])
async def test_without_systemd_it_serves(environ: dict[str, str]) -> None:
    told = asyncio.create_task(notify_systemd(asyncio.Event(), environ))
    await asyncio.sleep(0)
    assert not told.done() or told.exception() is None
    told.cancel()
    await asyncio.wait({told})


@pytest.mark.real
async def test_the_server_notifies_systemd_and_ends_on_sigterm(
    tmp_path: Path, manager: Manager
) -> None:
    async with serving(FarServer()) as far:
        command = [sys.executable, "-m", "app.cli", "serve", "--config", "remote"]
        for setting in (
            "server.port=0",
            "server.announce=false",
            "llm.word_judge=null",
            *(f"{kind}.url={far.url}" for kind in ("stt", "llm", "tts")),
        ):
            command += ["--set", setting]
        environ = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        environ |= {"WATCHDOG_USEC": "200000"}
        async with running(*command, ready="Warming", env=environ) as server:
            assert await manager.next() == STARTING
            while (told := await manager.next()) == MORE_TIME:
                pass
            assert told == READY
            assert [await manager.next() for _ in range(3)] == [ALIVE] * 3
            server.process.send_signal(signal.SIGTERM)
            while (last := await manager.next()) == ALIVE:
                pass
            assert last == ENDING
            assert await server.process.wait() == 0
