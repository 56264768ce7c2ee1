"""Is our server running, and can a robot reach it?"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from app.pairing.json_http import NoAnswer, ask
from app.pairing.steps import NoLocalServer, in_url
from app.server.callers import PATH, Knocks, read_callers
from app.server.discovery import is_loopback

LOOPBACK = "127.0.0.1"


class OwnServer(StrEnum):
    """What answers at this machine's port."""

    OPEN = "open"
    WARMING = "warming up"
    ONLY_HERE = "only this machine"
    TLS = "TLS"
    STRANGER = "another program"
    ABSENT = "nothing"


async def look(address: str, port: int, timeout_s: float) -> OwnServer:
    """What answers at ``address``, which the robot would use. Never raises."""
    server = await _look_at(f"{in_url(address)}:{port}", timeout_s)
    if server is OwnServer.ABSENT and address != LOOPBACK:
        here = await _look_at(f"{LOOPBACK}:{port}", timeout_s)
        return (
            OwnServer.ONLY_HERE
            if here in (OwnServer.OPEN, OwnServer.WARMING, OwnServer.TLS)
            else here
        )
    return server


async def callers(address: str, port: int, timeout_s: float) -> Mapping[str, Knocks] | None:
    """Connection attempts so far; ``None``: not available (``access.loopback: false``)."""
    try:
        status, body = await ask(f"http://{in_url(address)}:{port}{PATH}", timeout_s)
        return read_callers(body) if status == 200 else None
    except (NoAnswer, ValueError):
        return None


async def _look_at(place: str, timeout_s: float) -> OwnServer:
    try:
        _, alive = await ask(f"http://{place}/health", timeout_s)
    except NoAnswer as error:
        return await _look_through_tls(place, timeout_s) if error.connected else OwnServer.ABSENT
    if alive != {"status": "ok"}:
        return OwnServer.STRANGER
    try:
        status, body = await ask(f"http://{place}/v1/models", timeout_s)
        # Our server names itself as the model's owner, or in its refusal of a missing key.
        if status not in (200, 401) or "reachy-voice" not in str(body):
            return OwnServer.STRANGER
        status, body = await ask(f"http://{place}/ready", timeout_s)
    except NoAnswer:
        return OwnServer.STRANGER
    return OwnServer.WARMING if status == 503 and not _full(body) else OwnServer.OPEN


def _full(body: Any) -> bool:
    """Whether every engine is ready, and only places are missing."""
    return isinstance(body, dict) and body.get("reasons") == {"server": "full"}


async def _look_through_tls(place: str, timeout_s: float) -> OwnServer:
    try:
        _, alive = await ask(f"https://{place}/health", timeout_s)
    except NoAnswer:
        return OwnServer.STRANGER
    return OwnServer.TLS if alive == {"status": "ok"} else OwnServer.STRANGER


def unusable(server: OwnServer, address: str, port: int) -> NoLocalServer | None:
    """The error to report; ``None``: a robot can use the server."""
    place = f"{in_url(address)}:{port}"
    start = "reachy-voice serve" if is_loopback(address) else "reachy-voice serve --lan"
    match server:
        case OwnServer.OPEN:
            return None
        case OwnServer.WARMING:
            return NoLocalServer(
                "The server is not ready yet",
                why="its engines are being loaded",
                fix="Wait until it says Ready, then pair again",
            )
        case OwnServer.ONLY_HERE if ":" in address:
            return NoLocalServer(
                "The robot cannot reach this server",
                why=f"it does not listen on {place}",
                fix="Use the robot's IPv4 address, or: reachy-voice serve --set server.host=::",
            )
        case OwnServer.ONLY_HERE:
            return NoLocalServer(
                "The robot cannot reach this server",
                why=f"it listens on this machine only, not on {place}",
                fix="Stop it, and start it with: reachy-voice serve --lan",
            )
        case OwnServer.TLS:
            return NoLocalServer(
                "The robot's app cannot use this server",
                why="it is encrypted (server.tls), and the app does not speak TLS",
                fix="Start it with: reachy-voice serve --lan --set server.tls=null",
            )
        case OwnServer.STRANGER:
            return NoLocalServer(
                f"A program other than reachy-voice answers at {place}",
                fix=f"Name the server's port with --port, or start it: {start}",
            )
        case OwnServer.ABSENT:
            return NoLocalServer(
                "No reachy-voice server runs on this machine",
                why=f"nothing listens at {place}",
                fix=f"Start it with: {start} (or name its port with --port)",
            )
