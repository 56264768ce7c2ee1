"""Robots behind a load balancer, which passes on their addresses."""

from __future__ import annotations

import contextlib
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest
from websockets.exceptions import InvalidStatus

from app.access.policy import Rules, parse_network
from app.server.gate import Access
from app.settings.model import LimitSettings
from tests.server.test_coming_back import Home, at_home
from tests.support.scripted_server import Serve, Talk

pytestmark = pytest.mark.machine

SCHOOL = Rules(
    loopback=False,
    addresses=(parse_network("192.168.1.0/24"),),
    proxies=(parse_network("127.0.0.1"),),
)


def robot(home: Home, number: int, key: str = "DUMMY") -> AbstractAsyncContextManager[Talk]:
    return home.robot(key, **{"X-Forwarded-For": f"192.168.1.{number}"})


async def test_the_limit_per_address_counts_robots(serving: Serve) -> None:
    limits = LimitSettings(sessions_per_address=1)
    home = await at_home(serving, access=Access(SCHOOL), limits=limits, max_sessions=30)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(30):
            await stack.enter_async_context(robot(home, number))


async def test_a_full_server_refuses_the_balancer(serving: Serve) -> None:
    """It then tries another server; a direct client is told in an event."""
    access = Access(replace(SCHOOL, loopback=True))
    home = await at_home(serving, access=access, max_sessions=1)
    assert (await home.served.get("/ready")).status_code == 200
    async with robot(home, 7):
        full = await home.served.get("/ready")
        assert (full.status_code, full.json()["reasons"]) == (503, {"server": "full"})
        assert (await home.served.get("/health")).status_code == 200
        with pytest.raises(InvalidStatus) as refused:
            async with robot(home, 8):
                pass
        assert refused.value.response.status_code == 503
        async with home.served.connect() as socket:
            assert "session_limit_reached" in str(await socket.recv())
    await home.served.clients.empty()
    assert (await home.served.get("/ready")).status_code == 200


async def test_connections_of_one_robot_count_as_one_client(serving: Serve) -> None:
    home = await at_home(serving, access=Access(SCHOOL))
    async with robot(home, 7), robot(home, 7), robot(home, 8), robot(home, 7, key="other"):
        one, same, other, third = sorted(link.client for link in home.served.clients.open)
    assert one == same
    assert len({one, other, third}) == 3
