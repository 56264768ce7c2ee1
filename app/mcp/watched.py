"""A connection whose end is noticed while nothing is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Self

from mcp.client._transport import ReadStream, TransportStreams
from mcp.shared.message import SessionMessage


@asynccontextmanager
async def watched(
    transport: AbstractAsyncContextManager[TransportStreams], on_end: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    """``on_end`` is called when no more messages will come."""
    async with transport as (incoming, outgoing):
        yield _Incoming(incoming, on_end), outgoing


class _Incoming:
    def __init__(
        self, stream: ReadStream[SessionMessage | Exception], on_end: Callable[[], None]
    ) -> None:
        self._stream = stream
        self._on_end = on_end

    async def receive(self) -> SessionMessage | Exception:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)
