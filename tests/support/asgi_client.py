"""A client of the whole server except uvicorn, in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette

from app.server.websocket_link import LINK
from tests.support.conformance import Recorder


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


class AsgiClient:
    """``serve`` it in a task. It may go on with an earlier conversation."""

    def __init__(self, key: str) -> None:
        self.completed = 0
        self.gone = False
        self._recorder = Recorder(whole=False)
        self._changed = asyncio.Event()
        self._wire = _Wire()
        self._unread: asyncio.Queue[dict[str, Any]] = asyncio.Queue(4)
        self._unread.put_nowait({"type": "websocket.connect"})
        self._ended = asyncio.Event()
        headers = [(b"host", b"127.0.0.1:8765"), (b"authorization", f"Bearer {key}".encode())]
        self._scope = {
            "type": "websocket",
            "scheme": "ws",
            "http_version": "1.1",
            "query_string": b"",
            "path": "/v1/realtime",
            "raw_path": b"/v1/realtime",
            "root_path": "",
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8765),
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "headers": headers,
            "subprotocols": [],
            "extensions": {LINK: self._wire, "websocket.http.response": {}},
        }

    async def serve(self, app: Starlette) -> None:
        try:
            await app(self._scope, self._unread.get, self._receive)
        finally:
            self._wire.lost.set()
            self._ended.set()
            self._lose()

    async def _receive(self, message: Any) -> None:
        assert message["type"] != "websocket.http.response.start", message
        if message["type"] == "websocket.close":
            self._lose()
        elif message["type"] == "websocket.send" and not self._wire.lost.is_set():
            event = self._recorder.record(message["text"])
            if event["type"] == "response.done":
                self.completed += event["response"]["status"] == "completed"
            self._changed.set()

    def _lose(self) -> None:
        self.gone = True
        self._changed.set()

    async def send(self, kind: str, **fields: Any) -> None:
        text = json.dumps({"type": kind, **fields})
        self._recorder.sent(text)
        await self._unread.put({"type": "websocket.receive", "text": text})

    async def until_completed(self, count: int) -> None:
        while self.completed < count:
            assert not self.gone
            self._changed.clear()
            await self._changed.wait()

    async def leave(self) -> None:
        """Close properly."""
        await self._unread.put({"type": "websocket.disconnect", "code": 1000})
        await self._ended.wait()

    async def cut(self) -> None:
        """Lose the connection."""
        self._wire.abort()
        await self._ended.wait()
