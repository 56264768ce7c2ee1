"""Which addresses have tried to connect, so that ``pair`` can distinguish a refused robot from one
that never arrives.

Kept in memory, bounded, and shown to the owner only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.api_errors import error_response
from app.access.policy import WAY, Network, caller_of

PATH = "/callers"
MAX_REMEMBERED = 256
"""Addresses; the one that has been quiet longest is forgotten."""


@dataclass(frozen=True, slots=True)
class Knocks:
    """WebSockets from one address. ``status``: HTTP status of the last refusal; ``closed``: the
    code with which the server closed the last connection, ``None`` if the client did."""

    open: int = 0
    opened: int = 0
    refused: int = 0
    status: int | None = None
    closed: int | None = None


def read_callers(body: Any) -> Mapping[str, Knocks]:
    """Parse the answer to ``GET /callers``. Raises ``ValueError``."""
    try:
        return {str(one.pop("address")): Knocks(**one) for one in body["callers"]}
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("that is not a list of callers") from error


class Callers:
    """The list of one server. Use it on the event loop."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Knocks] = OrderedDict()

    def get(self, address: str) -> Knocks:
        return self._known.get(address, Knocks())

    def put(self, address: str, knocks: Knocks) -> None:
        self._known[address] = knocks
        self._known.move_to_end(address)
        while len(self._known) > MAX_REMEMBERED:
            quiet = (name for name, one in self._known.items() if not one.open)
            del self._known[next(quiet, next(iter(self._known)))]

    def shown(self) -> list[dict[str, Any]]:
        return [{"address": name, **asdict(one)} for name, one in self._known.items()]


class CallersTap:
    """Outermost ASGI middleware: sees every client, and what becomes of it."""

    def __init__(self, app: ASGIApp, callers: Callers, proxies: Sequence[Network] = ()) -> None:
        self._app = app
        self._callers = callers
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        address = caller_of(scope, self._proxies).place
        accepted = False

        async def watched(message: Message) -> None:
            nonlocal accepted
            before = self._callers.get(address)
            match message["type"]:
                case "websocket.accept":
                    accepted = True
                    more = replace(
                        before, open=before.open + 1, opened=before.opened + 1, closed=None
                    )
                    self._callers.put(address, more)
                case "websocket.close" if accepted:
                    self._callers.put(address, replace(before, closed=message.get("code", 1000)))
                case "websocket.close":
                    self._refused(address, before, 403)  # uvicorn's answer in that case
                case "websocket.http.response.start":
                    self._refused(address, before, message["status"])
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            if accepted:
                now = self._callers.get(address)
                self._callers.put(address, replace(now, open=max(0, now.open - 1)))

    def _refused(self, address: str, before: Knocks, status: int) -> None:
        self._callers.put(address, replace(before, refused=before.refused + 1, status=status))


def note_callers(app: Starlette, callers: Callers, proxies: Sequence[Network] = ()) -> None:
    """Call before ``app`` serves: counts callers, and shows them to the owner at ``GET
    /callers``."""

    async def show(request: Request) -> Response:
        if not request.scope[WAY].is_owner:
            why = "Only programs on the server's own machine, or with an admin's key, may ask that."
            return error_response(403, "only_here", why)
        return JSONResponse({"callers": callers.shown()})

    app.add_middleware(CallersTap, callers=callers, proxies=proxies)
    app.router.routes.append(Route(PATH, show))
