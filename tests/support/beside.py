"""Something that runs beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def beside(life: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """It is cancelled with the context. What it raises ends the context and is raised here."""
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(life)
            try:
                yield running
            finally:
                running.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[-1] from None  # the context's own, if it failed, too
