"""Which engines are in use, so that one of them can be exchanged between two turns.

A part of a turn that needs the same engines from its beginning to its end holds a lease: an
utterance being recognised, an answer being generated and spoken. No session waits for another while
holding one, but for engines.
"""

from __future__ import annotations

import asyncio


class Lease:
    """``release`` it once or often."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    def release(self) -> None:
        self._leases.end(self)


class Leases:
    """All that are held. While they are ``closed``, new ones wait."""

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
        """Let new ones wait."""
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def none(self) -> None:
        """Wait for a moment in which none is held."""
        await self._until_ended(None)

    async def ended(self) -> None:
        """Wait until all that are held now have ended."""
        await self._until_ended(frozenset(self._held))

    async def _until_ended(self, some: frozenset[Lease] | None) -> None:
        while self._held if some is None else self._held & some:
            self._changed.clear()
            await self._changed.wait()
