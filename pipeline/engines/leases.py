"""Which engines are in use, so that an engine can be replaced between two turns.

A part of a turn that needs the same engines from start to finish holds a lease: an utterance being
recognised, or an answer being generated and spoken. While a session holds a lease, it may wait for
engines, but never for another session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial


class Leases:
    """All current leases. After ``close``, new leases wait for ``open``."""

    def __init__(self) -> None:
        self._leases: set[object] = set()
        self._is_open = asyncio.Event()
        self._is_open.set()
        self.close, self.open = self._is_open.clear, self._is_open.set
        self._changed = asyncio.Event()

    async def take(self) -> Callable[[], None]:
        """Take a lease. Returns the function that releases it; extra calls do no harm."""
        while not self._is_open.is_set():
            await self._is_open.wait()
        lease = object()
        self._leases.add(lease)
        return partial(self._end, lease)

    def _end(self, lease: object) -> None:
        self._leases.discard(lease)
        self._changed.set()

    async def none(self) -> None:
        """Wait until no lease is held."""
        await self._until_ended(None)

    async def ended(self) -> None:
        """Wait until all leases held at the time of the call have ended."""
        await self._until_ended(frozenset(self._leases))

    async def _until_ended(self, some: frozenset[object] | None) -> None:
        while self._leases if some is None else self._leases & some:
            self._changed.clear()
            await self._changed.wait()
