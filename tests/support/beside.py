"""Runs something in the background of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def beside(life: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run it until the context ends, then cancel it. If it raises, the context ends and raises
    that."""
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(life)
            try:
                yield running
            finally:
                running.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[-1] from None  # includes the context's own error, if it failed
