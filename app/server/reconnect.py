"""Keeps the conversations of disconnected clients for a while, so that they can resume.

A client resumes its conversation if it has the same key, address and tools. No other client ever
gets it: two clients connected under one identity at the same time cannot be distinguished (robots
behind one router send the same fixed key), so from then on nothing is kept for that identity.

Servers behind one balancer keep conversations in a folder that they share, so that a client may
come back to any of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.server.conversation_folder import ConversationFolder
from app.server.identity import Identity
from pipeline.conversation.chat import Chat
from pipeline.conversation.memory import Memory
from pipeline.messages import Tool

log = logging.getLogger("reachy_voice.server")

MAX_PARKED = 16
"""Conversations that may wait for their client; each may hold minutes of audio."""

MAX_PARKED_EACH = 4
"""Parked conversations per address, whatever keys its clients use."""

CLAIMED_AGAIN_S = (0.1, 0.3, 0.6)
"""Pauses between attempts before a client counts as connected to two servers."""

MAX_SHARED = 4096
"""Identities remembered as shared by several clients; the oldest are forgotten."""


@dataclass(frozen=True, slots=True, eq=False)
class _Parked:
    memory: Memory
    tools: tuple[Tool, ...]
    expiry: asyncio.TimerHandle


class ParkedConversations:
    """Conversations that disconnected clients can resume for ``keep_s`` (0: never).

    Connected clients are ``present``, so that shared identities are noticed.
    """

    def __init__(self, keep_s: float, folder: ConversationFolder | None = None) -> None:
        """``folder``: keeps them instead of this server's memory."""
        self._keep_s = keep_s
        self._folder = folder
        self._claims: dict[Identity, int] = {}
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
                if self._folder and who in self._claims:
                    self._folder.release(self._claims.pop(who))

    async def fetch(self, who: Identity | None, resume: Callable[[Chat], Memory]) -> None:
        """Get the conversation of ``who``, who is present, from the shared folder."""
        if self._folder is None or who is None:
            return
        with _unless_the_folder_fails():
            claim = None if who in self._shared else await _claim(self._folder, who)
            if claim is None:
                self._is_shared(who)
                await asyncio.to_thread(self._folder.shared, who)
                return
            self._claims[who] = claim
            self.drop(who)
            if found := await asyncio.to_thread(self._folder.read, who):
                chat, tools = found
                self._park(who, resume(chat), tools)

    async def keep(self, who: Identity | None, memory: Memory, tools: tuple[Tool, ...]) -> None:
        """Park a conversation, or close it if no client could resume it."""
        wanted = who is not None and who not in self._shared and self._keep_s > 0
        if who is not None and wanted and self._folder and who in self._claims:
            with _unless_the_folder_fails():
                await asyncio.to_thread(self._folder.write, who, memory.chat, tools)
        if who is None or not wanted or self._folder or self._closed:
            memory.close()
            return
        self._park(who, memory, tools)

    async def end(self, who: Identity | None, memory: Memory) -> None:
        """Close a conversation for good."""
        memory.close()
        if self._folder and who is not None:
            with _unless_the_folder_fails():
                await asyncio.to_thread(self._folder.forget, who)

    def _park(self, who: Identity, memory: Memory, tools: tuple[Tool, ...]) -> None:
        self.drop(who)
        self._make_room(who.address)
        loop = asyncio.get_running_loop()
        expiry = loop.call_later(self._keep_s, self.drop, who)
        self._parked[who] = _Parked(memory, tools, expiry)

    def waits_for(self, who: Identity | None, *, tools: bool = False) -> bool:
        """Whether ``who`` can ``take`` a conversation, given the right tools. ``tools``: only
        a conversation that has any."""
        return who in self._parked and (not tools or bool(self._parked[who].tools))

    def take(self, who: Identity | None, tools: tuple[Tool, ...]) -> Memory | None:
        """The conversation of ``who``, now the caller's to close, or ``None``.

        Different tools (in any order) mean a different conversation: the parked one is closed.
        """
        if who is None or who not in self._parked:
            return None
        before, now = ({t.name: t for t in each} for each in (self._parked[who].tools, tools))
        if before != now:
            self.drop(who)
            return None
        parked = self._parked.pop(who)
        parked.expiry.cancel()
        return parked.memory

    def drop(self, who: Identity | None) -> None:
        """Close what is parked for ``who``, whose next conversation is new."""
        if who is not None and (parked := self._parked.pop(who, None)):
            parked.expiry.cancel()
            parked.memory.close()

    def close(self) -> None:
        """Close everything parked, and anything that is handed in later."""
        self._closed = True
        for who in list(self._parked):
            self.drop(who)

    def _make_room(self, address: str) -> None:
        """Drop the oldest conversation of ``address``, or of the address with the most."""
        held = Counter(who.address for who in self._parked)
        if held[address] >= MAX_PARKED_EACH:
            fullest = address
        elif len(self._parked) >= MAX_PARKED:
            fullest = max(held, key=lambda at: held[at])
        else:
            return
        self.drop(next(who for who in self._parked if who.address == fullest))

    def _is_shared(self, who: Identity) -> None:
        self.drop(who)
        self._shared[who] = None
        while len(self._shared) > MAX_SHARED:
            del self._shared[next(iter(self._shared))]


@contextmanager
def _unless_the_folder_fails() -> Iterator[None]:
    """Log the failure. The client is still served; its conversation ends with its connection."""
    try:
        yield
    except OSError as error:
        log.warning("server.conversations_dir: a conversation is not kept: %s", error)


async def _claim(folder: ConversationFolder, who: Identity) -> int | None:
    """Claim ``who``, several times if needed: the server just left may be about to release it."""
    for pause_s in CLAIMED_AGAIN_S:
        if (claim := await _claim_once(folder, who)) is not None:
            return claim
        await asyncio.sleep(pause_s)
    return await _claim_once(folder, who)


async def _claim_once(folder: ConversationFolder, who: Identity) -> int | None:
    """A thread cannot be cancelled: a claim that it makes too late is released at once."""

    def release(claiming: asyncio.Task[int | None]) -> None:
        if not claiming.exception() and (claim := claiming.result()) is not None:
            folder.release(claim)

    claiming = asyncio.create_task(asyncio.to_thread(folder.claim, who))
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        claiming.add_done_callback(release)
        raise
