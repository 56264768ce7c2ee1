"""The HTTP client that all engines by URL share. Nothing else in the pipeline uses httpx.

It follows no redirects, takes no proxy from the environment, and keeps connections open for the
next request. A request whose connection the server closes at once, without an answer, is repeated.
Other failures raise ``HttpFailure``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    import httpx

KEPT_S = 120.0
"""Idle connections are closed after this time, unless the server closes them first."""
MOST_KEPT = 32
LET_GO_S = 0.5
"""Longest wait for a server to close a connection after we closed our side."""

AT_ONCE_S = 1.0
"""Requests on a stale connection, or to a server that is shutting down, fail within this time."""
AGAIN_S = (0.0, 0.5)
"""Pauses before the two retries of such a request: the first for a stale connection; the second for
a server that is shutting down, which accepts connections a moment longer before its address refuses
them or leads to another server. No third, as the server may have worked on each and bill for it."""

Why = Literal["connect", "slow", "broken", "garbled"]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: Literal["GET", "POST"]
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""


Body = tuple[bytes, str]
"""A request's content and its media type."""


def json_body(data: Mapping[str, Any]) -> Body:
    # A client may send half a surrogate pair, which UTF-8 cannot encode.
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace"), "application/json"


def form_body(fields: Mapping[str, str], file: bytes, name: str, kind: str) -> Body:
    """``multipart/form-data`` with one file, called ``file``, under the file name ``name``."""
    import httpx

    request = httpx.Request(
        "POST", "http://form", data=dict(fields), files={"file": (name, file, kind)}
    )
    return request.read(), request.headers["content-type"]


class HttpFailure(Exception):
    """No answer, or only part of it."""

    def __init__(self, why: Why, detail: str) -> None:
        super().__init__(detail)
        self.why = why
        """The connection failed, was too slow or broke, or the answer is not HTTP."""
        self.detail = detail


