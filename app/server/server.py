"""The server on its one port: who may connect, and how it listens, drains and ends.

uvicorn speaks HTTP and WebSocket; sockets and signals are ours, so that a taken port is an error
with a fix and SIGTERM lets running replies finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from app.access.api_errors import error_response, on_http_exception
from app.access.policy import Caller
from app.api.routes import plain_routes
from app.console.console import console_routes
from app.console.recent_turns import RecentTurns
from app.console.running import ConsoleServer
from app.server import health
from app.server.client_secrets_http import secret_routes
from app.server.conversation_folder import ConversationFolder
from app.server.gate import CALLER, SECRET, Access, AccessGate
from app.server.http_guard import HttpGuard
from app.server.identity import Identity, identity_of
from app.server.listening import BoundPort, GuardedServer, bind, uvicorn_config
from app.server.load import PERIOD_S, Load, LoadHistory
from app.server.metrics import Metrics, watch_lag
from app.server.realtime_link import GOING_AWAY, AssistantLike, RealtimeLink
from app.server.realtime_socket import HANG_UP_S, RealtimeSocket, accept, turn_away
from app.server.reconnect import ParkedConversations
from app.server.session_address import given_by, transcribes
from app.server.websocket_link import LINK
from app.settings.model import LimitSettings
from pipeline.work import CLIENT, new_client

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""A longer message closes the connection with 1009: 15 MiB of audio are 20 MiB of base64."""

PING_S = 20.0
"""Time between pings, and for an answer to one; the usual value of clients and servers."""

SESSION_LIMIT = "session_limit_reached"
"""Error code for a client that connects when all places are taken."""

