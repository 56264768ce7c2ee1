"""Calls that block, from the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class InThread(Protocol):
    """Runs a function where it may block. Tests run it at once."""

    def __call__(self, function: Callable[[], T]) -> Awaitable[T]: ...


async def in_thread(function: Callable[[], T]) -> T:
    """Call ``function`` in a thread. Who is cancelled meanwhile waits for its end: a thread cannot
    be stopped, and nothing else may use the device until then."""
    call = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        while not call.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([call])
        if not call.cancelled():
            call.exception()
        raise
