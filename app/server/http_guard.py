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
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

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

CONNECTION = "reachy_voice.connection"
"""The ``Connection`` of a request, in the ASGI scope's ``state``. Its address and port would not
identify it: a client may use one port twice, and a closed connection be noticed later."""


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
        self._groups: dict[str, dict[Connection, None]] = {}
        self._group_of: dict[Connection, str] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._group_of)

    def enter(self, address: str, connection: Connection) -> bool:
        """Take a place; ``False`` if all are taken."""
        group = self._group(address)
        held = len(self._groups.get(group, ()))
        if group != _PROXIES and held >= MAX_WAITING_EACH:
            return False
        if len(self) >= MAX_WAITING:
            most = max(self._groups.values(), key=len)
            if len(most) <= held + 1:
                return False
            oldest = next(iter(most))
            self.leave(oldest)
            oldest.cut()
        self._groups.setdefault(group, {})[connection] = None
        self._group_of[connection] = group
        return True

    def leave(self, connection: Connection) -> None:
        """May be called more than once."""
        group = self._group_of.pop(connection, None)
        if group is not None:
            del self._groups[group][connection]
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
    long the head of a request may take to arrive, then each further piece of its body, and how long
    the client may take to read the answer. Only clients that are let in can send a large body.
    ``on_malformed``: called for each malformed request for a WebSocket."""

    def __init__(
        self,
        app: ASGIApp,
        handshake_s: float,
        proxies: Sequence[Network] = (),
        on_malformed: Callable[[], None] = lambda: None,
    ) -> None:
        self.on_malformed = on_malformed
        self._app = app
        self._handshake_s = handshake_s
        self._room = WaitingRoom(proxies)
        self._timers: dict[Connection, asyncio.TimerHandle] = {}

    def enter(self, address: str, connection: Connection) -> bool:
        """Admit a new connection; ``False`` if all places are taken."""
        if not self._room.enter(address, connection):
            return False
        self._limit(connection, TOO_SLOW)
        return True

    def leave(self, connection: Connection) -> None:
        """It has a session, or is closed. May be called more than once."""
        self._stop(connection)
        self._room.leave(connection)

    def waiting(self, descriptor: int) -> Connection | None:
        """The connection with this file descriptor, unless it has lost its place."""
        return next((each for each in self._room if each.fileno() == descriptor), None)

    def cut_idle(self) -> None:
        """Cut connections whose request is not whole, and those that do not read their answer."""
        for connection in list(self._timers):
            connection.cut()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection | None = scope["state"][CONNECTION]
        if connection is None:  # it has been cut already, to make room
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            self._stop(connection)
            scope["extensions"][LINK].on_settled = partial(self.leave, connection)
            await self._app(scope, receive, send)
            return
        unread = _has_body(scope)
        if not unread:
            self._stop(connection)

        async def heard() -> Message:
            nonlocal unread
            message = await receive()
            unread = bool(message.get("more_body"))
            if unread:
                self._limit(connection, TOO_SLOW)
            else:
                self._stop(connection)
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
                connection.cut()

        try:
            await self._app(scope, heard, answer)
        except asyncio.CancelledError:  # uvicorn waits no longer
            connection.cut()
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            self._limit(connection)

    def _limit(self, connection: Connection, last_words: bytes = b"") -> None:
        self._stop(connection)
        if connection in self._room:
            cut = partial(connection.cut, last_words)
            self._timers[connection] = asyncio.get_running_loop().call_later(self._handshake_s, cut)

    def _stop(self, connection: Connection) -> None:
        if timer := self._timers.pop(connection, None):
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
        connection = Connection(accepted, self._guard.leave, secured=self._secured)
        if self._guard.enter(address_of(place), connection):
            return connection, place
        connection.close()
        raise ConnectionAbortedError


class Connection(socket.socket):
    """An accepted connection that reports when it is closed."""

    def __init__(
        self, accepted: socket.socket, on_close: Callable[[Connection], None], *, secured: bool
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
        self._on_close(self)


class GuardedHttp(H11Protocol):
    """uvicorn's HTTP, whose requests know the connection that they came on, and whose answers are
    not disturbed by what comes after the request."""

    def __init__(self, guard: HttpGuard, **options: Any) -> None:
        super().__init__(**options)
        self._guard = guard

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = self._guard.waiting(transport.get_extra_info("socket").fileno())
        self.app_state = {**self.app_state, CONNECTION: connection}

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        super().handle_websocket_upgrade(event)
        if self.transport.is_closing():  # the application does not see it
            self._guard.on_malformed()

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None and not self.cycle.more_body:
            self.flow.pause_reading()  # the request was whole: more than that is of no account
        elif self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()
