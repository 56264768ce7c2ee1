"""WebRTC: ``POST /v1/realtime/calls``, ``.../ID/hangup``, and a WebSocket with ``?call_id=ID``.

Imported only where ``server.webrtc`` is true, as it imports aiortc.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping
from typing import Any, NoReturn

from starlette.datastructures import UploadFile
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.access.api_errors import RETRY, ApiError, form_of, read_body
from app.server import health
from app.server.call_link import CallLink
from app.server.client_secrets_http import effective_session
from app.server.clients import ALL_TAKEN, FULL, SESSION_LIMIT, Clients
from app.server.gate import CALLER, CALLS, SECRET, is_call
from app.server.identity import identity_of
from app.server.realtime_link import NORMAL, POLICY, Closure, Opening, first
from app.server.realtime_socket import accept, frame_of, hang_up
from app.server.websocket_link import LINK
from app.webrtc.peer import Peer
from pipeline.bus import SlowSubscriber
from pipeline.work import CLIENT

log = logging.getLogger("reachy_voice.server")

Answer = tuple[str, str]
"""The id of a call, and its SDP."""


class CallsCors(CORSMiddleware):
    """Lets pages of other origins ask for a call; the gate decides whether they get one."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_call_request = scope["type"] == "http" and is_call(scope["path"])
        await (super().__call__ if is_call_request else self.app)(scope, receive, send)


CORS: Mapping[str, Any] = {
    "allow_origins": ["*"],
    "allow_methods": ["POST"],
    "allow_headers": ["*"],
    "expose_headers": ["Location"],
}


class OpenCalls:
    """The calls of one server; each takes the place of one client."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._assistant = clients.services.assistant
        self._open: dict[str, CallLink] = {}
        self.routes = [
            Route(CALLS, self._create, methods=["POST"]),
            Route(f"{CALLS}/{{call_id}}/hangup", self._hang_up, methods=["POST"]),
        ]

    async def watch(self) -> NoReturn:
        """Serve calls until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.get_running_loop().create_future()
        raise AssertionError

    # -- requests

    async def _create(self, request: Request) -> Response:
        """201 with the SDP answer, and the call's address in ``Location``."""
        offer, session = await self._read(request)
        caller, secret = request.scope[CALLER], request.scope[SECRET]
        fields = {**(secret.session if secret else {}), **session}
        who = identity_of(caller, secret)
        opening = Opening(caller, who, request.query_params, fields, secret)
        result: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._tasks.create_task(self._serve(opening, offer, result))
        call_id, answer = await result
        location = {"Location": f"{CALLS}/{call_id}"}
        return Response(answer, 201, location, media_type="application/sdp")

    async def _read(self, request: Request) -> tuple[str, Mapping[str, Any]]:
        """The offer, and the session's fields. Raises ``ApiError``, ``WireError``."""
        most_bytes = self._clients.services.limits.http_body_kb * 1024
        body = await read_body(request, most_bytes, " (limits.http_body_kb)")
        if "multipart/form-data" not in request.headers.get("content-type", "").lower():
            return body.decode(errors="replace"), {}
        async with form_of(request, body) as form:
            offer, text = await _text(form.get("sdp")), await _text(form.get("session"))
        if offer is None:
            raise ApiError(400, "missing_required_parameter", "The form has no offer.", "sdp")
        try:
            session = json.loads(text or "{}")
        except ValueError:
            session = None
        if not isinstance(session, dict):
            raise ApiError(400, "invalid_json", "This is no JSON object.", "session")
        if not health.nameless(self._assistant):
            effective_session(self._assistant.defaults(), session)
        return offer, session

    async def _hang_up(self, request: Request) -> Response:
        self._find(request.scope, request.path_params["call_id"]).close(NORMAL, "hung up")
        return Response()

    # -- calls

    def _find(self, scope: Scope, call_id: str) -> CallLink:
        """The caller's own call with this id. Raises ``ApiError``, also for another client's."""
        link = self._open.get(call_id)
        if link is None or not link.is_of(scope[CALLER], scope[SECRET]):
            raise ApiError(404, "call_not_found", "There is no such call of yours.", "call_id")
        return link

    async def _serve(self, opening: Opening, offer: str, result: asyncio.Future[Answer]) -> None:
        clients = self._clients
        call_id = f"rtc_{secrets.token_hex(12)}"
        try:
            if refusal := await clients.refusal(opening):
                raise _error(refusal)
            CLIENT.set(clients.number(opening.caller))
            peer = Peer()
            try:
                link = CallLink(peer, opening, clients.services)
                with clients.place(link):
                    answer = await peer.answer(offer, link.output)
                    self._open[call_id] = link
                    result.set_result((call_id, answer))
                    await link.serve()
            finally:
                self._open.pop(call_id, None)
                await peer.close()
        except Exception as error:
            if result.done():  # also if its client left meanwhile
                log.exception("A call failed")
            else:
                result.set_exception(error)
        finally:
            result.cancel()

    async def control(self, websocket: WebSocket, call_id: str) -> None:
        """Serve another client that follows and controls a call."""
        link = self._find(websocket.scope, call_id)
        if link.crowded:
            raise ApiError(429, SESSION_LIMIT, "This call has enough controls.")
        websocket.scope["extensions"][LINK].on_settled()
        await accept(websocket)
        closed = Closure(NORMAL, "the call is over")
        try:
            async with asyncio.TaskGroup() as group, link.control() as unread:
                group.create_task(_relay(websocket, unread))
                group.create_task(_over(link))
                while (message := await websocket.receive())["type"] != "websocket.disconnect":
                    await link.steer(frame_of(message))
                raise WebSocketDisconnect
        except* WebSocketDisconnect:
            pass
        except* Closure as group_of_one:
            closed = first(group_of_one)
        except* SlowSubscriber:
            closed = Closure(POLICY, "the call's client is too slow")
        await hang_up(websocket, closed.code, closed.reason)


def _error(refusal: Mapping[str, str]) -> ApiError:
    if refusal == FULL:
        return ApiError(429, SESSION_LIMIT, ALL_TAKEN, headers=RETRY)
    why = "; ".join(f"{name}: {why}" for name, why in refusal.items())
    return ApiError(503, "not_ready", why, headers=RETRY)


async def _text(field: str | UploadFile | None) -> str | None:
    """The text of a form field; a browser sends a ``Blob`` as a file."""
    return (await field.read()).decode(errors="replace") if isinstance(field, UploadFile) else field


async def _relay(websocket: WebSocket, unread: asyncio.Queue[str | None]) -> NoReturn:
    while (text := await unread.get()) is not None:
        await websocket.send_text(text)
    raise Closure(POLICY, "client too slow")


async def _over(link: CallLink) -> NoReturn:
    await link.ended.wait()
    raise Closure(NORMAL, "the call is over")
