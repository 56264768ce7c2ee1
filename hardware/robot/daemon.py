"""A client for the parts of a Reachy Mini's daemon that a body needs (reachy-mini 1.13.0).

REST with JSON under ``/api``, and one WebSocket for targets. Angles in radians, lengths in metres.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal

from hardware.daemon_url import daemon_url
from hardware.robot.errors import Problem, RobotError, robot_error
from hardware.robot.poses import Pose
from pipeline.errors import text_of

if TYPE_CHECKING:
    import httpx
    from websockets.asyncio.client import ClientConnection

ANSWER_S = 2.0
"""The longest wait for an answer, for a connection, or for space in its send buffer."""
PING_S = 2.0
"""A daemon that vanishes silently (Wi-Fi, power) is noticed after twice this."""

_OTHER = "what answers there is no daemon of a Reachy Mini"

MotorMode = Literal["enabled", "disabled", "gravity_compensation"]


@asynccontextmanager
async def open_daemon(url: str) -> AsyncIterator[Daemon]:
    """The daemon at ``url`` (``http://HOST:PORT``, or ``HOST:PORT``); sends nothing yet.

    Raises ``RobotError`` for any other URL.
    """
    try:
        base = daemon_url(url)
        open_client = await asyncio.to_thread(_client, base)
    except ValueError as error:
        raise robot_error("not found", url, str(error)) from error
    async with open_client as client:
        yield Daemon(url, base, client)


def _client(base: str) -> httpx.AsyncClient:
    import anyio
    import httpx
    import websockets.asyncio.client  # noqa: F401  (here, not on the loop: it reads files)

    anyio.run(anyio.sleep, 0)  # imports what httpx's first request would import on the loop
    # The robot is on the local network: an Internet proxy would not find it. Without TLS, skip
    # loading certificates on every attempt.
    verify = base.startswith("https:")
    try:
        return httpx.AsyncClient(
            base_url=f"{base}/api/", timeout=ANSWER_S, trust_env=False, verify=verify
        )
    except httpx.InvalidURL as error:
        raise ValueError(f"robot.url is not a URL: {error}") from error


class Daemon:
    """Every call may raise ``RobotError``: not found (no answer), not ready, lost (too late, or
    disconnected), or refuses."""

    def __init__(self, url: str, base: str, client: httpx.AsyncClient) -> None:
        self.url = url
        self._base = base
        self._client = client

    async def check(self) -> None:
        """Raise unless this is a Reachy Mini's daemon and its robot is running."""
        answer = await self._get("daemon/status")
        if not isinstance(answer, dict) or "state" not in answer:
            raise self.error("not found", _OTHER)
        if answer["state"] != "running":
            why = answer.get("error") or f"its state is {answer['state']}"
            raise self.error("not ready", str(why))

    async def pose(self) -> Pose:
        """The robot's current pose."""
        answer = await self._get("state/full")
        with self._known_form("pose"):
            head = {key: float(answer["head_pose"][key]) for key in _HEAD_KEYS}
            right, left = (float(angle) for angle in answer["antennas_position"])
            body_yaw = float(answer["body_yaw"])
            pose = Pose(
                neck_yaw=head.pop("yaw") - body_yaw,
                body_yaw=body_yaw,
                right_antenna=right,
                left_antenna=left,
                **head,
            )
        if not all(map(math.isfinite, pose)):
            raise self.error("not ready", "it does not know its own pose")
        return pose

    async def motors(self) -> MotorMode:
        answer = await self._get("motors/status")
        with self._known_form("motors"):
            mode: MotorMode = answer["mode"]
        return mode

    async def set_motors(self, mode: MotorMode) -> None:
        await self._ask("POST", f"motors/set_mode/{mode}")

    async def holder(self) -> str | None:
        """The name of the app or remote client that holds the robot exclusively, if any."""
        lock = await self._get("daemon/robot-app-lock-status", none_if_unknown=True)
        if lock is not None:
            with self._known_form("app"):
                free = lock["state"] == "free"
                return None if free else str(lock.get("holder_name") or lock["state"])
        app = await self._get("apps/current-app-status")  # daemons without that lock
        if app is None:
            return None
        with self._known_form("app"):
            return None if app["state"] in ("done", "error") else str(app["info"]["name"])

    async def plays_a_move(self) -> bool:
        """Whether it is playing a move (a dance, a goto); it ignores targets meanwhile."""
        return bool(await self._get("move/running"))

    @asynccontextmanager
    async def targets(self) -> AsyncIterator[Targets]:
        """A stream of target poses; each takes effect at once."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException

        url = f"ws{self._base.removeprefix('http')}/api/move/ws/set_target"
        try:
            socket = await connect(
                url,
                proxy=None,
                compression=None,
                open_timeout=ANSWER_S,
                ping_interval=PING_S,
                ping_timeout=PING_S,
                close_timeout=ANSWER_S,
                max_queue=4,
                write_limit=1024,
            )
        except (OSError, ValueError, WebSocketException) as error:
            raise self.error("lost", f"it takes no targets: {text_of(error)}") from error
        async with socket:
            yield Targets(self, socket)

    def error(self, problem: Problem, why: str) -> RobotError:
        return robot_error(problem, self.url, why)

    @contextmanager
    def _known_form(self, what: str) -> Iterator[None]:
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self.error("refuses", f"its {what} has an unknown format") from error

    async def _get(self, path: str, *, none_if_unknown: bool = False) -> Any:
        return await self._ask("GET", path, none_if_unknown=none_if_unknown)

    async def _ask(self, method: str, path: str, *, none_if_unknown: bool = False) -> Any:
        import httpx

        try:
            response = await self._client.request(method, path)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise self.error("not found", f"nothing answers there ({text_of(error)})") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self.error("lost", f"it does not answer ({text_of(error)})") from error
        if response.status_code == httpx.codes.NOT_FOUND and none_if_unknown:
            return None
        if response.status_code == httpx.codes.NOT_FOUND:
            raise self.error("not found", f"it knows no /api/{path}")
        if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            raise self.error("not ready", "its motors are not up, or not yet")
        if response.is_error or response.is_redirect:
            raise self.error("refuses", f"/api/{path} answers {response.status_code}")
        try:
            return response.json()
        except ValueError as error:
            raise self.error("not found", _OTHER) from error


_HEAD_KEYS = ("roll", "pitch", "yaw", "x", "y", "z")


class Targets:
    """A stream of targets. The daemon follows the latest; it replies only to one it cannot read."""

    def __init__(self, daemon: Daemon, socket: ClientConnection) -> None:
        self._error = daemon.error
        self._socket = socket

    async def send(self, pose: Pose) -> None:
        """Raises ``RobotError`` if the connection is lost, or its buffer stays full for 2 s."""
        from websockets.exceptions import ConnectionClosed

        target = {
            "target_head_pose": {key: getattr(pose, key) for key in _HEAD_KEYS},
            "target_antennas": (pose.right_antenna, pose.left_antenna),
            "target_body_yaw": pose.body_yaw,
        }
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._socket.send(json.dumps(target))
        except (ConnectionClosed, TimeoutError) as error:
            raise self._error("lost", f"the connection broke off ({text_of(error)})") from error

    async def watch(self) -> None:
        """Never returns: raises ``RobotError`` if the daemon cannot read a target, or when the
        connection ends."""
        from websockets.exceptions import ConnectionClosed

        try:
            message = await self._socket.recv()
        except ConnectionClosed as error:
            raise self._error("lost", f"the connection broke off ({text_of(error)})") from error
        raise self._error("refuses", f"it does not take a target ({str(message)[:200]})")
