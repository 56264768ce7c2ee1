"""A key for programs of the server's own user on this machine, and what a server here answers them.

Where ``access.loopback`` is off, as in containers, they prove that they run on this machine by a
key from a file that only this user can read; a port forwarder cannot add it. The key is new at
every start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from app.access.policy import digest, is_loopback
from app.server.control import socket_path
from pipeline.errors import ReachyVoiceError

if TYPE_CHECKING:
    from app.server.gate import Access

log = logging.getLogger("reachy_voice.server")

MOST_BYTES = 2**20
"""Real answers take a few kilobytes."""


@asynccontextmanager
async def local_key(access: Access, port: int, environ: Mapping[str, str]) -> AsyncIterator[None]:
    """If loopback addresses are not admitted, admit holders of a new key as admins while the
    context is open."""
    if access.rules.loopback:
        yield
        return
    key = f"rv_{secrets.token_urlsafe(32)}"
    try:
        path = await asyncio.to_thread(_path, port, environ)
        await asyncio.to_thread(_write, path, key)
    except (OSError, ReachyVoiceError) as error:
        log.warning("local programs get no key of their own: %s", error)
        yield
        return
    access.rules = access.rules.extended((), (), (digest(key.encode()),))
    try:
        yield
    finally:
        await asyncio.to_thread(_remove, path, key)


def _write(path: Path, key: str) -> None:
    path.unlink(missing_ok=True)  # left by a killed server: the port is ours
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(key)


def _remove(path: Path, key: str) -> None:
    """Remove the key, unless another server has the port by now."""
    with suppress(OSError):
        if path.read_text() == key:
            path.unlink()


def key_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The key of the server at ``url``, if it is one of this user on this machine."""
    place = urlsplit(url)
    if not is_loopback(place.hostname or "") or place.port is None:
        return None
    try:
        return _path(place.port, environ).read_text()
    except (OSError, ReachyVoiceError):
        return None


async def answer_of(url: str, key: str | None, timeout_s: float) -> bytes:
    """The body with which a server on this machine answers a GET, whatever the status; at most
    ``MOST_BYTES`` of it, in twice ``timeout_s``. Any program may answer there: slowly, without end,
    or with a redirect, which is not followed. Raises ``httpx.HTTPError`` and ``TimeoutError``."""
    import httpx

    headers = {"Accept-Encoding": "identity"}  # a small compressed body may expand endlessly
    headers |= {"Authorization": f"Bearer {key}"} if key else {}
    body = bytearray()
    async with (
        asyncio.timeout(2 * timeout_s),
        httpx.AsyncClient(timeout=timeout_s, trust_env=False, verify=False) as client,
        client.stream("GET", url, headers=headers) as answer,
    ):
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > MOST_BYTES:
                break
    return bytes(body[:MOST_BYTES])


def _path(port: int, environ: Mapping[str, str]) -> Path:
    return socket_path(port, environ).with_suffix(".key")
