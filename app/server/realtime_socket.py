"""A client on a WebSocket: the only file that knows both the session and the socket."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.server.realtime_link import (
    POLICY,
    ClientGone,
    Closure,
    Opening,
    RealtimeLink,
    Services,
)
from app.server.session_address import NO_BETA, asks_for_beta, id_source
from app.server.websocket_link import LINK, WebSocketLink
from pipeline.realtime import wire
from pipeline.realtime.wire import WireError

HANG_UP_S = 1.0
"""How long a full socket may take to send the close frame before it is cut."""


class RealtimeSocket(RealtimeLink):
    """Serves one accepted WebSocket until either side ends it."""

    def __init__(self, websocket: WebSocket, opening: Opening, services: Services) -> None:
        super().__init__(opening, services)
        if asks_for_beta(websocket):
            self._protocol.refuse(WireError("beta_api_shape_disabled", NO_BETA))
        self._websocket = websocket
        self._link: WebSocketLink = websocket.scope["extensions"][LINK]

    async def cut_if_dead(self) -> None:
        if not await self._link.answers():
            self._link.abort()
            await self.ended.wait()

    async def _receive(self) -> None:
        await self._configure()
        while True:
            message = await self._websocket.receive()
            self.look()
            if message["type"] == "websocket.disconnect":
                raise ClientGone(lost=self._link.broken)
            await self.take(frame_of(message))

    async def _loss(self) -> ClientGone:
        await self._link.lost.wait()
        return ClientGone(lost=self._link.broken)

    async def _send(self, text: str) -> None:
        try:
            await self._websocket.send_text(text)
        except WebSocketDisconnect:
            raise ClientGone(lost=self._link.broken) from None

    async def _hang_up(self, closed: Closure) -> None:
        await hang_up(self._websocket, closed.code, closed.reason)


def frame_of(message: Message) -> str | bytes:
    """The frame in a ``websocket.receive`` message."""
    text: str | None = message.get("text")
    return message["bytes"] if text is None else text


async def hang_up(websocket: WebSocket, code: int, reason: str) -> None:
    """Close with a close frame, or cut the connection if the client does not take it."""
    try:
        async with asyncio.timeout(HANG_UP_S):
            await websocket.close(code, reason)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the client closed it first
    except TimeoutError:
        link: WebSocketLink = websocket.scope["extensions"][LINK]
        link.abort()


async def accept(websocket: WebSocket) -> None:
    """Complete the upgrade; of a browser's subprotocols, ``realtime`` is selected."""
    offered = websocket.scope.get("subprotocols", ())
    await websocket.accept("realtime" if "realtime" in offered else None)


async def turn_away(websocket: WebSocket, code: str, message: str) -> None:
    """Accept, give the reason in an ``error`` event, and close with 1008, all within a time
    limit."""
    link: WebSocketLink = websocket.scope["extensions"][LINK]
    link.close_timeout = HANG_UP_S
    error = {"type": "invalid_request_error", "code": code, "message": message}
    event = {"type": "error", "event_id": id_source()("event"), "error": error}
    await accept(websocket)
    with contextlib.suppress(WebSocketDisconnect):
        await websocket.send_text(wire.encode(event))
    await hang_up(websocket, POLICY, code)
