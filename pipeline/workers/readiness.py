"""Whether an engine is ready, and if not, why, and whether it is worth waiting for."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Readiness:
    """One engine's readiness. Used on the event loop only."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        """Set while it is ready."""
        self.problem = "is starting"
        self.back_by: float | None = None
        """Until when it is worth waiting for an engine that is restarting, in loop time."""

    @property
    def problem(self) -> str | None:
        """Why the engine is not ready, and for how long it has been so; ``None``: it is ready."""
        if self._waiting_since is None:
            return self._problem
        seconds = asyncio.get_running_loop().time() - self._waiting_since
        return f"{self._problem}, for {seconds:.0f} s now"

    @problem.setter
    def problem(self, why: str | None) -> None:
        self._problem = why
        self._waiting_since: float | None = None
        if why:
            self.ready.clear()
        else:
            self.ready.set()

    def wait_for(self, what: str) -> None:
        """Set the problem to ``what``, which will pass, and note since when it lasts."""
        self.problem = what
        self._waiting_since = asyncio.get_running_loop().time()

    async def back(self) -> None:
        """Wait for an engine that is restarting, if it is likely to be ready soon."""
        if self.back_by is None or self.ready.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self.back_by):
                await self.ready.wait()
