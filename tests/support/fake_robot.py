"""A Reachy Mini on loopback: its conversation app with ``/rpc``, and a port for its daemon.

The shapes are those of reachy-mini 1.13.0 (``apps/jsonrpc_server.py``) and of the conversation app
0.10. When given a server, it connects as the app does: from its own address, with OpenAI's client
and an immediate ``session.update``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from openai import AsyncOpenAI
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.clients.robot_app import session_of
from tests.support.far_server import free_port, listening

ADDRESS = "127.0.0.2"
"""Differs from 127.0.0.1, the address of this machine's own programs."""

HOSTED = "deployed"


@dataclass
class Manner:
    """How this robot behaves."""

    rpc: dict[str, Literal["silent", "close", "garbage", "other", "no result"] | dict[str, Any]] = (
        field(default_factory=dict)
    )
    """Outcome of a call, by method, or ``*`` for all."""
    upgrade: int | None = None
    """The HTTP status with which ``/rpc`` refuses."""
    blocked: str | None = None
    """The app cannot connect and shows this error."""
    dies: bool = False
    """The app answers nothing after the setting."""
    needs_restart: bool = False


class FakeRobot:
    """Start it with ``fake_robot``."""

    def __init__(self, manner: Manner, address: str) -> None:
        self.manner = manner
        self.address = address
        self.app_port = free_port(address)
        self.daemon_port = free_port(address)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.mode, self.ws_url = HOSTED, ""
        self.connected = False
        self.state = "connecting"
        self.error: str | None = None
        self._talking: list[asyncio.Task[None]] = []
        self._app: contextlib.AsyncExitStack | None = None

    # --- its computer --------------------------------------------------------------------------

    async def run_app(self) -> None:
        if self._app is None:
            app = Starlette(routes=[WebSocketRoute("/rpc", self._rpc)])
            serving = listening(app, self.address, self.app_port, ws="websockets-sansio")
            self._app = contextlib.AsyncExitStack()
            await self._app.enter_async_context(serving)

    async def stop_app(self) -> None:
        self._hang_up()
        await asyncio.gather(*self._talking, return_exceptions=True)
        if self._app is not None:
            await self._app.aclose()
        self._app = None

    def _hang_up(self) -> None:
        for task in self._talking:
            task.cancel()

    async def restart_app(self) -> None:
        """Restart it, as a person would by hand."""
        await self.stop_app()
        self.manner.needs_restart = False
        await self.run_app()
        self._reconnect()

    # --- the app's remote control --------------------------------------------------------------

    async def _rpc(self, websocket: WebSocket) -> None:
        if self.manner.upgrade is not None:
            await websocket.send_denial_response(Response(status_code=self.manner.upgrade))
            return
        await websocket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                request = json.loads(await websocket.receive_text())
                await self._answer(websocket, request)

    async def _answer(self, websocket: WebSocket, request: dict[str, Any]) -> None:
        method, parameters = request["method"], request["params"]
        self.calls.append((method, parameters))
        said = {"role": "user", "text": "a secret", "final": True}
        note = {"jsonrpc": "2.0", "method": "conversation.transcript", "params": said}
        await websocket.send_text(json.dumps(note))
        frame = {"jsonrpc": "2.0", "id": request["id"]}
        mood = self.manner.rpc.get(method) or self.manner.rpc.get("*")
        match mood:
            case "silent":
                await websocket.receive_text()  # until the caller gives up
            case "close":
                await websocket.close(1011)
                raise WebSocketDisconnect(1011)
            case "garbage":
                await websocket.send_text("hello?")
            case "other":
                await websocket.send_text(json.dumps({"type": "daemon_status"}))
            case "no result":
                await websocket.send_text(json.dumps({**frame, "result": None}))
            case dict():
                await websocket.send_text(json.dumps({**frame, **mood}))
            case None:
                result = self._do(method, parameters)
                answer = {"result": result} if result is not None else unknown_method(method)
                await websocket.send_text(json.dumps({**frame, **answer}))

    def _do(self, method: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
        if method == "conversation.status":
            return self._shown()
        if method == "backend.config":
            self._configure(parameters)
            return {"ok": True, "message": "Connection saved.", **self._shown()}
        return None

    def _shown(self) -> dict[str, Any]:
        target = urlsplit(self.ws_url)
        return {
            "backend": "huggingface",
            "has_key": True,
            "has_hf_session_url": True,
            "has_hf_ws_url": bool(self.ws_url),
            "has_hf_connection": True,
            "hf_connection_mode": self.mode,
            "hf_direct_host": target.hostname,
            "hf_direct_port": target.port,
            "can_proceed": True,
            "can_proceed_with_hf": True,
            "requires_restart": self.manner.needs_restart,
            "backend_connected": self.connected,
            "backend_connection_state": "connected" if self.connected else self.state,
            "backend_error": None if self.connected else self.error,
        }

    # --- the app's conversation ----------------------------------------------------------------

    def _configure(self, parameters: dict[str, Any]) -> None:
        if self.manner.dies:
            self.manner.rpc["*"] = "close"
            return
        self.mode = parameters["hf_mode"]
        if self.mode == "local":
            self.ws_url = f"ws://{parameters['hf_host']}:{parameters['hf_port']}/v1/realtime"
        if self.manner.needs_restart:
            self.state = "restart_required"
        else:
            self._reconnect()

    def _reconnect(self) -> None:
        self._hang_up()
        self.state, self.error = "connecting", None
        if self.mode == "local":
            self._talking.append(asyncio.create_task(self._talk()))

    async def _talk(self) -> None:
        if self.manner.blocked is not None:
            self.state, self.error = "disconnected", self.manner.blocked or None
            return
        base = self.ws_url.removesuffix("/realtime")
        client = AsyncOpenAI(
            api_key="DUMMY", base_url=base.replace("ws://", "http://"), websocket_base_url=base
        )
        options: Any = {"local_addr": (self.address, 0), "max_size": 2**20, "proxy": None}
        try:
            async with (
                client,
                client.realtime.connect(websocket_connection_options=options) as connection,
            ):
                self.connected = True
                asked: Any = {"type": "realtime", **session_of([], "You are Reachy Mini.")}
                await connection.session.update(session=asked)
                while True:
                    await connection.recv_bytes()
        except Exception as error:  # the app shows any error
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.connected, self.state = False, "disconnected"


def unknown_method(method: str) -> dict[str, Any]:
    """The error as reachy-mini's ``JsonRpcServer`` words it."""
    data = {"reason": "method_not_found"}
    return {"error": {"code": -32601, "message": f"unknown method: {method}", "data": data}}


def refusal(reason: str, message: str, code: int = -32602) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "data": {"reason": reason}}}


@asynccontextmanager
async def fake_robot(
    manner: Manner | None = None,
    *,
    address: str = ADDRESS,
    app: bool = True,
    daemon: bool = True,
) -> AsyncIterator[FakeRobot]:
    """A robot. ``app``: its conversation app runs. ``daemon``: its daemon can be reached; that of a
    Reachy Mini Lite on another machine cannot."""
    robot = FakeRobot(manner or Manner(), address)
    async with contextlib.AsyncExitStack() as stack:
        if daemon:
            await stack.enter_async_context(listening(Starlette(), address, robot.daemon_port))
        stack.push_async_callback(robot.stop_app)
        if app:
            await robot.run_app()
        yield robot
