"""Is our server running, and can a robot reach it?

Any program may answer at its port: slowly, without end, or something unexpected.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping

import httpx

from app.access.policy import in_url, is_loopback
from app.pairing.place import listens
from app.pairing.steps import NoLocalServer
from app.server.callers import PATH, Knocks, read_callers
from app.server.local_key import key_for

LOOPBACK = "127.0.0.1"

MAX_BODY_BYTES = 2**20
"""Real answers take a few kilobytes."""


async def callers(address: str, port: int, timeout_s: float) -> Mapping[str, Knocks]:
    """Attempts to connect to our server so far, by address. Raises ``NoLocalServer`` unless a robot
    can use it at ``address``."""
    key = await asyncio.to_thread(key_for, f"http://{LOOPBACK}:{port}", os.environ)
    start = "reachy-voice serve" if is_loopback(address) else "reachy-voice serve --lan"
    place = f"{in_url(address)}:{port}"
    for host in (LOOPBACK, address):  # no key is sent where nothing listens
        try:
            known = read_callers(json.loads(await _get(f"{in_url(host)}:{port}", key, timeout_s)))
        except (httpx.ConnectError, httpx.ConnectTimeout):
            continue
        except (httpx.HTTPError, TimeoutError, ValueError, RecursionError):
            raise NoLocalServer(
                f"The robot's app cannot use what answers at {place}",
                why="it is another program, another user's server, or encrypted (server.tls); the "
                "app does not speak TLS",
                fix="Name the server's port with --port, or start it: "
                f"{start} --set server.tls=null",
            ) from None
        if await listens(address, port, timeout_s):
            return known
        other = "Use the robot's IPv4 address, or: reachy-voice serve --set server.host=::"
        raise NoLocalServer(
            "The robot cannot reach this server",
            why=f"it does not listen on {place}",
            fix=other if ":" in address else f"Stop it, and start it with: {start}",
        )
    raise NoLocalServer(
        "No reachy-voice server runs on this machine",
        why=f"nothing listens at {place}",
        fix=f"Start it with: {start} (or name its port with --port)",
    )


async def _get(place: str, key: str | None, timeout_s: float) -> bytes:
    """At most ``MAX_BODY_BYTES`` of the answer. No redirect is followed, because another address
    would answer. Raises ``httpx.HTTPError`` and ``TimeoutError``."""
    headers = {"Accept-Encoding": "identity"}  # a small compressed body may expand endlessly
    headers |= {"Authorization": f"Bearer {key}"} if key else {}
    body = bytearray()
    async with (
        asyncio.timeout(2 * timeout_s),
        httpx.AsyncClient(timeout=timeout_s, trust_env=False, verify=False) as client,
        client.stream("GET", f"http://{place}{PATH}", headers=headers) as answer,
    ):
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                break
    return bytes(body)
