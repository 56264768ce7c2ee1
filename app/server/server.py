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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from app.access.api_errors import ApiError
from app.access.policy import Caller
from app.api.answering import ERROR_ANSWERS
from app.api.routes import plain_routes
from app.api.turnstile import Turnstile
from app.console.console import console_routes
from app.console.recent_turns import RecentTurns
from app.console.running import ConsoleServer
from app.server import health
from app.server.client_secrets_http import secret_routes
from app.server.clients import ALL_TAKEN, FULL, SESSION_LIMIT, Clients
from app.server.conversation_folder import ConversationFolder
from app.server.gate import CALLER, CALLS, SECRET, Access, AccessGate
from app.server.http_guard import HttpGuard
from app.server.identity import identity_of
from app.server.listening import BoundPort, GuardedServer, uvicorn_config
from app.server.metrics import Metrics
from app.server.realtime_link import AssistantLike, Opening, Services
from app.server.realtime_socket import HANG_UP_S, RealtimeSocket, accept, turn_away
from app.server.reconnect import ParkedConversations
from app.server.session_address import given_by
from app.server.websocket_link import LINK
from app.settings.model import LimitSettings
from pipeline.work import CLIENT

PING_S = 20.0
"""Time between pings, and for an answer to one; the usual value of clients and servers."""
NO_CALLS = (
    "WebRTC is switched off on this server. Its owner can switch it on: server.webrtc: true in the "
    "settings. Or use a WebSocket."
)
SIGNALS = (signal.SIGINT, signal.SIGTERM)


log = logging.getLogger("reachy_voice.server")


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
    webrtc: bool = False,
) -> Starlette:
    """The ASGI application. Clients over ``max_sessions`` are turned away; a disconnected client
    has ``reconnect_s`` to resume its conversation. ``folder``: keeps waiting conversations for
    several servers. Without ``access`` only this machine may connect. ``console``: data for the
    browser console, with the last ``turns_kept`` turns; ``None``: no console. ``webrtc``: import
    what calls need, and serve them."""
    access = access or Access()
    limits = limits or LimitSettings()
    routes: list[BaseRoute] = [
        WebSocketRoute("/v1/realtime", _realtime),
        WebSocketRoute("/realtime", _realtime),
        *secret_routes(access.secrets, limits.http_body_kb * 1024),
        *health.ROUTES,
        Route("/v1/reachy/wake", _wake, methods=["POST"]),
    ]
    turns = RecentTurns(turns_kept)
    parked = ParkedConversations(reconnect_s, folder)
    clients = Clients(max_sessions, Services(assistant, parked, Metrics(), limits, turns))
    turnstile = Turnstile(limits.plain_requests, clients.resting)
    routes += [clients.callers.route(), *plain_routes(assistant, limits, turnstile)]
    if console:
        here = replace(
            console,
            readiness=assistant.readiness,
            sessions=clients.__len__,
            load=clients.history.shown,
            callers=clients.callers.shown,
            voices=lambda: assistant.defaults().voices,
            calls=webrtc,
        )
        routes += console_routes(turns, here)

    def on_refused(caller: Caller, status: int) -> None:
        clients.metrics.note_refusal("unauthorized" if status == 401 else "forbidden")
        clients.callers.refuse(caller.place, status)

    middleware = [Middleware(AccessGate, access, on_refused)]
    calls = None
    if webrtc:
        from app.server.calls import CORS, CallsCors, OpenCalls

        calls = OpenCalls(clients)
        routes += calls.routes
        middleware.insert(0, Middleware(CallsCors, **CORS))
    else:
        routes.append(Route(CALLS, _no_calls, methods=["POST"]))
    app = Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers=ERROR_ANSWERS,
    )
    app.router.redirect_slashes = False  # the redirect would go to whatever host the request names
    app.router.default = _nowhere
    app.state.assistant = assistant
    app.state.proxies = access.rules.proxies
    app.state.clients = clients
    app.state.turnstile = turnstile
    app.state.calls = calls
    return app


async def _realtime(websocket: WebSocket) -> None:
    clients: Clients = websocket.app.state.clients
    caller: Caller = websocket.scope[CALLER]
    who = identity_of(caller, websocket.scope[SECRET])
    calls = websocket.app.state.calls
    if calls and (call_id := websocket.query_params.get("call_id")):
        await calls.control(websocket, call_id)
        return
    opening = Opening(caller, who, websocket.query_params, given_by(websocket))
    if refusal := await clients.refusal(opening):
        await _refuse(websocket, refusal)
        return
    CLIENT.set(clients.number(caller))
    link = RealtimeSocket(websocket, opening, clients.services)
    with clients.place(link):
        websocket.scope["extensions"][LINK].on_settled()
        await accept(websocket)
        await link.serve()


