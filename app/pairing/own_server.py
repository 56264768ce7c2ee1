"""Is our server running, and can a robot reach it?

Any program may answer at its port: slowly, without end, or something unexpected.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import httpx

from app.access.policy import in_url, is_loopback
from app.pairing.steps import NoLocalServer
from app.server.callers import PATH, Knocks, read_callers

LOOPBACK = "127.0.0.1"

MAX_BODY_BYTES = 2**20
"""Real answers take a few kilobytes."""


async def require_server(address: str, port: int, timeout_s: float) -> None:
    """Raises ``NoLocalServer`` unless a robot can use our server at ``address``."""
    place = f"{in_url(address)}:{port}"
    start = "reachy-voice serve" if is_loopback(address) else "reachy-voice serve --lan"
    answer = await _is_ours(place, timeout_s)
    if answer:
        return
    if answer is None and address != LOOPBACK:
        answer = await _is_ours(f"{LOOPBACK}:{port}", timeout_s)
    if answer is None:
        raise NoLocalServer(
            "No reachy-voice server runs on this machine",
            why=f"nothing listens at {place}",
            fix=f"Start it with: {start} (or name its port with --port)",
        )
    if answer:
        other = "Use the robot's IPv4 address, or: reachy-voice serve --set server.host=::"
        raise NoLocalServer(
            "The robot cannot reach this server",
            why=f"it does not listen on {place}",
            fix=other if ":" in address else f"Stop it, and start it with: {start}",
        )
    raise NoLocalServer(
        f"The robot's app cannot use what answers at {place}",
        why="it is another program, or encrypted (server.tls); the app does not speak TLS",
        fix=f"Name the server's port with --port, or start it: {start} --set server.tls=null",
    )


async def callers(address: str, port: int, timeout_s: float) -> Mapping[str, Knocks] | None:
    """Connection attempts so far; ``None``: not available (``access.loopback: false``)."""
    try:
        status, body = await _get(f"{in_url(address)}:{port}{PATH}", timeout_s)
        return read_callers(json.loads(body)) if status == 200 else None
    except (httpx.HTTPError, TimeoutError, ValueError, RecursionError):
        return None


async def _is_ours(place: str, timeout_s: float) -> bool | None:
    """Whether our server answers there; ``None``: nothing does."""
    try:
        status, body = await _get(f"{place}/v1/models", timeout_s)
    except (httpx.ConnectError, httpx.ConnectTimeout):
        return None
    except (httpx.HTTPError, TimeoutError):
        return False
    # It names itself as the model's owner, or in its refusal of a missing key.
    return status in (200, 401) and b"reachy-voice" in body


async def _get(place: str, timeout_s: float) -> tuple[int, bytes]:
    """Status and at most ``MAX_BODY_BYTES`` of the body. No redirect is followed, because another
    address would answer. Raises ``httpx.HTTPError`` and ``TimeoutError``."""
    headers = {"Accept-Encoding": "identity"}  # a small compressed body may expand endlessly
    body = bytearray()
    async with (
        asyncio.timeout(2 * timeout_s),
        httpx.AsyncClient(timeout=timeout_s, trust_env=False, verify=False) as client,
        client.stream("GET", f"http://{place}", headers=headers) as answer,
    ):
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                break
    return answer.status_code, bytes(body)