class HttpResponse:
    """An answer: its head, and access to its body. Always ``close`` it.

    The request runs in its own task, which is cancelled at most once: a second cancellation would
    interrupt httpcore's clean-up and leave the connection open and the server at work."""

    def __init__(self, client: httpx.AsyncClient, request: httpx.Request) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        """Names are case-insensitive."""
        self._head: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pieces: asyncio.Queue[bytes | HttpFailure | None] = asyncio.Queue(1)
        """``None`` is the end."""
        self._closing = False
        self._connection: socket.socket | None = None
        """Set while the answer is being read."""
        self._is_closed = False
        self.task = asyncio.create_task(self._carry(client, request))
        """After ``close``, it ends once the server has stopped or took too long to."""

    @property
    def redirects_to(self) -> str:
        """An address, without what may be secret in it; empty: it is no redirect."""
        if not 300 <= self.status < 400:
            return ""
        shown = re.sub(r"[?#;].*", "", self.headers.get("location", ""))
        return re.sub(r"//[^/]*@", "//", shown)

    async def wait_for_head(self) -> HttpResponse:
        """Wait for the head. Raises ``HttpFailure``."""
        try:
            await self._head
        except asyncio.CancelledError:
            self.stop()
            raise
        return self

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises ``HttpFailure``."""
        while (piece := await self._pieces.get()) is not None:
            if isinstance(piece, HttpFailure):
                raise piece
            yield piece

    def stop(self) -> None:
        if not self._closing:
            self._closing = True
            self.task.cancel()

    def close(self) -> None:
        """Release the answer. If it was not read to the end, shut down our side of the connection,
        so that the server stops. ``task`` ends once the server has closed its side."""
        connection, self._connection = self._connection, None
        if connection is None:
            self.stop()
            return
        with suppress(OSError):  # the server has closed it already
            connection.shutdown(socket.SHUT_WR)
        self._is_closed = True
        while not self._pieces.empty():
            self._pieces.get_nowait()
        limit = asyncio.get_running_loop().call_later(LET_GO_S, self.stop)
        self.task.add_done_callback(lambda _: limit.cancel())

    async def _carry(self, client: httpx.AsyncClient, request: httpx.Request) -> None:
        end: HttpFailure | None = None
        try:
            response = await client.send(request, stream=True)
            try:
                await self._read(response)
            finally:
                self._connection = None
                self._closing = True
                await response.aclose()
                self._closing = False
        except Exception as error:
            end = _failure(error)
        if end and not self._head.done():
            self._head.set_exception(end)
        elif not self._is_closed:
            await self._pieces.put(end)

    async def _read(self, response: httpx.Response) -> None:
        if self._head.cancelled():
            return
        self.status, self.headers = response.status_code, response.headers
        self._head.set_result(None)
        stream = response.extensions.get("network_stream")
        connection: socket.socket | None = stream.get_extra_info("socket") if stream else None
        self._connection = connection
        _acknowledge(connection)
        # Raw, as the body is not compressed; this costs less per piece.
        async with aclosing(response.aiter_raw()) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                _acknowledge(connection)
                if not self._is_closed:
                    await self._pieces.put(piece)


def _acknowledge(connection: socket.socket | None) -> None:
    """Acknowledge data at once. A server with Nagle's algorithm holds back small pieces until the
    previous one is acknowledged, and kernels delay acknowledgements (40 ms on Linux, from the
    second request on). Only Linux has this option, and it must be set again each time."""
    if connection and hasattr(socket, "TCP_QUICKACK"):
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


class Pool:
    """Wrap all users in ``async with`` this. Costs nothing until the first request."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._lock = asyncio.Lock()
        self._open = False
        self._answers: set[HttpResponse] = set()
        self.used_at = -math.inf
        """When one of its engines was last used, in loop time."""
        self.on_use: set[Callable[[], None]] = set()
        """Callbacks for each use."""

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(self, *error: object) -> None:
        self._open = False
        for answer in self._answers:
            answer.stop()
        if self._answers:
            await asyncio.wait([answer.task for answer in self._answers])
        if self._client:
            await self._client.aclose()
            self._client = None

    def use(self) -> None:
        """A user is speaking or waiting for an answer, so all engines will be needed soon."""
        self.used_at = asyncio.get_running_loop().time()
        for callback in list(self.on_use):
            callback()

    async def send(self, request: HttpRequest, connect_s: float) -> HttpResponse:
        """Send ``request``; returns when the answer's head arrives. Raises ``HttpFailure``. The
        caller limits the time after connecting; cancelling the call closes the connection."""
        loop = asyncio.get_running_loop()
        for pause_s in AGAIN_S:
            began = loop.time()
            try:
                return await self._send_once(request, connect_s)
            except HttpFailure as broken:
                if broken.why != "broken" or loop.time() - began > AT_ONCE_S:
                    raise
            await asyncio.sleep(pause_s)
        return await self._send_once(request, connect_s)

    async def _send_once(self, request: HttpRequest, connect_s: float) -> HttpResponse:
        client = self._client or await self._open_client()
        import httpx

        message = client.build_request(
            request.method,
            request.url,
            headers=dict(request.headers),
            content=request.content,
            timeout=httpx.Timeout(None, connect=connect_s),
        )
        answer = HttpResponse(client, message)
        self._answers.add(answer)
        answer.task.add_done_callback(lambda _: self._answers.discard(answer))
        return await answer.wait_for_head()

    async def _open_client(self) -> httpx.AsyncClient:
        async with self._lock:
            if not self._open:
                raise HttpFailure("connect", "the client is closed")
            if self._client is None:
                # In a thread, because it loads modules and CA certificates.
                try:
                    self._client = await asyncio.to_thread(_client)
                except OSError as error:
                    what = "the certificates of SSL_CERT_FILE cannot be read"
                    raise HttpFailure("connect", f"{what}: {error}") from error
            return self._client


def _client() -> httpx.AsyncClient:
    import anyio
    import httpx

    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs each request
    anyio.run(anyio.sleep, 0)  # else httpx's first request imports modules on the event loop
    return httpx.AsyncClient(
        verify=httpx.create_ssl_context(),  # honours SSL_CERT_FILE, for private CAs
        trust_env=False,
        follow_redirects=False,
        # Compression would delay the pieces.
        headers={"Accept-Encoding": "identity", "User-Agent": "reachy-voice"},
        limits=httpx.Limits(
            max_connections=None, max_keepalive_connections=MOST_KEPT, keepalive_expiry=KEPT_S
        ),
    )


def _failure(error: Exception) -> HttpFailure:
    import httpx

    detail = str(error) or type(error).__name__
    match error:
        case httpx.ConnectTimeout():
            return HttpFailure("slow", "nothing answers at that address")
        case httpx.ConnectError():
            return HttpFailure("connect", detail)
        case httpx.RemoteProtocolError() | httpx.ReadError() | httpx.WriteError():
            return HttpFailure("broken", detail)
        case _:
            return HttpFailure("garbled", detail)
