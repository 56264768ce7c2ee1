"""JSON over HTTP with programs that may be slow, talk without end, or be something else."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import httpx

from app.pairing.steps import plain

MAX_BODY_BYTES = 2**20
"""The longest real answer, a list of apps, has some kilobytes."""


class NoAnswer(Exception):
    """``connected``: the connection was accepted, then nothing sensible came."""

    def __init__(self, detail: str, *, connected: bool) -> None:
        super().__init__(detail, connected)
        self.detail = detail
        self.connected = connected


class JsonHttp:
    """A client of one address. ``timeout_s`` is for a connection, and again for a whole answer.

    Redirects are not followed: what another address says is no answer of this one.
    """

    def __init__(self, timeout_s: float) -> None:
        # Nothing secret is said; who answers is judged by what it says.
        self._client = httpx.AsyncClient(timeout=timeout_s, trust_env=False, verify=False)
        self._timeout_s = timeout_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def ask(
        self, method: str, url: str, *, answer_s: float | None = None
    ) -> tuple[int, bytes]:
        """Status and body. ``answer_s``: how long the answer may take. Raises ``NoAnswer``."""
        patience_s = self._timeout_s if answer_s is None else answer_s
        timeout = httpx.Timeout(self._timeout_s, read=patience_s)
        try:
            async with (
                asyncio.timeout(self._timeout_s + patience_s),
                self._client.stream(
                    method, url, timeout=timeout, headers={"Accept-Encoding": "identity"}
                ) as answer,
            ):
                return answer.status_code, await _body(answer)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NoAnswer(_said(error), connected=False) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NoAnswer(_said(error), connected=True) from error
        except TimeoutError as error:
            raise NoAnswer("its answer does not end", connected=True) from error


async def _body(answer: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_raw():  # unpacked, a small one may be without end
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise NoAnswer("its answer is too long", connected=True)
    return bytes(body)


def _said(error: Exception) -> str:
    return plain(error) or type(error).__name__
