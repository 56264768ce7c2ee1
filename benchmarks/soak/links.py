"""A soak's connections: messages in both directions, checked and counted.

``AsgiLink`` runs the whole server except uvicorn in this process, in virtual time; ``SocketLink``
is a WebSocket. Every event passes through ``tests/support/conformance.py``, with a bounded memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from app.server.websocket_link import LINK
from tests.support import conformance

MAY_FAIL = "may-fail"
"""Begins the ``event_id`` of a message that the server may refuse."""
STATUSES = ("completed", "cancelled", "incomplete", "failed")
KEPT_PROBLEMS = 40
KEPT_IDS = 50
"""Ids of recent messages that may still be refused."""
LOST = "responses lost with their connection"
STUCK_S = 240.0
"""Longer than any answer takes."""


@dataclass
class Report:
    """Counts over all clients. ``problems``: the first ones, in words."""

    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def balance(self) -> None:
        """Check that each response has ended once, or lost its connection."""
        ended = sum(self.counts[f"response {status}"] for status in STATUSES)
        begun, lost = self.counts["responses"], self.counts[LOST]
        if begun != ended + lost:
            self.problem(f"{begun} responses, {ended} ends, {lost} lost with their connection")

    def problem(self, what: str) -> None:
        self.counts["problems"] += 1
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append(what[:600])


class Gone(Exception):
    """The connection is over."""


class Link:
    """One connection. ``last_item`` is the latest message, with ``audio_ms`` of audio; ``calls``
    are function calls waiting for their output."""

    def __init__(self, report: Report, *, fresh: bool = True) -> None:
        """``fresh`` False: it may resume an earlier conversation."""
        self.recorder = conformance.Recorder(whole=fresh)
        self.report = report
        self.gone = False
        self.responses: set[str] = set()
        self.last_item: str | None = None
        self.audio_ms = 0.0
        self.calls: list[dict[str, Any]] = []
        self._changed = asyncio.Event()
        self._deleted: set[str] = set()

    async def send(self, kind: str, *, may_fail: bool = False, **fields: Any) -> None:
        """Raises ``Gone``."""
        self.report.counts["sent"] += 1
        if may_fail:
            fields["event_id"] = f"{MAY_FAIL}-{self.report.counts['sent']}"
        text = json.dumps({"type": kind, **fields})
        self.recorder.sent(text)
        await self.send_text(text)

    async def send_text(self, text: str) -> None:
        raise NotImplementedError

    async def leave(self) -> None:
        """Close politely; returns when it is closed."""
        raise NotImplementedError

    async def cut(self) -> None:
        """Vanish."""
        raise NotImplementedError

    def take(self, text: str) -> None:
        """A message of the server."""
        try:
            event = self.recorder.record(text)
        except (AssertionError, ValueError, KeyError) as error:
            event = json.loads(text)
            self.report.problem(f"{type(error).__name__}: {error} at {event['type']}")
        del self.recorder.events[1:]  # the first one matters
        self.report.counts["events"] += 1
        self._fold(event)
        self.wake()

    def lost(self) -> None:
        """The connection is over."""
        if not self.gone:
            self.report.counts[LOST] += len(self.responses)
        self.gone = True
        self.wake()

    def wake(self) -> None:
        """Wake all waiters to check again."""
        self._changed.set()

    async def until(self, what: Callable[[], bool], timeout_s: float) -> bool:
        """Whether the condition becomes true in time. Raises ``Gone``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not what():
                    if self.gone:
                        raise Gone
                    self._changed.clear()
                    await self._changed.wait()
        return what()

    async def until_silent(self) -> None:
        """Wait until no response runs; one that does not end is a problem. Raises ``Gone``."""
        if not await self.until(lambda: not self.responses, STUCK_S):
            self.report.problem(f"{self.responses} did not end within {STUCK_S:.0f} s")
            self.responses.clear()

    def finish(self) -> None:
        """The connection is idle: everything opened must be closed."""
        try:
            self.recorder.finish()
        except AssertionError as error:
            self.report.problem(f"at the end: {error}")

    def forget(self) -> None:
        """Drop ids that the checks would keep for ever, once they cannot be referred to any more:
        items that were already deleted at the last call."""
        recorder = self.recorder
        recorder._ids.clear()
        told: dict[str, Any] = recorder._told or {}
        for event_id in list(told)[:-KEPT_IDS]:
            del told[event_id]
        if (known := recorder._conversation) is not None:
            known._over.clear()
            known._deleted -= self._deleted
            self._deleted = set(known._deleted)
            kept = {*known._items, *known._deleted, known._speech}
            kept.update(*(response.heard_before for response in known._active.values()))
            known._outputs &= kept
            known._speeches &= kept
            known._committed = {k: v for k, v in known._committed.items() if k in kept}

    def _fold(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "response.created":
                self.report.counts["responses"] += 1
                self.responses.add(event["response"]["id"])
            case "response.done":
                response = event["response"]
                self.responses.discard(response["id"])
                self.report.counts[f"response {response['status']}"] += 1
                calls = [item for item in response["output"] if item["type"] == "function_call"]
                self.calls += [call for call in calls if call["status"] == "completed"]
            case "response.output_item.added" if event["item"]["type"] == "message":
                self.last_item, self.audio_ms = event["item"]["id"], 0.0
            case "response.output_audio.delta" | "response.audio.delta":
                self.audio_ms += len(event["delta"]) * 3 / 4 / 2 / 24
                self.report.counts["audio deltas"] += 1
            case "error":
                error = event["error"]
                self.report.counts[f"refused: {error['code']}"] += 1
                if not str(error["event_id"]).startswith(MAY_FAIL):
                    self.report.problem(f"error {error['code']}: {error['message']}")
            case "input_audio_buffer.speech_started":
                self.report.counts["user turns"] += 1


# --- in this process ---------------------------------------------------------------------------


class _Wire:
    """The part of ``app.server.websocket_link.WebSocketLink`` that the application uses."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.broken = False
        self.close_timeout = 1.0
        self.on_settled: Callable[[], None] = lambda: None

    def abort(self) -> None:
        self.broken = True
        self.lost.set()

    async def answers(self) -> bool:
        return not self.lost.is_set()


class AsgiLink(Link):
    """``serve`` it in a task. The server reads one message at a time, and the client waits
    meanwhile, as with a full TCP window."""

    def __init__(self, report: Report, key: str, query: str, *, fresh: bool) -> None:
        super().__init__(report, fresh=fresh)
        self._wire = _Wire()
        self._unread: asyncio.Queue[dict[str, Any]] = asyncio.Queue(4)
        self._unread.put_nowait({"type": "websocket.connect"})
        self._ended = asyncio.Event()
        headers = [(b"host", b"127.0.0.1:8765"), (b"authorization", f"Bearer {key}".encode())]
        self._scope = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "ws",
            "path": "/v1/realtime",
            "raw_path": b"/v1/realtime",
            "root_path": "",
            "query_string": query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8765),
            "subprotocols": [],
            "extensions": {LINK: self._wire, "websocket.http.response": {}},
        }

    async def serve(self, app: Starlette) -> None:
        try:
            await app(self._scope, self._unread.get, self._sent)
        except Exception as error:
            self.report.problem(f"the server raised {type(error).__name__}: {error}")
        finally:
            self._wire.lost.set()
            self._ended.set()
            self.lost()
            while not self._unread.empty():  # unblocks a client that waits to send
                self._unread.get_nowait()

    async def _sent(self, message: Any) -> None:
        if message["type"] == "websocket.send":
            if not self._wire.lost.is_set():
                self.take(message["text"])
        elif message["type"] == "websocket.close":
            if message["code"] not in (1000, 1001):
                self.report.problem(f"closed with {message['code']}: {message.get('reason')}")
            self.lost()
        elif message["type"] == "websocket.http.response.start":
            self.report.problem(f"refused with {message['status']}")
            self.lost()

    async def send_text(self, text: str) -> None:
        if self.gone:
            raise Gone
        await self._unread.put({"type": "websocket.receive", "text": text})

    async def leave(self) -> None:
        await self._unread.put({"type": "websocket.disconnect", "code": 1000})
        await self._ended.wait()

    async def cut(self) -> None:
        self._wire.abort()
        await self._ended.wait()


# --- over a socket -----------------------------------------------------------------------------


class SocketLink(Link):
    """``serve`` it in a task."""

    def __init__(self, report: Report, socket: ClientConnection, *, fresh: bool) -> None:
        super().__init__(report, fresh=fresh)
        self._socket = socket

    async def serve(self) -> None:
        try:
            async for text in self._socket:
                assert isinstance(text, str)
                self.take(text)
        except ConnectionClosed as closed:
            if closed.rcvd and closed.rcvd.code not in (1000, 1001):
                self.report.problem(f"closed with {closed.rcvd.code}: {closed.rcvd.reason}")
        finally:
            self.lost()

    async def send_text(self, text: str) -> None:
        try:
            await self._socket.send(text)
        except ConnectionClosed:
            raise Gone from None

    async def leave(self) -> None:
        await self._socket.close()

    async def cut(self) -> None:
        self._socket.transport.abort()
        await self._socket.wait_closed()
