"""uvicorn's HTTP, for a port that strangers reach: a request must arrive in time, and one address
cannot hold all the connections that wait to say something.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from app.limits import Places

MAX_WAITING = 512
"""Connections that are no WebSocket (yet). Half of the file descriptors that Linux gives."""

MAX_WAITING_EACH = 64
"""Of one address. Browsers open six."""

_TOO_SLOW = json.dumps(
    {
        "error": {
            "message": "The request took too long to arrive (limits.handshake_s).",
            "type": "invalid_request_error",
            "code": "request_timeout",
            "param": None,
        }
    }
).encode()
_TOO_SLOW_RESPONSE = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_TOO_SLOW), _TOO_SLOW)
)


class WaitingRoom:
    """The connections of one server that are no WebSocket (yet). Loopback has no share of its own:
    all clients of a proxy come from there."""

    def __init__(self) -> None:
        self._all = Places(MAX_WAITING, None)
        self._strangers = Places(None, MAX_WAITING_EACH)

    def enter(self, address: str) -> bool:
        """Take a place; ``False`` if there is none."""
        stranger = not _is_loopback(address)
        if self._all.full(address) or (stranger and self._strangers.full(address)):
            return False
        self._all.take(address)
        if stranger:
            self._strangers.take(address)
        return True

    def leave(self, address: str) -> None:
        self._all.free(address)
        if not _is_loopback(address):
            self._strangers.free(address)


class GuardedHttp(H11Protocol):
    """One connection, until it becomes a WebSocket. ``handshake_s`` bounds how long a whole
    request may take to arrive."""

    def __init__(self, *args: Any, room: WaitingRoom, handshake_s: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._room = room
        self._handshake_s = handshake_s
        self._inside = False
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._inside = self._room.enter(self._address)
        if self._inside:
            self._arm()
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._inside or self.transport.is_closing():
            return
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):  # there is more to come
            self._arm()
        else:
            self._disarm()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._leave()  # nothing more is heard here: the connection has a new protocol
        super().handle_websocket_upgrade(event)
        upgraded = self.transport.get_protocol()
        if isinstance(upgraded, WebSocketsSansIOProtocol) and not upgraded.handshake_initiated:
            # websockets' own bounds are narrower (8 KiB for a header); its answer would lie there.
            self.transport.write(b"".join(upgraded.conn.data_to_send()))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def _leave(self) -> None:
        self._disarm()
        if self._inside:
            self._inside = False
            self._room.leave(self._address)

    def _arm(self) -> None:
        """Once for each request: bytes that trickle in win no time."""
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._handshake_s, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_TOO_SLOW_RESPONSE)
        self.transport.close()


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
