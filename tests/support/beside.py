"""Something that runs beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def beside(life: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """It is cancelled with the context; what it has raised before is raised here."""
    running = asyncio.create_task(life)
    try:
        yield running
    finally:
        running.cancel()
        await asyncio.wait({running})
    if not running.cancelled() and (error := running.exception()):
        raise error