HANDSHAKE_S = 10.0
"""Time for a request, or a TLS handshake, to arrive."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


log = logging.getLogger("reachy_voice.server")


class OpenSockets:
    """The clients of one server: at most ``most``."""

    def __init__(
        self, most: int, limits: LimitSettings, parked: ParkedConversations, turns: RecentTurns
    ) -> None:
        self.closing = False
        """No new client is admitted."""
        self.metrics = Metrics()
        self.parked = parked
        self.turns = turns
        self.limits = limits
        self.history = LoadHistory()
        self._load = Load(limits.lag_ms / 1000 if limits.lag_ms else None)
        self._most = most
        self._each = limits.sessions_per_address or most
        self.open: set[RealtimeLink] = set()
        self._changed = asyncio.Event()

    def resting(self) -> list[asyncio.Event]:
        """One for each conversation; set while it needs no engine."""
        return [link.resting for link in self.open]

    @property
    def busy(self) -> str | None:
        """Why no client at all is admitted, in a word for a balancer."""
        if self.closing:
            return "draining"
        full = len(self.open) >= self._most or (self.open and self._load.too_high)
        return "full" if full else None

    def full(self, address: str) -> bool:
        """Whether a client from ``address`` must be turned away."""
        of_address = sum(link.address == address for link in self.open)
        return self.busy is not None or of_address >= self._each

    def __len__(self) -> int:
        """How many clients are connected."""
        return len(self.open)

    async def cut_dead(self, who: Identity | None, address: str) -> None:
        """End dead connections of ``who``, so that a client that reconnects finds its place and its
        conversation. If there is no place, end all dead connections from its address."""
        if who is not None:
            await self._cut_dead(link for link in self.open if link.who == who)
        if self.full(address):
            await self._cut_dead(link for link in self.open if link.address == address)

    async def _cut_dead(self, links: Iterable[RealtimeLink]) -> None:
        async with asyncio.TaskGroup() as probes:
            for link in list(links):
                probes.create_task(link.cut_if_dead())

    async def serve(
        self, websocket: WebSocket, assistant: AssistantLike, who: Identity | None
    ) -> None:
        """Accept a WebSocket and serve it to its end."""
        CLIENT.set(self.number(websocket.scope[CALLER]))
        link = RealtimeSocket(
            websocket, assistant, who, self.parked, self.metrics, self.limits, self.turns
        )
        with self.place(link):
            websocket.scope["extensions"][LINK].on_settled()
            await accept(websocket)
            await link.serve()

    @contextlib.contextmanager
    def place(self, link: RealtimeLink) -> Iterator[None]:
        """Take the place of a client before anything is awaited, so that no other one takes it and
        ``close_all`` reaches it. It is freed at once at the end."""
        self.open.add(link)
        log.info("%s connects; conversations: %d", link.address, len(self.open))
        try:
            yield
        finally:
            log.info("%s disconnected", link.address)
            self.open.remove(link)
            link.resting.set()  # for those who wait
            link.ended.set()
            self._changed.set()

    def number(self, caller: Caller) -> int:
        """Engines serve robots in turns, however many connections each of them has."""
        same = (
            link.client
            for link in self.open
            if (link.caller.place, link.caller.keys) == (caller.place, caller.keys)
        )
        return next(same, 0) or new_client()

    async def watch(self) -> NoReturn:
        """Measure how busy this process is, and how late while it has clients."""
        looked_at = time.monotonic()

        def note(lag_s: float) -> None:
            nonlocal looked_at
            self._load.note(lag_s)
            if self.open:
                self.metrics.lag.observe(lag_s)
            if (now := time.monotonic()) - looked_at >= PERIOD_S:
                looked_at = now
                self._load.look(now, time.thread_time())

        await watch_lag(note)

    async def part(self) -> None:
        """Send each client away once no turn of its conversation is in progress."""

        async def after_its_answer(link: RealtimeLink) -> None:
            link.look()
            await link.resting.wait()
            link.close(GOING_AWAY, "server shutting down")

        async with asyncio.TaskGroup() as group:
            for link in list(self.open):
                group.create_task(after_its_answer(link))

    def close_all(self) -> None:
        """Notify every client that the server is going away. Its conversation is resumed at another
        one if they share a folder, else not at all."""
        self.closing = True
        self.parked.close()
        self.turns.close()
        for link in self.open:
            link.close(GOING_AWAY, "server shutting down")

    async def empty(self) -> None:
        """Return when the last client is gone."""
        while self.open:
            self._changed.clear()
            await self._changed.wait()


def build_app(
    assistant: AssistantLike,
    *,
    max_sessions: int,
    reconnect_s: float = 120.0,
    folder: ConversationFolder | None = None,
    access: Access | None = None,
    limits: LimitSettings | None = None,
    console: ConsoleServer | None = None,
    turns_kept: int = 0,
) -> Starlette:
    """The ASGI application. Clients over ``max_sessions`` are turned away; a disconnected client
    has ``reconnect_s`` to resume its conversation. ``folder``: where conversations wait at several
    servers. Without ``access`` only this machine may connect. ``console``: data for the browser
    console, with the last ``turns_kept`` turns; ``None``: no console."""
    access = access or Access()
    limits = limits or LimitSettings()
    routes = [
        WebSocketRoute("/v1/realtime", _realtime),
        WebSocketRoute("/realtime", _realtime),
        *secret_routes(access.secrets, limits.http_body_kb * 1024),
        *health.ROUTES,
    ]
    turns = RecentTurns(turns_kept)
    parked = ParkedConversations(reconnect_s, folder)
    sockets = OpenSockets(max_sessions, limits, parked, turns)
    routes += plain_routes(assistant, limits, sockets.resting)
    if console:
        here = replace(
            console,
            readiness=assistant.readiness,
            sessions=sockets.__len__,
            load=sockets.history.shown,
            voices=lambda: assistant.defaults().voices,
        )
        routes += console_routes(turns, here)

    def on_refused(status: int) -> None:
        sockets.metrics.refused("unauthorized" if status == 401 else "forbidden")

    app = Starlette(
        routes=routes,
        middleware=[Middleware(AccessGate, access, on_refused)],
        exception_handlers={HTTPException: on_http_exception},
    )
    app.router.redirect_slashes = False  # the redirect would go to whatever host the request names
    app.router.default = _nowhere
    app.state.assistant = assistant
    app.state.limits = limits
    app.state.proxies = access.rules.proxies
    app.state.sockets = sockets
    return app


async def _realtime(websocket: WebSocket) -> None:
    assistant: AssistantLike = websocket.app.state.assistant
    sockets: OpenSockets = websocket.app.state.sockets
    caller: Caller = websocket.scope[CALLER]
    who = identity_of(caller, websocket.scope[SECRET])
    transcribing = transcribes(websocket.query_params, given_by(websocket))
    await sockets.cut_dead(who, caller.place)
    if sockets.closing:
        sockets.metrics.refused("closing")
        reasons = {"server": "shutting down"}
        await websocket.send_denial_response(health.not_ready_response(reasons))
    elif reasons := dict(health.turned_away(assistant, transcribes=transcribing)):
        sockets.metrics.refused("not_ready")
        await websocket.send_denial_response(health.not_ready_response(reasons))
    elif sockets.full(caller.place):
        sockets.metrics.refused("full")
        sockets.metrics.client_error(SESSION_LIMIT)
        log.info("%s was turned away: this server is full", caller.place)
        if caller.proxied and sockets.busy:  # a balancer then asks another server
            await websocket.send_denial_response(health.not_ready_response({"server": "full"}))
            return
        await turn_away(websocket, SESSION_LIMIT, "All places are taken. Try again later.")
    else:
        await sockets.serve(websocket, assistant, who)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    """Any other path."""
    if scope["type"] != "websocket":
        raise HTTPException(404)
    scope["app"].state.sockets.metrics.refused("other")
    message = f"Not Found: {scope['path']}. The Realtime API is at /v1/realtime."
    websocket = WebSocket(scope, receive, send)
    await websocket.send_denial_response(error_response(404, "not_found", message))


# --- serving -----------------------------------------------------------------------------------


async def serve(
    app: Starlette,
    host: str,
    port: int,
    *,
    drain_s: float,
    finish_s: float = 0.0,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    ping_s: float = PING_S,
    handshake_s: float = HANDSHAKE_S,
    tls: ssl.SSLContext | None = None,
    listener: socket.socket | None = None,
    beside: Sequence[BoundPort] = (),
) -> None:
    """Serve until SIGTERM or SIGINT, then drain: conversations get ``finish_s`` to end, replies in
    progress ``drain_s`` more; then every client is closed with 1001. A second signal ends the
    server at once.

    ``listener`` is a socket from ``bind``, for a caller that must know that the port is free (or
    which port it got) before starting engines. ``beside``: more ports. Raises ``ServerError``.
    """
    listener = listener or bind(host, port)
    listeners = [BoundPort(listener, tls), *beside]
    malformed = partial(app.state.sockets.metrics.refused, "other")
    guard = HttpGuard(app, handshake_s, app.state.proxies, malformed)
    config = uvicorn_config(guard, max_message_bytes, ping_s)
    server = GuardedServer(config, listeners, guard, handshake_s)
    stop, at_once = asyncio.Event(), asyncio.Event()
    with contextlib.ExitStack() as stack:
        for each in listeners:
            stack.enter_context(contextlib.closing(each.socket))
        stack.enter_context(_signals(stop, at_once))
        ending = asyncio.create_task(_end(server, app, stop, at_once, finish_s, drain_s))
        sockets: OpenSockets = app.state.sockets
        watching = [asyncio.create_task(each.watch()) for each in (sockets, sockets.history)]
        try:
            await server.serve(sockets=[each.socket for each in listeners])
        finally:
            server.stop_accepting()  # uvicorn does not if a signal came at once
            app.state.sockets.parked.close()
            ending.cancel()
            for task in watching:
                task.cancel()
            await asyncio.gather(ending, *watching, return_exceptions=True)


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
    server: GuardedServer,
    app: Starlette,
    stop: asyncio.Event,
    at_once: asyncio.Event,
    finish_s: float,
    drain_s: float,
) -> None:
    await stop.wait()
    draining = asyncio.create_task(_drain(server, app, finish_s, drain_s))
    hurry = asyncio.create_task(at_once.wait())
    try:
        await asyncio.wait((draining, hurry), return_when=asyncio.FIRST_COMPLETED)
        if hurry.done():
            app.state.sockets.close_all()
            server.force_exit = True
    finally:
        draining.cancel()
        hurry.cancel()
        server.end()
    await asyncio.gather(draining, return_exceptions=True)


async def _drain(server: GuardedServer, app: Starlette, finish_s: float, drain_s: float) -> None:
    assistant: AssistantLike = app.state.assistant
    sockets: OpenSockets = app.state.sockets
    sockets.closing = True
    with contextlib.suppress(TimeoutError):  # meanwhile /ready tells balancers
        async with asyncio.timeout(finish_s):
            await sockets.empty()
    server.stop_accepting()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(drain_s):
            async with asyncio.TaskGroup() as group:
                group.create_task(assistant.idle())
                group.create_task(sockets.part())
    sockets.close_all()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * HANG_UP_S):
            await sockets.empty()
