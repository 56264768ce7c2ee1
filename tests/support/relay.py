"""A cable between a client and a server, which can be pulled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Relay:
    """Carries bytes between ``port`` here and a server's port."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.plugged = True
        self._target = target
        self._ends: set[asyncio.StreamWriter] = set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.plugged:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._ends |= {writer, far_writer}
        async with asyncio.TaskGroup() as both:
            both.create_task(pump(reader, far_writer))
            both.create_task(pump(far_reader, writer))

    def pull(self) -> None:
        """Cut every connection, and accept no new one until ``plugged`` is set again."""
        self.plugged = False
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


@asynccontextmanager
async def relayed(target: int) -> AsyncIterator[Relay]:
    relay = Relay(target)
    server = await asyncio.start_server(relay.carry, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    async with server:
        yield relay
        relay.pull()
