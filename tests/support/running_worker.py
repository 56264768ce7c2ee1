"""A worker that runs for as long as a test needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pipeline.workers.worker import Worker


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[asyncio.Queue[None]]:
    """Yields a queue with one entry for each later time that the engine is ready."""
    ready: asyncio.Queue[None] = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run(lambda: ready.put_nowait(None)))
        await ready.get()
        try:
            yield ready
        finally:
            worker.close()
