"""``POST /v1/reachy/wake``: wakes robots that sleep until they are called (``wake``), as a touch
would: for a button, a motion sensor, a script."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from app.server.open_sockets import OpenSockets


async def wake(request: Request) -> JSONResponse:
    """Wakes all sleeping conversations, or with ``?address=`` only those of clients at that
    address. Answers how many."""
    sockets: OpenSockets = request.app.state.sockets
    address = request.query_params.get("address")
    asleep = [link for link in sockets.open if link.asleep and address in (None, link.address)]
    for link in asleep:
        await link.touch()
    return JSONResponse({"woken": len(asleep)})


ROUTES = [Route("/v1/reachy/wake", wake, methods=["POST"])]
