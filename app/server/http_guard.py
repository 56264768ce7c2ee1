"""uvicorn's HTTP, hardened for a port that strangers can reach: a request must arrive in time, and
one address cannot use up all idle connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.access.policy import Network, block_of, is_in, parse_address
from app.server.websocket_link import WebSocketLink

MAX_WAITING = 512
"""Most connections without a session. Half of Linux's default limit of file descriptors."""

MAX_WAITING_EACH = 64
"""Most per address, or per IPv6 /64, which is what one machine gets. Browsers open six."""

_PROXIES = "proxies"

Peer = tuple[Any, ...]
"""The other end's address and port, as the socket reports it."""


def _last_words(status: bytes, code: str, message: str) -> bytes:
    error = {"message": message, "type": "invalid_request_error", "code": code, "param": None}
    body = json.dumps({"error": error}).encode()
    return (
        b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (status, len(body), body)
    )


_TOO_SLOW = _last_words(
    b"408 Request Timeout",
    "request_timeout",
    "The request took too long to arrive (limits.handshake_s).",
)
_NO_UPGRADE = _last_words(
    b"400 Bad Request", "invalid_request", "This is not a request for a WebSocket."
)


class WaitingRoom:
    """The accepted connections of one server that have no session yet. Loopback and ``proxies``
    have no limit of their own: all clients of a proxy come from there.

    When all places are taken, the group with the most loses its oldest to a newcomer.
    """

    def __init__(self, proxies: Sequence[Network] = ()) -> None:
        self._proxies = proxies
        self._groups: dict[str, dict[Peer, Callable[[], None]]] = {}
        self._group_of: dict[Peer, str] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    def enter(self, peer: Peer, cut: Callable[[], None]) -> bool:
        """Take a place; ``False`` if all are taken. ``cut`` ends the connection."""
        group = self._group(address_of(peer))
        held = len(self._groups.get(group, ()))
        if group != _PROXIES and held >= MAX_WAITING_EACH:
            return False
        if len(self) >= MAX_WAITING:
            most = max(self._groups.values(), key=len)
            if len(most) <= held + 1:
                return False
            oldest, cut_oldest = next(iter(most.items()))
            self.leave(oldest)
            cut_oldest()
        self._groups.setdefault(group, {})[peer] = cut
        self._group_of[peer] = group
        return True

    def leave(self, peer: Peer) -> None:
        """May be called more than once."""
        group = self._group_of.pop(peer, None)
        if group is not None:
            del self._groups[group][peer]
            if not self._groups[group]:
                del self._groups[group]

    def _group(self, text: str) -> str:
        """Addresses of one group share a limit."""
        address = parse_address(text)
        if address is None:
            return text
        if address.is_loopback or is_in(address, self._proxies):
            return _PROXIES
        return block_of(address)


def address_of(peer: Peer) -> str:
    return str(peer[0])


class GuardedListener(socket.socket):
    """A listening socket that admits clients while the waiting room has places: before the TLS
    handshake, which the protocols above do not see."""

    def __init__(self, listener: socket.socket, room: WaitingRoom) -> None:
        """A second handle of ``listener``: the port is free when both are closed."""
        super().__init__(fileno=os.dup(listener.fileno()))
        self.setblocking(False)
        self._room = room

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises ``ConnectionAbortedError`` for a connection that was turned away."""
        accepted, peer = super().accept()
        connection = _Connection(accepted, partial(self._room.leave, peer))
        if self._room.enter(peer, connection.cut):
            return connection, peer
        connection.close()
        raise ConnectionAbortedError


class _Connection(socket.socket):
    """An accepted connection that reports when it is closed."""

    def __init__(self, accepted: socket.socket, on_close: Callable[[], None]) -> None:
        family, kind, number = accepted.family, accepted.type, accepted.proto
        super().__init__(family, kind, number, fileno=accepted.detach())
        self._on_close = on_close

    def cut(self) -> None:
        with contextlib.suppress(OSError):  # the client closed it first
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        super().close()
        self._on_close()


_SENDING = (h11.IDLE, h11.SEND_BODY)


class GuardedHttp(H11Protocol):
    """One connection, until it becomes a WebSocket. ``handshake_s`` limits how long a whole request
    may take to arrive, and how long the client may stop reading the answer."""

    def __init__(
        self,
        *args: Any,
        room: WaitingRoom,
        handshake_s: float,
        on_refused: Callable[[], None],
        **options: Any,
    ) -> None:
        """``on_refused``: called for each rejected upgrade."""
        super().__init__(*args, **options)
        self._room = room
        self._handshake_s = handshake_s
        self._on_refused = on_refused
        self._upgraded = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # garbage after a request that is already answered
            self.transport.abort()
            return
        self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._upgraded = True  # nothing more arrives here: the connection has a new protocol
        self._stop_watching()
        super().handle_websocket_upgrade(event)
        link = self.transport.get_protocol()
        assert isinstance(link, WebSocketLink)
        link.on_settled = partial(self._room.leave, self.transport.get_extra_info("peername"))
        if self.flow.write_paused:
            link.pause_writing()
        if not link.handshake_initiated:
            # websockets' own limits are tighter (8 KiB for a header, no body).
            self.transport.write(b"".join(link.conn.data_to_send()) or _NO_UPGRADE)
            self.transport.close()
        if not link.handshake_initiated or link.response.status_code != 101:
            self._on_refused()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch()

    def shutdown(self) -> None:
        half = self.cycle and self.cycle.more_body and not self.cycle.response_complete
        if half or self.flow.write_paused:  # the server would wait for the client forever
            self.transport.abort()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Give the client ``handshake_s`` to send the rest of its request or to read our answer. A
        trickle of bytes does not extend this."""
        if self._upgraded:
            return
        takes_nothing = self.flow.write_paused or self.transport.is_closing()
        # Between two requests, uvicorn's own timer limits the wait.
        sends = not self.timeout_keep_alive_task and self.conn.their_state in _SENDING
        if not (takes_nothing or sends):
            self._stop_watching()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._handshake_s, self._too_slow)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.flow.write_paused or self.transport.is_closing():
            self.transport.abort()
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_TOO_SLOW)
        self.transport.close()
        self._watch()
