"""Connections that have no session yet: how many there may be, and how long a request may take.

They are counted once TLS, if any, is set up; requests and answers are seen as ASGI messages. Each
connection gets one answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.access.api_errors import ApiError
from app.access.policy import Network, block_of, is_in, parse_address
from app.server.websocket_link import LINK, WebSocketLink

MAX_WAITING = 512
"""Most connections without a session. Half of Linux's default limit of file descriptors."""

MAX_WAITING_EACH = 64
"""Most per address, or per IPv6 /64, since one machine gets a whole /64. Browsers open six."""

REST_S = 1.0
"""How long an early answer, such as a refusal, waits for the rest of the request. Closing before
that has arrived would reset the connection, and the client would never see the answer."""

CONNECTION = "reachy_voice.connection"
"""The ``Connection`` of a request, in the ASGI scope's ``state``. Its address and port would not
identify it: a client may reuse a port before its old connection is noticed to be closed."""


TOO_SLOW = ApiError(
    408, "request_timeout", "The request took too long to arrive (limits.handshake_s)."
).raw()


class Connection:
    """An accepted connection that has no session yet."""

    def __init__(self, transport: asyncio.Transport, limit_s: float) -> None:
        self._transport = transport
        self._limit_s = limit_s
        """How long it may wait for its client, each time."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_limited(self) -> bool:
        return self._timer is not None

    def limit(self, last_words: bytes = b"") -> None:
        """Cut it unless ``stop`` is called in time."""
        self.stop()
        cut = partial(self.cut, last_words)
        self._timer = asyncio.get_running_loop().call_later(self._limit_s, cut)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def cut(self, last_words: bytes = b"") -> None:
        if last_words and not self._transport.is_closing():
            self._transport.write(last_words)
            self._transport.close()
        else:
            self._transport.abort()


class HttpGuard:
    """Outermost ASGI middleware; it also admits connections. Only clients that are let in can send
    a large body."""

    def __init__(
        self,
        app: ASGIApp,
        handshake_s: float,
        proxies: Sequence[Network] = (),
        on_malformed: Callable[[], None] = lambda: None,
    ) -> None:
        self.on_malformed = on_malformed
        """Called for each malformed request for a WebSocket."""
        self._app = app
        self._handshake_s = handshake_s
        """Limits how long the head of a request may take to arrive, then each further piece of its
        body, and how long the client may take to read the answer."""
        self._proxies = proxies
        """Loopback and these have no limit of their own: all clients of a proxy come from there."""
        self._waiting: dict[Connection, str] = {}
        """Each connection, with the address or network whose limit it counts towards."""
        self._counts = Counter[str]()

    def enter(self, address: str, transport: asyncio.Transport) -> Connection | None:
        """Admit a new connection; ``None`` if all places are taken."""
        block = self._block(address)
        if len(self._waiting) >= MAX_WAITING or (block and self._counts[block] >= MAX_WAITING_EACH):
            return None
        connection = Connection(transport, self._handshake_s)
        connection.limit(TOO_SLOW)
        self._waiting[connection] = block
        self._counts[block] += 1
        return connection

    def leave(self, connection: Connection) -> None:
        """Stop counting ``connection``: it has a session or is closed. May be called again."""
        connection.stop()
        block = self._waiting.pop(connection, None)
        if block is not None:
            self._counts -= Counter([block])  # drops counts of 0

    def _block(self, text: str) -> str:
        """The address or network that shares a limit; empty: no limit."""
        address = parse_address(text)
        if address is None:
            return text
        return "" if address.is_loopback or is_in(address, self._proxies) else block_of(address)

    def cut_idle(self) -> None:
        """Cut connections that have not sent their whole request, or do not read the answer."""
        for connection in list(self._waiting):
            if connection.is_limited:
                connection.cut()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection = scope["state"][CONNECTION]
        connection.stop()
        if scope["type"] == "websocket":
            link: WebSocketLink = scope["extensions"][LINK]
            link.on_settled = partial(self.leave, connection)
            if link.lost.is_set():
                link.on_settled()
            await self._app(scope, receive, send)
            return
        unread = _has_body(scope)
        if unread:
            connection.limit(TOO_SLOW)

        async def heard() -> Message:
            nonlocal unread
            message = await receive()
            unread = bool(message.get("more_body"))
            if unread:
                connection.limit(TOO_SLOW)
            else:
                connection.stop()
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
            if connection in self._waiting:
                connection.limit()


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )


class GuardedHttp(H11Protocol):
    """uvicorn's HTTP for admitted connections; data after the request does not disturb its
    answer."""

    def __init__(self, guard: HttpGuard, **options: Any) -> None:
        super().__init__(**options)
        self._guard = guard
        self._connection: Connection | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection = self._guard.enter(self.client[0] if self.client else "", transport)
        if self._connection is None:
            transport.abort()
        self.app_state = {**self.app_state, CONNECTION: self._connection}

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._leave()

    def _leave(self) -> None:
        if self._connection is not None:
            self._guard.leave(self._connection)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        super().handle_websocket_upgrade(event)
        if self.transport.is_closing():  # the application does not see it
            self._leave()
            self._guard.on_malformed()

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None and not self.cycle.more_body:
            self.flow.pause_reading()  # the request was complete: what follows is ignored
        elif self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()
