"""The conversation app's remote control: JSON-RPC 2.0 over ``ws://ROBOT:7860/rpc``.

One short connection for each call: nothing is left open, and an app that restarts in between does
no harm. The app also pushes what people say as notifications; those are dropped unread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException

from app.pairing.steps import Robot, in_url, plain, read_json

METHOD_NOT_FOUND = -32601
"""JSON-RPC 2.0, 5.1."""

_ID = "reachy-voice"
MAX_FRAME_BYTES = 2**20


class Trouble(StrEnum):
    """Why there is no answer."""

    REFUSED = "nothing listens"
    SILENT = "no answer"
    NO_RPC = "no /rpc"
    LOST = "connection lost"
    STRANGE = "not JSON-RPC"


class RpcFailed(Exception):
    """No answer came."""

    def __init__(self, trouble: Trouble, detail: str = "") -> None:
        super().__init__(trouble, detail)
        self.trouble = trouble
        self.detail = detail


class RpcRefused(Exception):
    """The app answered with an error; ``reason`` is its stable name for it, where it has one."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(code, reason, message)
        self.code = code
        self.reason = reason
        self.message = message

    @property
    def unknown_method(self) -> bool:
        """Another app, or another version."""
        return self.code == METHOD_NOT_FOUND


@dataclass(frozen=True, slots=True)
class AppSays:
    """The ``conversation.status`` of the app, as far as it matters here.

    ``state``: connecting, connected, disconnected, waiting_for_config or restart_required.
    ``host`` and ``port``: where it connects to in the mode ``local``.
    """

    connected: bool
    state: str = ""
    error: str = ""
    mode: str = ""
    host: str = ""
    port: int | None = None
    needs_restart: bool = False

    @property
    def waits_for_restart(self) -> bool:
        """Its setting has no effect yet."""
        return self.needs_restart or self.state == "restart_required"

    def points_at(self, address: str, port: int) -> bool:
        """Whether its setting is that address and port."""
        return self.mode == "local" and self.host == address and self.port == port


def read_status(result: Mapping[str, Any]) -> AppSays:
    """Raises ``RpcFailed`` if that is not the status of a conversation app."""
    connected = result.get("backend_connected")
    if not isinstance(connected, bool):
        raise RpcFailed(Trouble.STRANGE, "conversation.status has no backend_connected")
    port = result.get("hf_direct_port")
    return AppSays(
        connected,
        _text(result, "backend_connection_state"),
        plain(_text(result, "backend_error")),
        _text(result, "hf_connection_mode"),
        _text(result, "hf_direct_host"),
        port if isinstance(port, int) and not isinstance(port, bool) else None,
        result.get("requires_restart") is True,
    )


def _text(result: Mapping[str, Any], key: str) -> str:
    value = result.get(key)
    return value if isinstance(value, str) else ""


def setting(host: str, port: int) -> dict[str, object]:
    """The parameters of ``backend.config`` that point the app at a server by address."""
    bare = host.strip("[]")
    return {"hf_mode": "local", "hf_host": f"[{bare}]" if ":" in bare else bare, "hf_port": port}


def former(before: AppSays) -> dict[str, object] | None:
    """The parameters that bring back what it was set to; ``None``: that is not known."""
    if before.mode == "local" and before.host and before.port:
        return setting(before.host, before.port)
    return {"hf_mode": before.mode} if before.mode == "deployed" else None


class _Connection(connect):
    """With this robot only: what another address answers does not come from its app."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class AppRpc:
    """The app of one robot. ``timeout_s`` is for a whole call."""

    def __init__(self, robot: Robot, timeout_s: float) -> None:
        self.url = f"ws://{in_url(robot.address)}:{robot.app_port}/rpc"
        self._timeout_s = timeout_s

    async def status(self) -> AppSays:
        """Raises ``RpcFailed`` and ``RpcRefused``."""
        return read_status(await self.call("conversation.status", {}))

    async def configure(self, parameters: Mapping[str, object]) -> AppSays:
        """``backend.config``: takes effect at once and survives a restart. Raises ``RpcFailed``
        and ``RpcRefused``."""
        result = await self.call("backend.config", parameters)
        if result.get("ok") is not True:
            raise RpcFailed(Trouble.STRANGE, "backend.config did not say ok")
        return read_status(result)

    async def call(self, method: str, parameters: Mapping[str, object]) -> Mapping[str, Any]:
        """The result of one call. Raises ``RpcFailed`` and ``RpcRefused``."""
        request = {"jsonrpc": "2.0", "id": _ID, "method": method, "params": dict(parameters)}
        try:
            async with asyncio.timeout(self._timeout_s):
                async with _Connection(
                    self.url,
                    proxy=None,
                    open_timeout=None,
                    close_timeout=1,
                    max_size=MAX_FRAME_BYTES,
                ) as socket:
                    await socket.send(json.dumps(request))
                    while (answer := _answer(await socket.recv())) is None:
                        pass
        except TimeoutError:
            raise RpcFailed(Trouble.SILENT) from None
        except InvalidStatus as error:
            status = error.response.status_code
            raise RpcFailed(Trouble.NO_RPC, f"HTTP {status}") from error
        except InvalidHandshake as error:
            raise RpcFailed(Trouble.NO_RPC, "that port speaks no WebSocket") from error
        except WebSocketException as error:
            raise RpcFailed(Trouble.LOST) from error
        except OSError as error:
            raise RpcFailed(Trouble.REFUSED, error.strerror or str(error)) from error
        return answer


def _answer(frame: str | bytes) -> Mapping[str, Any] | None:
    """The result; ``None`` for what is not our answer."""
    try:
        message = read_json(frame)
    except ValueError:
        raise RpcFailed(Trouble.STRANGE, "a frame is not JSON") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise RpcFailed(Trouble.STRANGE, "a frame is not JSON-RPC 2.0")
    if isinstance(error := message.get("error"), dict) and message.get("id") in (_ID, None):
        data = error.get("data")
        reason = data.get("reason") if isinstance(data, dict) else ""
        code = error.get("code")
        raise RpcRefused(
            code if isinstance(code, int) else 0, plain(reason or ""), plain(error.get("message"))
        )
    if message.get("id") != _ID:
        return None
    result = message.get("result")
    if not isinstance(result, dict):
        raise RpcFailed(Trouble.STRANGE, "the result is no object")
    return result
