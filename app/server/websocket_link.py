"""uvicorn's WebSocket, with what our sockets need from the connection below. The application finds
it as the ASGI extension ``LINK``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from app.access.api_errors import ApiError
from app.access.limits import TokenBucket

LINK = "reachy_voice.link"

SILENCE_S = 3.0
"""A client that has been silent this long, and answers no ping, is gone. A listening robot sends
100 messages a second."""

ANSWER_S = 1.0
"""Minimum time for a client to answer a ping."""

SLICE_BYTES = 4096
"""Bytes parsed before other clients get their turn: 700 frames at most, which take 5 ms."""

FRAMES_PER_S, FRAMES_BURST = 500, 3000
"""Limit for frames that are not messages (pings, pongs, small fragments); beyond it the client is
read more slowly. Three a minute are usual, and as many as ``limits.messages_per_s`` are
harmless."""

SMALL_BYTES = 1024
"""Fragments smaller than this count; larger ones are limited by their bytes."""

MAX_FRAGMENTS = 32_768
"""Most fragments per message: the largest message (32 MiB) in fragments that are not small."""

_NO_UPGRADE = ApiError(400, "invalid_request", "This is not a request for a WebSocket.").raw()


class WebSocketLink(WebSocketsSansIOProtocol):
    """One connection. An unreachable client is cut: closing would wait for its acknowledgement, and
    hold its session, until TCP gives up."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lost = asyncio.Event()
        """Set once the connection is gone, whatever the cause."""
        self._heard = asyncio.Event()
        self._heard_at = self.loop.time()
        self.on_settled: Callable[[], None] = lambda: None
        """Called when the connection has a session, or is lost."""
        self._unread = bytearray()
        """Data that has arrived but is not parsed; while there is some, nothing more is read."""
        self._feeding: asyncio.TimerHandle | None = None
        self._frames = TokenBucket(FRAMES_PER_S, FRAMES_BURST, self._heard_at)
        self._no_messages = 0
        """Frames of the current slice that are not messages."""
        self._cut: asyncio.TimerHandle | None = None

    @property
    def broken(self) -> bool:
        """Whether neither side chose to close the connection. 1011 means that a ping was not
        answered."""
        frames = (self.conn.close_rcvd, self.conn.close_sent)
        return all(frame is None or frame.code == CloseCode.INTERNAL_ERROR for frame in frames)

    def abort(self) -> None:
        """Cut the connection without waiting for the client."""
        self.transport.abort()

    async def answers(self) -> bool:
        """Whether the client is still there. A live client answers within the time of a ping."""
        if self.lost.is_set():
            return False
        if not self.handshake_complete or self.read_paused or self._unread:
            return True  # it has sent data that we have not read yet
        if self.ping_timer is not None:  # otherwise a ping is on its way
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
        if not self.handshake_initiated:
            super().data_received(data)
            if not self.handshake_initiated:
                # websockets' own limits are tighter (8 KiB for a header, no body).
                self.transport.write(b"".join(self.conn.data_to_send()) or _NO_UPGRADE)
                self.transport.close()
            return
        self._unread += data
        if self._feeding is None:
            self._feed()

    def _feed(self) -> None:
        """Parse one slice, unless the application has messages to take first."""
        self._feeding = None
        wait_s = 0.0
        if self._unread and not self.read_paused and not self.transport.is_closing():
            piece = bytes(self._unread[:SLICE_BYTES])
            del self._unread[:SLICE_BYTES]
            self._no_messages = 0
            super().data_received(piece)
            if self._no_messages:
                wait_s = self._frames.take(self.loop.time(), self._no_messages)
        self._read_on(wait_s)

    def _read_on(self, wait_s: float = 0.0) -> None:
        """After ``wait_s``, go on parsing, or resume reading. Harmless at any time."""
        if self.transport.is_closing():
            self._unread.clear()
        elif self._feeding is not None:
            self.transport.pause_reading()
        elif wait_s or (self._unread and not self.read_paused):
            self.transport.pause_reading()
            self._feeding = self.loop.call_later(wait_s, self._feed)
        elif self._unread:
            self.transport.pause_reading()
        elif not self.read_paused:
            self.transport.resume_reading()

    async def receive(self) -> Any:
        message = await super().receive()
        self._read_on()  # uvicorn has resumed reading
        return message

    def handle_ping(self) -> None:
        self._no_messages += 1
        pongs = b"".join(self.conn.data_to_send())
        # A client that does not read its pongs gets no more: they would pile up here.
        if self.writable.is_set() and not self.transport.is_closing():
            self.transport.write(pongs)

    def handle_pong(self, event: Frame) -> None:
        self._no_messages += 1
        super().handle_pong(event)

    def handle_text(self, event: Frame) -> None:
        self._count_fragment(event)
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        self._count_fragment(event)
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        self._count_fragment(event)
        if len(self.frames) < MAX_FRAGMENTS:
            super().handle_cont(event)
        elif not self.transport.is_closing():
            self._fail(CloseCode.MESSAGE_TOO_BIG, "too many fragments")

    def _count_fragment(self, event: Frame) -> None:
        if not event.fin and len(event.data) < SMALL_BYTES:
            self._no_messages += 1

    def send_receive_event_to_app(self) -> None:
        """Refuse text that is not UTF-8 here, since uvicorn logs a traceback for it."""
        try:
            if self.curr_msg_data_type == "text" and not self.close_sent:
                b"".join(self.frames).decode()
        except UnicodeDecodeError:
            self.frames = []
            self._fail(CloseCode.INVALID_DATA, "not UTF-8")
        else:
            super().send_receive_event_to_app()

    def _fail(self, code: CloseCode, reason: str) -> None:
        self.conn.fail(code, reason)
        self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is None:  # it arrived before our answer to the upgrade
            self.abort()
        else:
            super().handle_parser_exception()

    def shutdown(self) -> None:
        """uvicorn would answer a handshake with 500."""
        if not self.handshake_complete and self.initial_response is None:
            self.conn.send_response(self.conn.reject(503, "The server is shutting down.\n"))
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.handshake_complete = self.close_sent = True
        super().shutdown()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        if not self.lost.is_set():  # a client that reads nothing would keep its connection
            self._cut = self.loop.call_later(self.close_timeout, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self._heard.set()
        self._unread.clear()
        for timer in (self._feeding, self._cut):
            if timer is not None:
                timer.cancel()
        self.on_settled()
        super().connection_lost(exc)

    async def send(self, message: Any) -> None:
        if not self.handshake_complete and self.transport.is_closing():
            raise ClientDisconnected  # as uvicorn would find out a moment later
        try:
            await super().send(message)
        except RuntimeError:
            if not self.transport.is_closing():
                raise  # the application has closed it itself
            # It was cut meanwhile, for an unanswered ping, and uvicorn does not know yet.
            raise ClientDisconnected from None
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            # uvicorn forgets to, and logs an error for each client that is turned away.
            self.handshake_complete = True
        if message["type"] == "websocket.close":
            self._read_on()  # uvicorn has resumed reading

    def keepalive_timeout(self) -> None:
        if self.read_paused or self._unread:
            # Its answer may be in the data we have not read yet.
            self.pong_timer = self.loop.call_later(self.ping_timeout or 0.0, self.keepalive_timeout)
            return
        super().keepalive_timeout()
        self.abort()
