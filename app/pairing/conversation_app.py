"""The robot's conversation app, by JSON-RPC 2.0 over ``ws://ROBOT:7860/rpc``.

One short connection for each call, so a restart of the app in between does no harm. The app also
sends what people say as notifications; we drop them unread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException

from app.access.policy import in_url
from app.pairing.steps import PairError, RobotAddress, plain

_ID = "reachy-voice"
_CONFIGURE = "backend.config"
MAX_FRAME_BYTES = 2**20
BY_HAND = "In the app: Settings -> Connection"


class AppError(PairError):
    """The app returned no result."""


@dataclass(frozen=True, slots=True)
class AppSays:
    """What we need of the app's ``conversation.status``."""

    connected: bool
    error: str = ""
    mode: str = ""
    host: str = ""
    port: int | None = None
    """``host`` and ``port``: the server that it uses in the mode ``local``."""
    waits_for_restart: bool = False
    """Its setting has no effect yet."""

    def points_at(self, address: str, port: int) -> bool:
        return self.mode == "local" and self.host == address and self.port == port


async def app_status(robot: RobotAddress, timeout_s: float) -> AppSays:
    """Raises ``AppError``."""
    return await _call(robot, "conversation.status", {}, timeout_s)


async def configure_app(
    robot: RobotAddress, parameters: Mapping[str, object], timeout_s: float
) -> AppSays:
    """``backend.config``: takes effect at once and survives a restart. Raises ``AppError``."""
    return await _call(robot, _CONFIGURE, parameters, timeout_s)


def setting(host: str, port: int) -> dict[str, object]:
    """The parameters of ``backend.config`` that point the app at a server by address."""
    return {"hf_mode": "local", "hf_host": in_url(host.strip("[]")), "hf_port": port}


def former(before: AppSays) -> dict[str, object] | None:
    """The parameters that restore its former setting; ``None``: it is unknown."""
    if before.mode == "local" and before.host and before.port:
        return setting(before.host, before.port)
    return {"hf_mode": before.mode} if before.mode == "deployed" else None


def read_status(result: Mapping[str, Any]) -> AppSays:
    """Parse a status. Raises ``ValueError``."""
    connected, port = result.get("backend_connected"), result.get("hf_direct_port")
    if not isinstance(connected, bool):
        raise ValueError("conversation.status has no backend_connected")
    keys = ("backend_error", "hf_connection_mode", "hf_direct_host", "backend_connection_state")
    texts = [value if isinstance(value := result.get(key), str) else "" for key in keys]
    error, mode, host, state = texts
    restart = state == "restart_required" or result.get("requires_restart") is True
    port = port if isinstance(port, int) else None
    return AppSays(connected, plain(error), mode, host, port, restart)


class _Connection(connect):
    """Follows no redirects, because another address is not this robot's app."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _call(
    robot: RobotAddress, method: str, parameters: Mapping[str, object], timeout_s: float
) -> AppSays:
    place = f"{in_url(robot.address)}:{robot.app_port}"
    request = {"jsonrpc": "2.0", "id": _ID, "method": method, "params": dict(parameters)}
    connection = _Connection(
        f"ws://{place}/rpc",
        proxy=None,
        open_timeout=None,
        close_timeout=1,
        max_size=MAX_FRAME_BYTES,
    )
    try:
        async with asyncio.timeout(timeout_s), connection as socket:
            await socket.send(json.dumps(request))
            while (result := _result(await socket.recv())) is None:
                pass
        if method == _CONFIGURE and result.get("ok") is not True:
            raise ValueError(f"{method} did not say ok")
        return read_status(result)
    except TimeoutError:
        raise AppError(
            f"Nothing answers at {place}",
            why="the robot is off, in another network, or behind a firewall",
            fix=f"Try: ping {robot.address}",
        ) from None
    except (ValueError, WebSocketException) as error:
        raise AppError(
            f"The app at {place} cannot be configured from here",
            why=_why(error),
            fix="Install or update the conversation app in the robot's dashboard (0.9 or newer), "
            f"or configure it by hand. {BY_HAND} -> Local",
        ) from error
    except OSError as error:
        raise AppError(
            f"No conversation app answers at {place}",
            why=error.strerror or str(error),
            fix="Start it in the robot's dashboard. A Reachy Mini Lite is paired on the machine "
            "that it is plugged into: reachy-voice pair localhost",
        ) from error


def _why(error: ValueError | WebSocketException) -> str:
    match error:
        case InvalidStatus():
            return f"HTTP {error.response.status_code}"
        case InvalidHandshake():
            return "that port does not speak WebSocket"
        case WebSocketException():
            return "the connection was lost"
        case _:
            return str(error)


def _result(frame: str | bytes) -> Mapping[str, Any] | None:
    """``None`` for a frame that does not answer our call. Raises ``ValueError``."""
    try:
        message = json.loads(frame)
    except (ValueError, RecursionError):
        raise ValueError("a frame is not JSON") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ValueError("a frame is not JSON-RPC 2.0")
    if isinstance(error := message.get("error"), dict) and message.get("id") in (_ID, None):
        raise ValueError(plain(error.get("message")))
    if message.get("id") != _ID:
        return None
    result = message.get("result")
    if not isinstance(result, dict):
        raise ValueError("the result is not an object")
    return result
