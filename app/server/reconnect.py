"""Keeps the conversations of disconnected clients for a while, so that they can resume.

A client resumes its conversation if it has the same key, address and tools. No other client ever
gets it: two clients connected under one identity at the same time cannot be distinguished (robots
behind one router send the same fixed key), so from then on nothing is kept for that identity.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.access.policy import Caller, digest
from pipeline.conversation.memory import Memory
from pipeline.messages import Tool

MAX_PARKED = 16
"""Conversations that may wait for their client; each may hold minutes of audio."""

MAX_PARKED_EACH = 4
"""Parked conversations per address, whatever keys its clients use."""

MAX_SHARED = 4096
"""Identities remembered as shared by several clients; the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client seems to be. ``key`` is a SHA-256: the key itself is not kept."""

    key: bytes
    address: str


def identity_of(caller: Caller) -> Identity | None:
    """Who a client seems to be; ``None`` if it cannot be recognised again: it has no key, or it
    comes through a proxy, whose address many clients share."""
    if not caller.keys or caller.address is None or caller.forwarded:
        return None
    # No key contains a zero byte, so the keys cannot run into each other.
    return Identity(digest(b"\0".join(caller.keys)), str(caller.address))


@dataclass(frozen=True, slots=True, eq=False)
class _Parked:
    memory: Memory
    tools: tuple[Tool, ...]
    expiry: asyncio.TimerHandle


class ParkedConversations:
    """Conversations that disconnected clients can resume for ``keep_s`` (0: never).

    Connected clients are ``present``, so that shared identities are noticed.
    """

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._present: Counter[Identity] = Counter()
        self._shared: dict[Identity, None] = {}
        self._parked: dict[Identity, _Parked] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._parked)

    @contextmanager
    def present(self, who: Identity | None) -> Iterator[None]:
        """``who`` is connected while the context is open."""
        if who is None:
            yield
            return
        self._present[who] += 1
        if self._present[who] > 1:
            self._is_shared(who)
        try:
            yield
        finally:
            self._present[who] -= 1
            if not self._present[who]:
                del self._present[who]

    def keep(self, who: Identity | None, memory: Memory, tools: tuple[Tool, ...]) -> None:
        """Park a conversation, or close it if no client could resume it."""
        if who is None or who in self._shared or self._closed or self._keep_s <= 0:
            memory.close()
            return
        self._drop(who)
        self._make_room(who.address)
        loop = asyncio.get_running_loop()
        expiry = loop.call_later(self._keep_s, self._drop, who)
        self._parked[who] = _Parked(memory, tools, expiry)

    def waits_for(self, who: Identity | None) -> bool:
        """Whether ``who`` can ``take`` a conversation, given the right tools."""
        return who in self._parked

    def take(self, who: Identity | None, tools: tuple[Tool, ...]) -> Memory | None:
        """The conversation of ``who``, now the caller's to close, or ``None``.

        Other tools mean another conversation: the parked one is then closed.
        """
        if who is None or who not in self._parked:
            return None
        if self._parked[who].tools != tools:
            self._drop(who)
            return None
        parked = self._parked.pop(who)
        parked.expiry.cancel()
        return parked.memory

    def close(self) -> None:
        """Close everything parked, and anything that is handed in later."""
        self._closed = True
        for who in list(self._parked):
            self._drop(who)

    def _make_room(self, address: str) -> None:
        """Drop the oldest conversation of ``address``, or of the address with the most."""
        held = Counter(who.address for who in self._parked)
        if held[address] >= MAX_PARKED_EACH:
            fullest = address
        elif len(self._parked) >= MAX_PARKED:
            fullest = max(held, key=lambda at: held[at])
        else:
            return
        self._drop(next(who for who in self._parked if who.address == fullest))

    def _is_shared(self, who: Identity) -> None:
        self._drop(who)
        self._shared[who] = None
        while len(self._shared) > MAX_SHARED:
            del self._shared[next(iter(self._shared))]

    def _drop(self, who: Identity) -> None:
        if parked := self._parked.pop(who, None):
            parked.expiry.cancel()
            parked.memory.close()
