"""Our own server as ``pair`` sees it: connection attempts, and whether a robot could use it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from app.access.policy import Rules
from app.pairing import own_server
from app.pairing.steps import NoLocalServer
from app.server import serving
from app.server.callers import (
    MAX_REMEMBERED,
    Callers,
    Knocks,
    read_callers,
)
from app.server.gate import Access
from app.server.local_key import local_key
from app.server.server import build_app
from app.server.tls import tls_generated
from tests.clients.serving import scripted_server
from tests.support.fake_robot import ADDRESS
from tests.support.listening import Listening, listening
from tests.support.pair_scene import Scene, scene
from tests.support.scripted_server import ScriptedAssistant, running

pytestmark = pytest.mark.machine


def knock(here: Scene) -> connect:
    url = f"ws://127.0.0.1:{here.port}/v1/realtime"
    return connect(url, local_addr=(ADDRESS, 0), proxy=None)


async def known(here: Scene) -> Knocks:
    callers = await own_server.callers("127.0.0.1", here.port, 5)
    return callers.get(ADDRESS, Knocks())


async def opened(socket: ClientConnection) -> None:
    assert "session.created" in str(await socket.recv())


async def test_connection_attempts_are_counted_by_address(tmp_path: Path) -> None:
    async with scene(tmp_path, max_sessions=1) as here:
        with pytest.raises(InvalidStatus):
            await knock(here)
        assert await known(here) == Knocks(refused=1, status=401)
        await here.allow(ADDRESS)
        async with knock(here) as first:
            await opened(first)
            assert await known(here) == Knocks(open=1, opened=1, refused=1, status=401)
            async with knock(here) as second:
                assert "session_limit_reached" in str(await second.recv())
                await second.wait_closed()
        while (seen := await known(here)).open:
            pass
        assert seen == Knocks(opened=1, refused=2, status=503)


async def test_the_servers_own_user_reads_the_list_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    access = Access(Rules(loopback=False))
    app = build_app(ScriptedAssistant(), max_sessions=1, access=access)
    async with running(app) as (port, _):
        with pytest.raises(NoLocalServer, match="cannot use what answers"):
            await own_server.callers("127.0.0.1", port, 5)
        async with local_key(access, port, os.environ):
            assert await own_server.callers("127.0.0.1", port, 5) == {}


@pytest.mark.parametrize("announce", [True, False])
async def test_the_server_records_callers_and_is_announced_once_ready(
    announce: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure there is a warning, and the server continues."""
    asked: list[tuple[int, str, bool]] = []
    said = asyncio.Event()

    async def announced(port: int, host: str, tls: bool, service: str) -> None:
        assert assistant.ready.is_set(), "no client is served before"
        asked.append((port, host, tls))
        said.set()
        raise RuntimeError("odd network")

    monkeypatch.setattr(serving, "stay_announced", announced)
    # Another form of 127.0.0.1: the announced address is where it really listens.
    assistant = Listening(announce=announce, host="127.1")
    async with listening(assistant) as number:
        if announce:
            await said.wait()
        assert await own_server.callers("127.0.0.1", number, 5) == {}
    assert asked == ([(number, "127.0.0.1", False)] if announce else [])
    warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warned == (["this server is not announced by mDNS: odd network"] if announce else [])


def test_the_list_is_bounded_and_keeps_connected_callers() -> None:
    callers = Callers()
    callers.put("192.168.1.7", Knocks(open=1, opened=1))
    for number in range(2 * MAX_REMEMBERED):
        callers.put(f"10.0.{number // 256}.{number % 256}", Knocks(refused=1, status=401))
    shown = callers.shown()
    assert len(shown) == MAX_REMEMBERED
    assert callers.get("192.168.1.7").open == 1
    assert read_callers({"callers": shown})["192.168.1.7"] == Knocks(open=1, opened=1)


@pytest.mark.parametrize("body", [None, [], {}, {"callers": [{}]}])
def test_an_invalid_list_of_callers_is_an_error(body: object) -> None:
    with pytest.raises(ValueError, match="not a list of callers"):
        read_callers(body)


# --- is it usable? -----------------------------------------------------------------------------


async def unusable(address: str, port: int) -> NoLocalServer:
    with pytest.raises(NoLocalServer) as error:
        await own_server.callers(address, port, 5)
    assert error.value.exit_code == 9
    return error.value


async def test_a_server_that_only_this_machine_reaches(tmp_path: Path) -> None:
    async with scene(tmp_path, ready=False) as here:
        await own_server.callers("127.0.0.1", here.port, 5)
        for address, fix in (("127.0.0.9", "Stop it, and"), ("::1", "Use the robot's IPv4")):
            error = await unusable(address, here.port)
            assert error.what == "The robot cannot reach this server"
            assert error.fix.startswith(fix)


async def test_a_server_that_speaks_tls(tmp_path: Path) -> None:
    made = await asyncio.to_thread(tls_generated, tmp_path, ["127.0.0.1"])
    async with scripted_server(tls=made) as served:
        error = await unusable("127.0.0.1", served.port)
    assert "cannot use what answers at 127.0.0.1" in error.what
    assert error.fix.endswith("or start it: reachy-voice serve --set server.tls=null")