async def _refuse(websocket: WebSocket, refusal: Mapping[str, str]) -> None:
    clients: Clients = websocket.app.state.clients
    if refusal == FULL:
        clients.metrics.note_error(SESSION_LIMIT)
        if not (websocket.scope[CALLER].proxied and clients.busy):
            await turn_away(websocket, SESSION_LIMIT, ALL_TAKEN)
            return
    # If this server is full, a balancer now asks another one.
    await websocket.send_denial_response(health.not_ready_response(refusal))


async def _wake(request: Request) -> Response:
    """Wake the robots that sleep until they are called (``wake``), as a touch would, or only those
    at ``?address=``: for a button, a motion sensor, a script. Answers how many."""
    clients: Clients = request.app.state.clients
    address = request.query_params.get("address")
    asleep = [link for link in clients.open if link.asleep and address in (None, link.address)]
    for link in asleep:
        await link.touch()
    return JSONResponse({"woken": len(asleep)})


async def _no_calls(request: Request) -> Response:
    raise ApiError(501, "webrtc_off", NO_CALLS)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "websocket":
        raise HTTPException(404)
    scope["app"].state.clients.metrics.note_refusal("other")
    message = f"Not Found: {scope['path']}. The Realtime API is at /v1/realtime."
    raise ApiError(404, "not_found", message)


# --- serving -----------------------------------------------------------------------------------


async def serve(
    app: Starlette,
    listener: socket.socket,
    *,
    drain_s: float,
    finish_s: float = 0.0,
    max_message_bytes: int,
    ping_s: float = PING_S,
    handshake_s: float,
    tls: ssl.SSLContext | None = None,
    beside: Sequence[BoundPort] = (),
) -> None:
    """Serve until SIGTERM or SIGINT, then drain: conversations get ``finish_s`` to end, replies and
    plain requests in progress ``drain_s`` more; then every client is closed with 1001. A second
    signal ends the server at once.

    ``listener``: from ``bind``. ``beside``: more ports. ``max_message_bytes``: a longer message
    closes the connection with 1009; 15 MiB of audio are 20 MiB of base64. ``handshake_s``: time for
    a request, or a TLS handshake, to arrive.
    """
    listeners = [BoundPort(listener, tls), *beside]
    malformed = partial(app.state.clients.metrics.note_refusal, "other")
    guard = HttpGuard(app, handshake_s, app.state.proxies, malformed)
    config = uvicorn_config(guard, max_message_bytes, ping_s)
    server = GuardedServer(config, listeners, guard, handshake_s)
    stop, at_once = asyncio.Event(), asyncio.Event()
    with contextlib.ExitStack() as stack:
        for each in listeners:
            stack.enter_context(contextlib.closing(each.socket))
        stack.enter_context(_signals(stop, at_once))
        ending = asyncio.create_task(_end(server, app, stop, at_once, finish_s, drain_s))
        clients: Clients = app.state.clients
        watched = [each for each in (clients, clients.history, app.state.calls) if each is not None]
        watching = [asyncio.create_task(each.watch()) for each in watched]
        try:
            await server.serve(sockets=[each.socket for each in listeners])
        finally:
            server.stop_accepting()  # uvicorn does not if a signal came at once
            app.state.clients.parked.close()
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
            app.state.clients.close_all()
            app.state.turnstile.close()
            server.force_exit = True
    finally:
        draining.cancel()
        hurry.cancel()
        server.end()
    await asyncio.gather(draining, return_exceptions=True)


async def _drain(server: GuardedServer, app: Starlette, finish_s: float, drain_s: float) -> None:
    assistant: AssistantLike = app.state.assistant
    clients: Clients = app.state.clients
    turnstile: Turnstile = app.state.turnstile
    clients.closing = True
    with contextlib.suppress(TimeoutError):  # meanwhile /ready tells balancers
        async with asyncio.timeout(finish_s):
            await clients.empty()
    server.stop_accepting()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(drain_s):
            async with asyncio.TaskGroup() as group:
                group.create_task(assistant.idle())
                group.create_task(clients.part())
                group.create_task(turnstile.empty())
    clients.close_all()
    turnstile.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * HANG_UP_S):
            await clients.empty()
            await turnstile.empty()
