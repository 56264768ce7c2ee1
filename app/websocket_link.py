"""uvicorn's WebSocket, and what our sockets ask of the connection under it.

The application finds it as the ASGI extension ``LINK``.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.http11 import Request

LINK = "reachy_voice.link"

SILENCE_S = 3.0
"""A client that is not heard for so long, and answers no ping, is gone. A robot that listens sends
100 messages a second."""

ANSWER_S = 1.0
"""The least time that a client gets to answer a ping."""


class WebSocketLink(WebSocketsSansIOProtocol):
    """One connection. A client that cannot be reached is cut: closing would wait for its
    acknowledgement, and hold its session, until TCP gives up."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lost = asyncio.Event()
        """Set once the connection is gone, however that came."""
        self._heard = asyncio.Event()
        self._heard_at = self.loop.time()

    @property
    def broken(self) -> bool:
        """Whether neither side has chosen to close it. 1011 is what a side says that got no
        answer to its pings."""
        frames = (self.conn.close_rcvd, self.conn.close_sent)
        return all(frame is None or frame.code == CloseCode.INTERNAL_ERROR for frame in frames)

    def abort(self) -> None:
        """Cut the connection without waiting for the client."""
        self.transport.abort()

    async def answers(self) -> bool:
        """Whether the client is still there. A live one tells in the time of a ping."""
        if self.lost.is_set():
            return False
        if not self.handshake_complete or self.read_paused:  # it has said what we did not read yet
            return True
        if self.ping_timer is not None:  # or else one is on its way
            self.ping_timer.cancel()
            self.send_keepalive_ping()
        self._heard.clear()
        try:
            async with asyncio.timeout_at(
                max(self._heard_at + SILENCE_S, self.loop.time() + ANSWER_S)
            ):
                await self._heard.wait()
        except TimeoutError:
            return False
        return not self.lost.is_set()

    # -- what uvicorn and asyncio call

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            cast(dict[str, Any], self.scope["extensions"])[LINK] = self

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        self._heard.set()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self._heard.set()
        super().connection_lost(exc)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            # uvicorn forgets to, and logs an error for each client that is turned away.
            self.handshake_complete = True

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.abort()
