"""The robot's conversation app, by JSON-RPC 2.0 over ``ws://ROBOT:7860/rpc``.

One short connection for each call, so a restart of the app in between does no harm. The app also
sends what people say as notifications; we drop them unread.
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

from app.access.policy import in_url
from app.pairing.steps import RobotAddress, plain

_ID = "reachy-voice"
MAX_FRAME_BYTES = 2**20


class Trouble(StrEnum):
    """Why the app returned no result."""

    REFUSED = "nothing listens"
    SILENT = "no answer"
    UNUSABLE = "not as expected"


class AppError(Exception):
    """The app returned no result."""

    def __init__(self, trouble: Trouble, detail: str = "") -> None:
        super().__init__(trouble, detail)
        self.trouble = trouble
        self.detail = detail or str(trouble)


@dataclass(frozen=True, slots=True)
class AppSays:
    """What we need of the app's ``conversation.status``."""

    connected: bool
    state: str = ""
    """connecting, connected, disconnected, waiting_for_config or restart_required."""
    error: str = ""
    mode: str = ""
    host: str = ""
    port: int | None = None
    """``host`` and ``port``: the server that it uses in the mode ``local``."""
    needs_restart: bool = False

    @property
    def waits_for_restart(self) -> bool:
        """Whether its setting has no effect yet."""
        return self.needs_restart or self.state == "restart_required"

    def points_at(self, address: str, port: int) -> bool:
        return self.mode == "local" and self.host == address and self.port == port


async def app_status(robot: RobotAddress, timeout_s: float) -> AppSays:
    """Raises ``AppError``."""
    return _read_status(await _call(robot, "conversation.status", {}, timeout_s))


async def configure_app(
    robot: RobotAddress, parameters: Mapping[str, object], timeout_s: float
) -> AppSays:
    """``backend.config``: takes effect at once and survives a restart. Raises ``AppError``."""
    result = await _call(robot, "backend.config", parameters, timeout_s)
    if result.get("ok") is not True:
        raise AppError(Trouble.UNUSABLE, "backend.config did not say ok")
    return _read_status(result)


def setting(host: str, port: int) -> dict[str, object]:
    """The parameters of ``backend.config`` that point the app at a server by address."""
    return {"hf_mode": "local", "hf_host": in_url(host.strip("[]")), "hf_port": port}


def former(before: AppSays) -> dict[str, object] | None:
    """The parameters that restore its former setting; ``None``: it is unknown."""
    if before.mode == "local" and before.host and before.port:
        return setting(before.host, before.port)
    return {"hf_mode": before.mode} if before.mode == "deployed" else None


def _read_status(result: Mapping[str, Any]) -> AppSays:
    connected = result.get("backend_connected")
    if not isinstance(connected, bool):
        raise AppError(Trouble.UNUSABLE, "conversation.status has no backend_connected")
    port = result.get("hf_direct_port")
    return AppSays(
        connected,
        _text(result, "backend_connection_state"),
        plain(_text(result, "backend_error")),
        _text(result, "hf_connection_mode"),
        _text(result, "hf_direct_host"),
        port if isinstance(port, int) else None,
        result.get("requires_restart") is True,
    )


def _text(result: Mapping[str, Any], key: str) -> str:
    value = result.get(key)
    return value if isinstance(value, str) else ""


class _Connection(connect):
    """Follows no redirects, because another address is not this robot's app."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _call(
    robot: RobotAddress, method: str, parameters: Mapping[str, object], timeout_s: float
) -> Mapping[str, Any]:
    url = f"ws://{in_url(robot.address)}:{robot.app_port}/rpc"
    request = {"jsonrpc": "2.0", "id": _ID, "method": method, "params": dict(parameters)}
    connection = _Connection(
        url, proxy=None, open_timeout=None, close_timeout=1, max_size=MAX_FRAME_BYTES
    )
    try:
        async with asyncio.timeout(timeout_s), connection as socket:
            await socket.send(json.dumps(request))
            while (answer := _answer(await socket.recv())) is None:
                pass
    except TimeoutError:
        raise AppError(Trouble.SILENT) from None
    except InvalidStatus as error:
        raise AppError(Trouble.UNUSABLE, f"HTTP {error.response.status_code}") from error
    except InvalidHandshake as error:
        raise AppError(Trouble.UNUSABLE, "that port does not speak WebSocket") from error
    except WebSocketException as error:
        raise AppError(Trouble.UNUSABLE, "the connection was lost") from error
    except OSError as error:
        raise AppError(Trouble.REFUSED, error.strerror or str(error)) from error
    return answer


def _answer(frame: str | bytes) -> Mapping[str, Any] | None:
    """The result; ``None`` for a frame that does not answer our call."""
    try:
        message = json.loads(frame)
    except (ValueError, RecursionError):
        raise AppError(Trouble.UNUSABLE, "a frame is not JSON") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise AppError(Trouble.UNUSABLE, "a frame is not JSON-RPC 2.0")
    if isinstance(error := message.get("error"), dict) and message.get("id") in (_ID, None):
        raise AppError(Trouble.UNUSABLE, plain(error.get("message")))
    if message.get("id") != _ID:
        return None
    result = message.get("result")
    if not isinstance(result, dict):
        raise AppError(Trouble.UNUSABLE, "the result is not an object")
    return result
