"""Is our server running, and can a robot reach it?"""

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
from app.server.local_key import answer_of, key_for

LOOPBACK = "127.0.0.1"


async def callers(address: str, port: int, timeout_s: float) -> Mapping[str, Knocks]:
    """Attempts to connect to our server so far, by address. Raises ``NoLocalServer`` unless a robot
    can use it at ``address``."""
    key = await asyncio.to_thread(key_for, f"http://{LOOPBACK}:{port}", os.environ)
    start = "reachy-voice serve" if is_loopback(address) else "reachy-voice serve --lan"
    place = f"{in_url(address)}:{port}"
    for host in (LOOPBACK, address):  # no key is sent where nothing listens
        try:
            url = f"http://{in_url(host)}:{port}{PATH}"
            known = read_callers(json.loads(await answer_of(url, key, timeout_s)))
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
