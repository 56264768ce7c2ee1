"""HTTP to an MCP server, with bounds on what it may send and how long it may take."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import httpx2

from app.mcp.pacing import MOST_BYTES, MOST_COMMAS, Pacing, whole_letters

CONNECT_S = 10.0
CLOSE_S = 2.0
"""Time-out for closing the session, whose answer nobody needs."""
HTTP_ERROR = -32099
"""Code of the errors that are made here. Their texts contain none of the server's words."""
COMPRESSIONS = {"gzip", "deflate", "br", "zstd"}
"""What the HTTP client would expand. Servers also write ``none``, so that no proxy compresses."""


class BoundedTransport(httpx2.AsyncHTTPTransport):
    """Turns an answer that is torn, too long or too late into an HTTP error, which fails one
    request, not the connection with the calls of other sessions. A stream of events may go on; the
    SDK bounds each event, and they are paced."""

    def __init__(self, answer_s: float) -> None:
        super().__init__()
        self._answer_s = answer_s

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        longest_s = {"GET": None, "DELETE": CLOSE_S}.get(request.method, self._answer_s)
        try:
            async with asyncio.timeout(longest_s):
                return await _bounded(await super().handle_async_request(request))
        except TimeoutError:
            return _failure(504, f"there was no answer within {longest_s:g} s")
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return _failure(502, "nothing answers at its address")
        except httpx2.TransportError:
            return _failure(502, "it has closed the connection")


async def _bounded(response: httpx2.Response) -> httpx2.Response:
    """The whole answer, or a stream of events."""
    stream, headers, status = response.stream, response.headers, response.status_code
    assert isinstance(stream, httpx2.AsyncByteStream)
    codings = headers.get_list("content-encoding", split_commas=True)
    if COMPRESSIONS.isdisjoint(each.strip().lower() for each in codings):
        if headers.get("content-type", "").lower().startswith("text/event-stream"):
            return httpx2.Response(status, headers=headers, stream=_PacedStream(stream))
        body = bytearray()
        async with contextlib.aclosing(stream):
            async for piece in stream:
                body += piece
                if len(body) > MOST_BYTES:
                    return _failure(502, f"its answer is longer than {MOST_BYTES >> 20} MiB")
        if body.count(b",") > MOST_COMMAS:
            return _failure(502, f"its answer has more than {MOST_COMMAS} parts")
        if status >= 400 and status != 404 and b'"jsonrpc"' not in body:
            return _failure(status, f"it answers with HTTP {status}")
        return httpx2.Response(status, headers=headers, content=whole_letters(bytes(body)))
    await stream.aclose()
    # A small compressed answer may become a huge one.
    return _failure(502, "its answer is compressed, though none may be")


class _PacedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pacing = Pacing()
        async for piece in self._stream:
            await pacing.wait(piece)
            yield whole_letters(piece)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _failure(status: int, why: str) -> httpx2.Response:
    """An error response that the SDK passes on unchanged."""
    error = {"code": HTTP_ERROR, "message": why}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error})


def http_client(headers: Mapping[str, str], answer_s: float) -> httpx2.AsyncClient:
    """Reads certificates, so call it in a thread. ``answer_s``: longest wait for an answer that is
    not a stream of events."""
    sent = httpx2.Headers(dict(headers))
    sent["Accept-Encoding"] = "identity"
    timeout = httpx2.Timeout(CONNECT_S, read=None)
    return httpx2.AsyncClient(headers=sent, timeout=timeout, transport=BoundedTransport(answer_s))
