"""Is our server running, and can a robot reach it at all?"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from app.pairing.json_http import JsonHttp, NoAnswer
from app.pairing.steps import NoServer, in_url, read_json
from app.server.callers import PATH, Knocks, read_callers
from app.server.discovery import is_loopback

LOOPBACK = "127.0.0.1"


class Own(StrEnum):
    """What is found at this machine's port."""

    OPEN = "open"
    WARMING = "warming up"
    ONLY_HERE = "only this machine"
    TLS = "TLS"
    STRANGER = "another program"
    ABSENT = "nothing"


class OwnServer(JsonHttp):
    """This machine's server at ``port``, as it is seen at ``address``, which the robot would use.

    ``timeout_s`` is for one request.
    """

    def __init__(self, address: str, port: int, timeout_s: float, loopback: str = LOOPBACK) -> None:
        super().__init__(timeout_s)
        self._address = address
        self._port = port
        self._loopback = loopback

    async def look(self) -> Own:
        """Never raises for what it finds."""
        found = await self._look_at(self._address)
        if found is Own.ABSENT and self._address != self._loopback:
            here = await self._look_at(self._loopback)
            return Own.ONLY_HERE if here in (Own.OPEN, Own.WARMING, Own.TLS) else here
        return found

    async def callers(self) -> Mapping[str, Knocks] | None:
        """Who has come so far; ``None``: the server does not say (``access.loopback: false``, or an
        older one)."""
        try:
            status, body = await self._get("http", self._address, PATH)
            return read_callers(body) if status == 200 else None
        except (NoAnswer, ValueError):
            return None

    async def _look_at(self, address: str) -> Own:
        try:
            _, alive = await self._get("http", address, "/health")
        except NoAnswer as error:
            if not error.connected:
                return Own.ABSENT
            return await self._look_through_tls(address)
        if alive != {"status": "ok"} or not await self._is_ours(address):
            return Own.STRANGER
        status, _ = await self._get_or_none(address, "/ready")
        return Own.WARMING if status == 503 else Own.OPEN

    async def _look_through_tls(self, address: str) -> Own:
        try:
            _, alive = await self._get("https", address, "/health")
        except NoAnswer:
            return Own.STRANGER
        return Own.TLS if alive == {"status": "ok"} else Own.STRANGER

    async def _is_ours(self, address: str) -> bool:
        """By the owner of its model; who must show a key is told so in our words."""
        status, body = await self._get_or_none(address, "/v1/models")
        return "reachy-voice" in str(body) if status in (200, 401) else False

    async def _get_or_none(self, address: str, path: str) -> tuple[int, Any]:
        try:
            return await self._get("http", address, path)
        except NoAnswer:
            return 0, None

    async def _get(self, scheme: str, address: str, path: str) -> tuple[int, Any]:
        """``None`` for a body that is not JSON."""
        status, text = await self.ask("GET", f"{scheme}://{in_url(address)}:{self._port}{path}")
        try:
            return status, read_json(text)
        except ValueError:
            return status, None


def unusable(found: Own, address: str, port: int) -> NoServer | None:
    """What to do about it; ``None``: a robot can use it."""
    place = f"{in_url(address)}:{port}"
    start = "script/serve" if is_loopback(address) else "script/serve --lan"
    match found:
        case Own.OPEN:
            return None
        case Own.WARMING:
            return NoServer(
                "The server is not ready yet",
                why="its engines are being loaded",
                fix="Wait until it says Ready, then pair again",
            )
        case Own.ONLY_HERE if ":" in address:
            return NoServer(
                "The robot cannot reach this server",
                why=f"it does not listen on {place}",
                fix="Use the robot's IPv4 address, or: script/serve --set server.host=::",
            )
        case Own.ONLY_HERE:
            return NoServer(
                "The robot cannot reach this server",
                why=f"it listens on this machine only, not on {place}",
                fix="Stop it, and start it with: script/serve --lan",
            )
        case Own.TLS:
            return NoServer(
                "The robot's app cannot use this server",
                why="it is encrypted (server.tls), and the app does not speak TLS",
                fix="Start it with: script/serve --lan --set server.tls=null",
            )
        case Own.STRANGER:
            return NoServer(
                f"Another program than reachy-voice answers at {place}",
                fix=f"Name the server's port with --port, or start it: {start}",
            )
        case Own.ABSENT:
            return NoServer(
                "No reachy-voice server runs on this machine",
                why=f"nothing listens at {place}",
                fix=f"Start it with: {start} (or name its port with --port)",
            )
