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
    """All leases that are held. After ``close``, new ones wait for ``open``."""

    def __init__(self) -> None:
        self._held: set[object] = set()
        self._opened = asyncio.Event()
        self._opened.set()
        self.close, self.open = self._opened.clear, self._opened.set
        self._changed = asyncio.Event()

    async def take(self) -> Callable[[], None]:
        """A new lease, as what releases it, which may be called more than once."""
        while not self._opened.is_set():
            await self._opened.wait()
        lease = object()
        self._held.add(lease)
        return partial(self._end, lease)

    def _end(self, lease: object) -> None:
        self._held.discard(lease)
        self._changed.set()

    async def none(self) -> None:
        """Wait until no lease is held."""
        await self._until_ended(None)

    async def ended(self) -> None:
        """Wait until all leases held now have ended."""
        await self._until_ended(frozenset(self._held))

    async def _until_ended(self, some: frozenset[object] | None) -> None:
        while self._held if some is None else self._held & some:
            self._changed.clear()
            await self._changed.wait()
