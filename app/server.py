"""The server on its one port: who may come in, and how it listens, drains and ends.

uvicorn speaks HTTP and WebSocket; sockets and signals are ours, so that a taken port is an error
with a next step and SIGTERM lets running replies finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Iterator
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from app import health
from app.realtime_socket import (
    ABORT,
    GOING_AWAY,
    HANG_UP_S,
    Assistant,
    RealtimeSocket,
    accept,
    turn_away,
)
from pipeline.errors import ReachyVoiceError

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Above this a message closes the connection with 1009: 15 MiB of audio are 20 MiB of base64."""

PING_S = 20.0
"""Between pings, and how long an answer may take; the usual value of clients and servers."""

BACKLOG = 128
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ServerError(ReachyVoiceError):
    """The server cannot listen."""

    exit_code = 20


class OpenSockets:
    """The clients of one server."""

    def __init__(self, max_sessions: int) -> None:
        self.closing = False
        """Nobody new comes in."""
        self._max_sessions = max_sessions
        self._open: set[RealtimeSocket] = set()
        self._changed = asyncio.Event()

    @property
    def full(self) -> bool:
        return len(self._open) >= self._max_sessions

    async def serve(self, websocket: WebSocket, assistant: Assistant) -> None:
        """Accept a WebSocket and serve it to its end.

        Its place is taken before anything is awaited, so that nobody else takes it and
        ``close_all`` reaches it; it is free at once after the end.
        """
        link = RealtimeSocket(websocket, assistant)
        self._open.add(link)
        try:
            await accept(websocket)
            await link.serve()
        finally:
            self._open.remove(link)
            self._changed.set()

    def close_all(self) -> None:
        """Tell every client that the server goes away."""
        self.closing = True
        for link in self._open:
            link.close(GOING_AWAY, "server shutting down")

    async def empty(self) -> None:
        """Return when the last client is gone."""
        while self._open:
            self._changed.clear()
            await self._changed.wait()


def build_app(assistant: Assistant, *, max_sessions: int) -> Starlette:
    """The ASGI application. Clients over ``max_sessions`` are turned away."""
    routes = [
        WebSocketRoute("/v1/realtime", _realtime),
        WebSocketRoute("/realtime", _realtime),
        *health.ROUTES,
    ]
    app = Starlette(routes=routes)
    app.state.assistant = assistant
    app.state.sockets = OpenSockets(max_sessions)
    return app


async def _realtime(websocket: WebSocket) -> None:
    assistant: Assistant = websocket.app.state.assistant
    sockets: OpenSockets = websocket.app.state.sockets
    if sockets.closing:
        reasons = {"server": "shutting down"}
        await websocket.send_denial_response(health.not_ready_response(reasons))
    elif reasons := dict(health.unready(assistant)):
        await websocket.send_denial_response(health.not_ready_response(reasons))
    elif sockets.full:
        await turn_away(
            websocket, "session_limit_reached", "All conversations are taken. Try again later."
        )
    else:
        await sockets.serve(websocket, assistant)


# --- listening ---------------------------------------------------------------------------------


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket; port 0 takes a free one. Raises ``ServerError``."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)  # a port that another process took since is found here
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from error
    listener.setblocking(False)
    return listener


def _cannot_listen(host: str, port: int, error: OSError) -> ServerError:
    what = f"Cannot listen on {host}:{port}"
    if isinstance(error, socket.gaierror):
        return ServerError(what, why="this host name is not known", fix="Set server.host")
    if error.errno == errno.EADDRINUSE:
        fix = f"Stop it, or choose another port: --set server.port={port + 1}"
        return ServerError(what, why="another program listens there already", fix=fix)
    if error.errno == errno.EADDRNOTAVAIL:
        fix = "Set server.host to 127.0.0.1, or to 0.0.0.0 for the whole network"
        return ServerError(what, why="this machine does not have that address", fix=fix)
    if error.errno in (errno.EACCES, errno.EPERM):
        return ServerError(what, why="not permitted", fix="Choose a server.port above 1023")
    return ServerError(what, why=error.strerror or str(error), fix="Set server.host and port")


class _WebSocket(WebSocketsSansIOProtocol):
    """uvicorn's, but a client that cannot be reached is cut: closing would wait for its
    acknowledgement, and hold its session, until TCP gives up."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions = cast(dict[str, Any], self.scope["extensions"])
            extensions[ABORT] = self.transport.abort

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()


class _Server(uvicorn.Server):
    """uvicorn's, without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop_accepting(self) -> None:
        for server in getattr(self, "servers", ()):  # none yet if the signal came at once
            server.close()


def _config(app: Starlette, max_message_bytes: int, ping_s: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        ws=_WebSocket,
        lifespan="off",
        log_config=None,
        log_level="warning",  # uvicorn logs each connection's address and query at info
        access_log=False,
        server_header=False,
        ws_max_size=max_message_bytes,
        ws_ping_interval=ping_s,
        ws_ping_timeout=ping_s,
        ws_per_message_deflate=False,  # audio does not shrink, and the loop would pay for it
        timeout_graceful_shutdown=1,
    )


# --- serving -----------------------------------------------------------------------------------


async def serve(
    app: Starlette,
    host: str,
    port: int,
    *,
    drain_s: float,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    ping_s: float = PING_S,
    listener: socket.socket | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain: replies under way get ``drain_s`` to end, then
    every client is told 1001. A second signal ends it at once.

    ``listener`` is a socket from ``bind``, for a caller that wants to know of a taken port (or
    which port it got) before engines are started. Raises ``ServerError``.
    """
    listener = listener or bind(host, port)
    server = _Server(_config(app, max_message_bytes, ping_s))
    stop, at_once = asyncio.Event(), asyncio.Event()
    with contextlib.closing(listener), _signals(stop, at_once):
        ending = asyncio.create_task(_end(server, app, stop, at_once, drain_s))
        try:
            await server.serve(sockets=[listener])
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)


@contextlib.contextmanager
def _signals(stop: asyncio.Event, at_once: asyncio.Event) -> Iterator[None]:
    """The first signal sets ``stop``, any later one ``at_once``."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (at_once if stop.is_set() else stop).set()

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def _end(
    server: _Server, app: Starlette, stop: asyncio.Event, at_once: asyncio.Event, drain_s: float
) -> None:
    await stop.wait()
    draining = asyncio.create_task(_drain(server, app, drain_s))
    hurry = asyncio.create_task(at_once.wait())
    try:
        await asyncio.wait((draining, hurry), return_when=asyncio.FIRST_COMPLETED)
        if hurry.done():
            app.state.sockets.close_all()
            server.force_exit = True
    finally:
        draining.cancel()
        hurry.cancel()
        server.should_exit = True
    await asyncio.gather(draining, return_exceptions=True)


async def _drain(server: _Server, app: Starlette, drain_s: float) -> None:
    assistant: Assistant = app.state.assistant
    sockets: OpenSockets = app.state.sockets
    server.stop_accepting()
    sockets.closing = True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(drain_s):
            await assistant.idle()
    sockets.close_all()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * HANG_UP_S):
            await sockets.empty()
