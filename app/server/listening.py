"""How the server listens: its sockets, and uvicorn with our guards and without its signals."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from app.server.http_guard import REST_S, GuardedHttp, HttpGuard
from app.server.websocket_link import WebSocketLink
from pipeline.errors import ReachyVoiceError

BACKLOG = 128


class ServerError(ReachyVoiceError):
    """The server cannot listen."""

    exit_code = 20


def bind(host: str, port: int, setting: str = "server.port") -> socket.socket:
    """A bound TCP socket; port 0 takes a free one. ``setting``: where the port can be changed.
    Raises ``ServerError``."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise _cannot_listen(host, port, setting, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)  # fails here if another process has just taken the port
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, setting, error) from error
    listener.setblocking(False)
    return listener


def _cannot_listen(host: str, port: int, setting: str, error: OSError) -> ServerError:
    what = f"Cannot listen on {host}:{port}"
    if isinstance(error, socket.gaierror):
        return ServerError(what, why="this host name is not known", fix="Set server.host")
    if error.errno == errno.EADDRINUSE:
        other = port + 1 if port < 65535 else port - 1
        fix = f"Stop it, or choose another port: --set {setting}={other}"
        return ServerError(what, why="another program listens there already", fix=fix)
    if error.errno == errno.EADDRNOTAVAIL:
        fix = "Set server.host to 127.0.0.1, or to 0.0.0.0 for the whole network"
        return ServerError(what, why="this machine does not have that address", fix=fix)
    if error.errno in (errno.EACCES, errno.EPERM):
        return ServerError(what, why="not permitted", fix=f"Choose a {setting} above 1023")
    return ServerError(what, why=error.strerror or str(error), fix="Set server.host and port")


@dataclass(frozen=True, slots=True)
class BoundPort:
    """A bound port; with ``tls`` it accepts only TLS."""

    socket: socket.socket
    tls: ssl.SSLContext | None = None


class GuardedServer(uvicorn.Server):
    """uvicorn's server without its signal handlers, behind a guard."""

    def __init__(
        self,
        config: uvicorn.Config,
        listeners: Sequence[BoundPort],
        guard: HttpGuard,
        handshake_s: float,
    ) -> None:
        super().__init__(config)
        self._listeners = listeners
        self._guard = guard
        self._handshake_s = handshake_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        await self.lifespan.startup()
        self.servers = [
            await loop.create_server(
                self._connection,
                sock=listener.socket,
                ssl=listener.tls,
                ssl_handshake_timeout=self._handshake_s if listener.tls else None,
                ssl_shutdown_timeout=REST_S if listener.tls else None,
                backlog=BACKLOG,
            )
            for listener in self._listeners
        ]
        self.started = True

    def _connection(self) -> asyncio.Protocol:
        return GuardedHttp(
            self._guard,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop_accepting(self) -> None:
        for server in getattr(self, "servers", ()):  # none yet if the signal came at once
            server.close()
        for listener in self._listeners:
            listener.socket.close()

    def end(self) -> None:
        """Do not wait for clients that do nothing."""
        self._guard.cut_idle()
        self.should_exit = True


def uvicorn_config(app: ASGIApp, max_message_bytes: int, ping_s: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        ws=WebSocketLink,
        proxy_headers=False,  # any client could fake its address
        lifespan="off",
        log_config=None,
        log_level="error",  # at lower levels, clients could fill our log with garbage
        access_log=False,
        server_header=False,
        ws_max_size=max_message_bytes,
        ws_ping_interval=ping_s,
        ws_ping_timeout=ping_s,
        ws_per_message_deflate=False,  # audio does not shrink, and the loop would pay for it
        timeout_graceful_shutdown=1,
    )
