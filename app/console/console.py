"""The pages under ``/console/`` and the JSON beneath them.

The pages are open, since they hold no data. The JSON (what people said, who may connect) is only
for this machine (``access.loopback``) or with an admin's key. A GET has no effects; nothing is
loaded from other hosts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from app.access.api_errors import ApiError
from app.access.policy import CONSOLE, CONSOLE_API, WAY
from app.console.recent_turns import RecentTurn, RecentTurns
from app.console.running import ConsoleServer
from pipeline.errors import ReachyVoiceError
from pipeline.recording.excerpt import excerpt

STATIC = Path(__file__).parent / "static"
_MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_NOT_YOURS = (
    "The console is for browsers on the server's own machine, or with an admin's key: "
    "reachy-voice key new NAME --admin"
)
_FILES = sorted(path.name for path in STATIC.iterdir() if path.suffix in _MEDIA_TYPES)

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; media-src blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

Handler = Callable[[Request], Awaitable[Response]]
Read = Callable[[], Awaitable[dict[str, Any]]]
Write = Callable[[Request], Awaitable[dict[str, Any]]]


def console_routes(turns: RecentTurns, running: ConsoleServer) -> list[Route]:
    async def follow_turns(request: Request) -> Response:
        return StreamingResponse(_turn_events(turns), media_type="text/event-stream")

    async def listen(request: Request) -> Response:
        sound = turns.sound_of(request.path_params["number"])
        if sound is None:
            raise ApiError(404, "not_here", "That turn was not recorded (serve --record FOLDER).")
        wav = await asyncio.to_thread(excerpt, sound.folder, sound.start_s, sound.end_s)
        return Response(wav, media_type="audio/wav")

    async def index(request: Request) -> Response:
        return RedirectResponse(f"{CONSOLE}/")

    async def secure(request: Request) -> Response:
        tls = running.secure
        body = None if tls is None else {"port": tls.port, "fingerprint": tls.fingerprint}
        return JSONResponse({"secure": body})

    async def authority(request: Request) -> Response:
        if running.secure is None:
            raise ApiError(404, "not_here", "This server has no certificate of its own.")
        save = {"Content-Disposition": 'attachment; filename="reachy-voice.crt"'}
        certificate = await asyncio.to_thread(running.secure.authority.read_bytes)
        return Response(certificate, headers=save, media_type="application/x-x509-ca-cert")

    reads: dict[str, Read] = {
        "state": running.state,
        "access": running.who,
        "people": running.people,
        "load": running.usage,
        "doctor": running.findings,
        "models": running.catalogue,
    }
    writes: dict[str, Write] = {
        "access/allow": running.allow,
        "access/key": running.make_key,
        "access/remove-key": running.remove_key,
        "people/check": running.check_person,
        "people/add": running.add_person,
        "people/remove": running.remove_person,
        "models/use": running.exchange,
        "models/choose": running.choose,
        "models/try": running.try_voice,
        "models/pull": running.fetch,
    }
    return [
        Route(CONSOLE, _with_headers(index)),
        Route(f"{CONSOLE}/", _with_headers(_page("index.html"))),
        *(Route(f"{CONSOLE}/{name}", _with_headers(_page(name))) for name in _FILES),
        Route(f"{CONSOLE}/secure", _with_headers(secure)),
        Route(f"{CONSOLE}/authority", _with_headers(authority)),
        Route(f"{CONSOLE_API}turns", _guarded(follow_turns)),
        Route(f"{CONSOLE_API}turns/{{number:int}}/sound", _guarded(listen)),
        *(Route(f"{CONSOLE_API}{name}", _guarded(_reading(read))) for name, read in reads.items()),
        *(
            Route(f"{CONSOLE_API}{name}", _guarded(_writing(write)), methods=["POST"])
            for name, write in writes.items()
        ),
    ]


def _reading(read: Read) -> Handler:
    async def show(request: Request) -> Response:
        return JSONResponse(await read())

    return show


def _writing(write: Write) -> Handler:
    async def do(request: Request) -> Response:
        return JSONResponse(await write(request))

    return do


def _with_headers(handler: Handler) -> Handler:
    async def with_headers(request: Request) -> Response:
        try:
            response = await handler(request)
        except ApiError as error:
            response = error.response()
        except ReachyVoiceError as error:
            response = ApiError(400, "failed", str(error)).response()
        response.headers.update(HEADERS)
        return response

    return with_headers


def _guarded(handler: Handler) -> Handler:
    async def guarded(request: Request) -> Response:
        if not request.scope[WAY].is_owner:
            raise ApiError(403, "console_forbidden", _NOT_YOURS)
        if _asked_by_another_page(request):
            raise ApiError(403, "console_forbidden", "The console only answers its own pages.")
        return await handler(request)

    return _with_headers(guarded)


def _asked_by_another_page(request: Request) -> bool:
    """Even those of ``access.origins`` may not ask. (https://www.w3.org/TR/fetch-metadata/)"""
    return request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def _page(name: str) -> Handler:
    path = STATIC / name
    media_type = _MEDIA_TYPES[path.suffix]

    async def page(request: Request) -> Response:
        return Response(await asyncio.to_thread(path.read_bytes), media_type=media_type)

    return page


async def _turn_events(turns: RecentTurns) -> AsyncGenerator[str, None]:
    """The turns as server-sent events; a reader that reconnects gets all kept turns again."""
    yield f'event: begin\ndata: {{"kept": {turns.kept}}}\n\n'
    async with aclosing(turns.follow()) as stream:
        async for turn in stream:
            yield f"data: {json.dumps(as_json(turn), allow_nan=False)}\n\n"


def as_json(turn: RecentTurn) -> dict[str, Any]:
    """The turn's record, session and client."""
    return {
        "number": turn.number,
        "at": turn.at,
        "under_way": turn.under_way,
        "session": turn.session,
        "place": turn.place,
        "levels": turn.levels,
        "recorded": turn.sound is not None,
        **asdict(turn.record),
    }
