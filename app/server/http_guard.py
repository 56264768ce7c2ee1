"""Connections that have no session yet: how many there may be, and how long a request may take.

They are counted where they are accepted, before TLS; requests and answers are seen as ASGI
messages. Each connection gets one answer.
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

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.policy import Network, block_of, is_in, parse_address
from app.server.websocket_link import LINK

MAX_WAITING = 512
"""Most connections without a session. Half of Linux's default limit of file descriptors."""

MAX_WAITING_EACH = 64
"""Most per address, or per IPv6 /64, which is what one machine gets. Browsers open six."""

REST_S = 1.0
"""How long an early answer, such as a refusal, waits for the rest of the request. Closing before
that has arrived would reset the connection, and the client would never see the answer."""

_PROXIES = "proxies"

Peer = tuple[str, int]
"""The other end's address and port."""


def _last_words() -> bytes:
    message = "The request took too long to arrive (limits.handshake_s)."
    kind, code = "invalid_request_error", "request_timeout"
    error = {"message": message, "type": kind, "code": code, "param": None}
    body = json.dumps({"error": error}).encode()
    return (
        b"HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )


TOO_SLOW = _last_words()


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
        group = self._group(peer[0])
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


def address_of(place: Any) -> str:
    """The address in what a socket reports as its other end."""
    return str(place[0])


class HttpGuard:
    """Outermost ASGI middleware, and the door for the listening sockets. ``handshake_s`` limits how
    long a whole request may take to arrive, and how long the client may take to read the answer."""

    def __init__(self, app: ASGIApp, handshake_s: float, proxies: Sequence[Network] = ()) -> None:
        self._app = app
        self._handshake_s = handshake_s
        self._room = WaitingRoom(proxies)
        self._waiting: dict[Peer, Connection] = {}
        self._timers: dict[Peer, asyncio.TimerHandle] = {}

    def enter(self, peer: Peer, connection: Connection) -> bool:
        """Admit a new connection; ``False`` if all places are taken."""
        if not self._room.enter(peer, connection.cut):
            return False
        self._waiting[peer] = connection
        self._limit(peer, TOO_SLOW)
        return True

    def leave(self, peer: Peer) -> None:
        """It has a session, or is closed. May be called more than once."""
        self._stop(peer)
        self._room.leave(peer)
        self._waiting.pop(peer, None)

    def cut_idle(self) -> None:
        """Cut connections whose request is not whole, and those that do not read their answer."""
        for peer in list(self._timers):
            self._waiting[peer].cut()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer: Peer = tuple(scope["client"] or ("", 0))  # none: it is gone already
        if scope["type"] == "websocket":
            self._stop(peer)
            scope["extensions"][LINK].on_settled = partial(self.leave, peer)
            await self._app(scope, receive, send)
            return
        unread = _has_body(scope)
        if not unread:
            self._stop(peer)

        async def heard() -> Message:
            nonlocal unread
            message = await receive()
            if not message.get("more_body"):
                unread = False
                self._stop(peer)
            return message

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REST_S):
                        while unread:
                            await heard()
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            try:
                async with asyncio.timeout(self._handshake_s):
                    await send(message)
            except TimeoutError:
                if peer in self._waiting:
                    self._waiting[peer].cut()

        try:
            await self._app(scope, heard, answer)
        finally:
            self._limit(peer)

    def _limit(self, peer: Peer, last_words: bytes = b"") -> None:
        self._stop(peer)
        if peer in self._waiting:
            cut = partial(self._waiting[peer].cut, last_words)
            self._timers[peer] = asyncio.get_running_loop().call_later(self._handshake_s, cut)

    def _stop(self, peer: Peer) -> None:
        if timer := self._timers.pop(peer, None):
            timer.cancel()


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )


class GuardedListener(socket.socket):
    """A listening socket that admits clients while the guard has places: before the TLS handshake,
    which the application does not see."""

    def __init__(self, listener: socket.socket, guard: HttpGuard, *, secured: bool) -> None:
        """A second handle of ``listener``: the port is free when both are closed."""
        super().__init__(fileno=os.dup(listener.fileno()))
        self.setblocking(False)
        self._guard = guard
        self._secured = secured

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises ``ConnectionAbortedError`` for a connection that was turned away."""
        accepted, place = super().accept()
        peer = address_of(place), place[1]
        connection = Connection(accepted, partial(self._guard.leave, peer), secured=self._secured)
        if self._guard.enter(peer, connection):
            return connection, place
        connection.close()
        raise ConnectionAbortedError


class Connection(socket.socket):
    """An accepted connection that reports when it is closed."""

    def __init__(
        self, accepted: socket.socket, on_close: Callable[[], None], *, secured: bool
    ) -> None:
        family, kind, number = accepted.family, accepted.type, accepted.proto
        super().__init__(family, kind, number, fileno=accepted.detach())
        self._on_close = on_close
        self._secured = secured

    def cut(self, last_words: bytes = b"") -> None:
        with contextlib.suppress(OSError):  # the client closed it first, or reads nothing
            if last_words and not self._secured:
                self.send(last_words)
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        super().close()
        self._on_close()
