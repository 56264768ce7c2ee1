"""One WebSocket, one protocol, one session: the only file that knows both ends.

Three tasks in one group: the session, events -> socket, socket -> session. When one of them ends,
all do; a client that vanishes stops its reply at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect

from pipeline.commands import Command, SessionConfig
from pipeline.events import Bus, TooSlow
from pipeline.realtime import wire
from pipeline.realtime.protocol import RealtimeConnection
from pipeline.realtime.session_config import SessionDefaults

MODEL = "reachy-voice"
"""What the whole cascade is called where the API wants the name of a model."""

LARGE_MESSAGE_CHARS = 256 * 1024
"""Longer messages (images, whole recordings) are decoded in a thread."""

SEND_STALL_S = 10.0
"""A client that takes nothing for this long is too slow. Robots were seen to pause for 4 s."""

HANG_UP_S = 1.0
"""How long a full socket gets to take the close frame before it is cut."""

ABORT = "reachy_voice.abort"
"""ASGI extension of our server: cuts the connection without waiting for the client."""

GOING_AWAY, POLICY, INTERNAL = 1001, 1008, 1011
"""Close codes of RFC 6455. 1008 is a full server or a client too slow to follow."""

logger = logging.getLogger(__name__)


class SessionLike(Protocol):
    """A conversation that publishes on the bus it was made with."""

    async def run(self) -> None:
        """Work until cancelled; clean up then."""
        ...

    async def submit(self, command: Command) -> None:
        """Take one command. Must not wait for an engine: pings are answered in between."""
        ...


class Assistant(Protocol):
    """What the server needs of the assembled assistant."""

    def defaults(self) -> SessionDefaults:
        """What a session is at first; only asked for while every engine is ready."""
        ...

    def session(self, bus: Bus, config: SessionConfig) -> SessionLike: ...

    def readiness(self) -> Mapping[str, str | None]:
        """Each engine's name, and why it is not ready; ``None`` when it is."""
        ...

    async def idle(self) -> None:
        """Return when no reply is under way."""
        ...


class _Closed(Exception):
    """The server ends this connection."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class RealtimeSocket:
    """Serves one accepted WebSocket until either side ends it."""

    def __init__(self, websocket: WebSocket, assistant: Assistant) -> None:
        query = websocket.query_params
        defaults = assistant.defaults()
        defaults = replace(defaults, model=query.get("model") or defaults.model)
        bus = Bus()
        self._events = bus.subscribe(lossless=True)
        self._protocol = RealtimeConnection(
            defaults, _id_source(), time.time, timings=query.get("timings") == "true"
        )
        self._session = assistant.session(bus, self._protocol.config)
        self._websocket = websocket
        self._sending = asyncio.Lock()
        self._closed = _Closed(GOING_AWAY, "")

    def close(self, code: int, reason: str) -> None:
        """Send what has happened so far, then close with ``code`` and let ``serve`` return."""
        self._closed = _Closed(code, reason)
        self._events.close()

    async def serve(self) -> None:
        closed: _Closed | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._session.run())
                tasks.create_task(self._send_events())
                await self._receive()
        except* WebSocketDisconnect:
            pass
        except* _Closed as group:
            closed = _first(group)
        except* TooSlow:
            closed = _Closed(POLICY, "client too slow")
        except* Exception:
            logger.exception("A session failed")
            closed = _Closed(INTERNAL, "internal error")
        if closed is not None:
            await hang_up(self._websocket, closed.code, closed.reason)

    async def _receive(self) -> None:
        await self._flush()
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", 1006))
            frame = message.get("text")
            for command in await self._commands(message["bytes"] if frame is None else frame):
                await self._session.submit(command)
            await self._flush()

    async def _commands(self, frame: str | bytes) -> list[Command]:
        if len(frame) <= LARGE_MESSAGE_CHARS:
            return self._protocol.receive(frame)
        try:
            message = await asyncio.to_thread(wire.parse, frame)
        except wire.WireError as error:
            self._protocol.refuse(error)
            return []
        return self._protocol.receive_parsed(message)

    async def _send_events(self) -> None:
        async for _, event in self._events:
            self._protocol.apply(event)
            await self._flush()
        raise self._closed  # only ``close`` ends the events

    async def _flush(self) -> None:
        """Send what is queued, in order; both directions call this."""
        async with self._sending:
            for text in self._protocol.messages_to_send():
                try:
                    async with asyncio.timeout(SEND_STALL_S):
                        await self._websocket.send_text(text)
                except TimeoutError:
                    raise TooSlow(f"nothing taken for {SEND_STALL_S} s") from None
                await asyncio.sleep(0)  # a long burst lets other clients in between


async def hang_up(websocket: WebSocket, code: int, reason: str) -> None:
    """Close politely, or cut the connection if the client does not even take that."""
    try:
        async with asyncio.timeout(HANG_UP_S):
            await websocket.close(code, reason)
    except (WebSocketDisconnect, RuntimeError):
        pass  # it went first
    except TimeoutError:
        abort: Callable[[], None] | None = websocket.scope.get("extensions", {}).get(ABORT)
        if abort is not None:
            abort()


async def accept(websocket: WebSocket) -> None:
    """Complete the upgrade; of the subprotocols a browser offers, ``realtime`` is selected."""
    offered = websocket.scope.get("subprotocols", ())
    await websocket.accept("realtime" if "realtime" in offered else None)


async def turn_away(websocket: WebSocket, code: str, message: str) -> None:
    """Accept, say why not in an ``error`` event, close with 1008."""
    error = {"type": "invalid_request_error", "code": code, "message": message}
    event = {"type": "error", "event_id": _id_source()("event"), "error": error}
    await accept(websocket)
    with contextlib.suppress(WebSocketDisconnect):
        await websocket.send_text(wire.encode(event))
    await hang_up(websocket, POLICY, code)


def _first(group: BaseExceptionGroup[_Closed]) -> _Closed:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _id_source() -> Callable[[str], str]:
    """Ids that are unique among all connections, and cheap."""
    base = secrets.token_hex(8)
    numbers = itertools.count()
    return lambda prefix: f"{prefix}_{base}{next(numbers):x}"
