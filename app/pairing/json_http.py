"""JSON over HTTP with untrusted programs: slow, endless or unexpected answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx

from app.pairing.steps import plain

MAX_BODY_BYTES = 2**20
"""Real answers take a few kilobytes."""


class NoAnswer(Exception):
    """``connected``: the connection was accepted, but no usable answer came."""

    def __init__(self, detail: str, *, connected: bool = True) -> None:
        super().__init__(detail, connected)
        self.detail = detail
        self.connected = connected


async def ask(url: str, timeout_s: float) -> tuple[int, Any]:
    """Get status and body; a body that is not JSON stays ``bytes``.

    ``timeout_s`` limits the connection, and again the answer. Redirects are not followed, because
    another address would answer. Raises ``NoAnswer``.
    """
    # Nothing secret is sent, and the answer itself is checked.
    client = httpx.AsyncClient(timeout=timeout_s, trust_env=False, verify=False)
    headers = {"Accept-Encoding": "identity"}  # a small compressed body may expand endlessly
    try:
        async with (
            asyncio.timeout(2 * timeout_s),
            client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            body = bytearray()
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) > MAX_BODY_BYTES:
                    raise NoAnswer("its answer is too long")
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise NoAnswer(_detail(error), connected=False) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoAnswer(_detail(error)) from error
    except TimeoutError as error:
        raise NoAnswer("its answer does not end") from error
    try:
        return answer.status_code, json.loads(body)
    except (ValueError, RecursionError):
        return answer.status_code, bytes(body)


def _detail(error: Exception) -> str:
    return plain(error) or type(error).__name__
