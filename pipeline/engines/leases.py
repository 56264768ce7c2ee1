"""Which engines are in use, so that an engine can be replaced between two turns.

A part of a turn that needs the same engines from start to finish holds a lease: an utterance being
recognised, or an answer being generated and spoken. While a session holds a lease, it may wait for
engines, but never for another session.
"""

from __future__ import annotations

import asyncio


class Lease:
    """``release`` may be called more than once."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    def release(self) -> None:
        self._leases.end(self)


class Leases:
    """All leases that are held. After ``close``, new ones wait for ``open``."""

    def __init__(self) -> None:
        self._held: set[Lease] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._changed = asyncio.Event()

    async def take(self) -> Lease:
        while not self._open.is_set():
            await self._open.wait()
        lease = Lease(self)
        self._held.add(lease)
        return lease

    def end(self, lease: Lease) -> None:
        self._held.discard(lease)
        self._changed.set()

    def close(self) -> None:
        """Make new leases wait."""
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def none(self) -> None:
        """Wait until no lease is held."""
        await self._until_ended(None)

    async def ended(self) -> None:
        """Wait until all leases held now have ended."""
        await self._until_ended(frozenset(self._held))

    async def _until_ended(self, some: frozenset[Lease] | None) -> None:
        while self._held if some is None else self._held & some:
            self._changed.clear()
            await self._changed.wait()
