"""The pages under ``/console/`` and the JSON beneath them.

Only for whoever sits at this machine (``access.loopback``): the pages show what people said.
Every GET is without effects, and nothing is loaded from anywhere else.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from app.access.api_errors import error_response
from app.access.policy import WAY, Way
from app.console.recent_turns import RecentTurn, RecentTurns

STATIC = Path(__file__).parent / "static"
_MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_FILES = sorted(path.name for path in STATIC.iterdir() if path.suffix in _MEDIA_TYPES)

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

Readiness = Callable[[], Mapping[str, str | None]]
Handler = Callable[[Request], Awaitable[Response]]


def console_routes(
    turns: RecentTurns, readiness: Readiness, sessions: Callable[[], int]
) -> list[Route]:
    """``readiness``: each engine's name, and why it is not ready. ``sessions``: how many clients
    are connected."""

    async def follow_turns(request: Request) -> Response:
        return StreamingResponse(_told(turns), media_type="text/event-stream")

    async def state(request: Request) -> Response:
        return JSONResponse({"engines": dict(readiness()), "sessions": sessions()})

    async def index(request: Request) -> Response:
        return RedirectResponse("/console/")

    return [
        Route("/console", _guarded(index)),
        Route("/console/", _guarded(_page("index.html"))),
        *(Route(f"/console/{name}", _guarded(_page(name))) for name in _FILES),
        Route("/console/api/turns", _guarded(follow_turns)),
        Route("/console/api/state", _guarded(state)),
    ]


def _guarded(handler: Handler) -> Handler:
    async def guarded(request: Request) -> Response:
        if request.scope.get(WAY) is not Way.LOOPBACK:
            message = "The console is only for a browser on the server's own machine."
            response: Response = error_response(403, "console_forbidden", message)
        elif _asked_by_another_page(request):
            message = "The console answers its own pages only."
            response = error_response(403, "console_forbidden", message)
        else:
            response = await handler(request)
        response.headers.update(HEADERS)
        return response

    return guarded


def _asked_by_another_page(request: Request) -> bool:
    """Other pages may link to the console, but load none of it, not even those of
    ``access.origins``. (https://www.w3.org/TR/fetch-metadata/)"""
    if request.headers.get("sec-fetch-mode") == "navigate":
        return False
    return request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def _page(name: str) -> Handler:
    path = STATIC / name
    media_type = _MEDIA_TYPES[path.suffix]

    async def page(request: Request) -> Response:
        return FileResponse(path, media_type=media_type)

    return page


async def _told(turns: RecentTurns) -> AsyncGenerator[str, None]:
    """As server-sent events. A reader that comes back is told all that are kept again."""
    yield "event: begin\ndata: {}\n\n"
    async with aclosing(turns.follow()) as followed:
        async for turn in followed:
            yield f"data: {json.dumps(as_json(turn), allow_nan=False)}\n\n"


def as_json(turn: RecentTurn) -> dict[str, Any]:
    """The record and, beside it, whose it is."""
    return {
        "number": turn.number,
        "ended_at": turn.ended_at,
        "session": turn.session,
        "place": turn.place,
        **asdict(turn.record),
    }
