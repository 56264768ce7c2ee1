"""The robot's two programs: the conversation app, by JSON-RPC 2.0 over ``ws://ROBOT:7860/rpc``,
and the daemon, by its REST API (of reachy-mini 1.13.0).

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
from urllib.parse import quote

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException

from app.pairing.json_http import NoAnswer, ask
from app.pairing.steps import Robot, in_url, plain

CONVERSATION_APP = "reachy_mini_conversation_app"
"""The daemon's name for the app, unless the owner installed a modified version."""

METHOD_NOT_FOUND = -32601
"""JSON-RPC 2.0, 5.1."""

_ID = "reachy-voice"
MAX_FRAME_BYTES = 2**20


class Trouble(StrEnum):
    """Why the app returned no result."""

    REFUSED = "nothing listens"
    SILENT = "no answer"
    NO_RPC = "no /rpc"
    LOST = "connection lost"
    STRANGE = "not JSON-RPC"
    UNKNOWN_METHOD = "unknown method"
    PIN = "it asks for a PIN"
    ERROR = "an error"


class AppError(Exception):
    """The app returned no result."""

    def __init__(self, trouble: Trouble, detail: str = "") -> None:
        super().__init__(trouble, detail)
        self.trouble = trouble
        self.detail = detail or str(trouble)


class DaemonError(Exception):
    """``answered``: the daemon answered, but refused or sent something unexpected."""

    def __init__(self, detail: str, *, answered: bool = True) -> None:
        super().__init__(detail)
        self.detail = detail
        self.answered = answered


# --- the conversation app ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppSays:
    """The ``conversation.status`` of the app, as far as we need it.

    ``state``: connecting, connected, disconnected, waiting_for_config or restart_required.
    ``host`` and ``port``: the server that it uses in the mode ``local``.
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
        """Whether its setting has no effect yet."""
        return self.needs_restart or self.state == "restart_required"

    def points_at(self, address: str, port: int) -> bool:
        return self.mode == "local" and self.host == address and self.port == port


async def app_status(robot: Robot, timeout_s: float) -> AppSays:
    """Raises ``AppError``."""
    return _read_status(await _call(robot, "conversation.status", {}, timeout_s))


async def configure_app(
    robot: Robot, parameters: Mapping[str, object], timeout_s: float
) -> AppSays:
    """``backend.config``: takes effect at once and survives a restart. Raises ``AppError``."""
    result = await _call(robot, "backend.config", parameters, timeout_s)
    if result.get("ok") is not True:
        raise AppError(Trouble.STRANGE, "backend.config did not say ok")
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
        raise AppError(Trouble.STRANGE, "conversation.status has no backend_connected")
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
    robot: Robot, method: str, parameters: Mapping[str, object], timeout_s: float
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
        raise AppError(Trouble.NO_RPC, f"HTTP {error.response.status_code}") from error
    except InvalidHandshake as error:
        raise AppError(Trouble.NO_RPC, "that port does not speak WebSocket") from error
    except WebSocketException as error:
        raise AppError(Trouble.LOST) from error
    except OSError as error:
        raise AppError(Trouble.REFUSED, error.strerror or str(error)) from error
    return answer


def _answer(frame: str | bytes) -> Mapping[str, Any] | None:
    """The result; ``None`` for a frame that does not answer our call."""
    try:
        message = json.loads(frame)
    except (ValueError, RecursionError):
        raise AppError(Trouble.STRANGE, "a frame is not JSON") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise AppError(Trouble.STRANGE, "a frame is not JSON-RPC 2.0")
    if isinstance(error := message.get("error"), dict) and message.get("id") in (_ID, None):
        raise AppError(_refusal(error), plain(error.get("message")))
    if message.get("id") != _ID:
        return None
    result = message.get("result")
    if not isinstance(result, dict):
        raise AppError(Trouble.STRANGE, "the result is not an object")
    return result


def _refusal(error: Mapping[str, Any]) -> Trouble:
    if error.get("code") == METHOD_NOT_FOUND:
        return Trouble.UNKNOWN_METHOD
    data = error.get("data")
    asks_for_pin = isinstance(data, dict) and "pin" in str(data.get("reason"))
    return Trouble.PIN if asks_for_pin else Trouble.ERROR


# --- the daemon --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunningApp:
    """``state``: starting, running, done, stopping or error; ``error``: its last line."""

    name: str
    state: str
    error: str = ""


async def running_app(robot: Robot, timeout_s: float) -> RunningApp | None:
    """The app that is running or ended last. Raises ``DaemonError``."""
    match await _ask(robot, "GET", "current-app-status", timeout_s):
        case None:
            return None
        case {"info": {"name": str(name)}, "state": str(state), **more}:
            # Python's last line names the exception.
            lines = [line for line in str(more.get("error") or "").splitlines() if line.strip()]
            return RunningApp(plain(name), plain(state), plain(lines[-1]) if lines else "")
        case _:
            raise DaemonError("it reports the state of its app in an unknown form")


async def installed_app(robot: Robot, timeout_s: float) -> str | None:
    """The installed conversation app; a modified version counts if it is the only one. Raises
    ``DaemonError``."""
    listed = await _ask(robot, "GET", "list-available/installed", timeout_s)
    if not isinstance(listed, list):
        raise DaemonError("it lists its apps in an unknown form")
    names = [str(entry.get("name")) for entry in listed if isinstance(entry, dict)]
    if CONVERSATION_APP in names:
        return CONVERSATION_APP
    similar = [name for name in names if "conversation" in name.lower()]
    return similar[0] if len(similar) == 1 else None


async def start_app(robot: Robot, name: str, timeout_s: float, answer_s: float) -> None:
    """Raises ``DaemonError``, also if another app is running."""
    await _ask(robot, "POST", f"start-app/{quote(name, safe='')}", timeout_s, answer_s)


async def restart_app(robot: Robot, timeout_s: float, answer_s: float) -> None:
    """Restart the running or failed app; returns once it has started again. Raises
    ``DaemonError``, also if there is no app."""
    await _ask(robot, "POST", "restart-current-app", timeout_s, answer_s)


async def _ask(
    robot: Robot, method: str, path: str, timeout_s: float, answer_s: float | None = None
) -> Any:
    url = f"http://{in_url(robot.address)}:{robot.daemon_port}/api/apps/{path}"
    try:
        status, body = await ask(method, url, timeout_s, answer_s)
    except NoAnswer as error:
        raise DaemonError(error.detail, answered=False) from error
    if not 200 <= status < 300:
        detail = body.get("detail") if isinstance(body, dict) else None
        raise DaemonError(plain(detail) if isinstance(detail, str) else f"HTTP {status}")
    if isinstance(body, bytes):
        raise DaemonError("its answer is not JSON")
    return body
