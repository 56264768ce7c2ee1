"""A client whose pongs we have not read, and one that is cut for want of them."""

from __future__ import annotations

import pytest
from uvicorn.protocols.utils import ClientDisconnected

from app.server.realtime_socket import RealtimeSocket
from app.server.websocket_link import WebSocketLink
from tests.support.scripted_server import Serve, Served, talking


def link_of(served: Served) -> WebSocketLink:
    (only,) = served.sockets.open
    assert isinstance(only, RealtimeSocket)
    return only._link


async def test_no_client_is_cut_for_a_missing_pong_while_reading_is_paused(serving: Serve) -> None:
    served = await serving()
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
    serving: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serving()
    async with talking(served) as talk:
        await served.session_of(talk)
        link = link_of(served)
        link.keepalive_timeout()
        with pytest.raises(ClientDisconnected):
            await link.send({"type": "websocket.send", "text": "{}"})
        await served.sockets.empty()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_sending_after_our_own_close_is_an_error(serving: Serve) -> None:
    served = await serving()
    async with talking(served) as talk:
        await served.session_of(talk)
        link = link_of(served)
        await link.send({"type": "websocket.close", "code": 1000})
        with pytest.raises(RuntimeError):
            await link.send({"type": "websocket.send", "text": "{}"})
