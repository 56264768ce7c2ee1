"""The clients of one server, and whether there is a place for another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn

from app.access.policy import Caller
from app.models.engine_set import EXCHANGED
from app.server import health
from app.server.callers import Callers
from app.server.identity import Identity
from app.server.load import PERIOD_S, Load, LoadHistory
from app.server.metrics import Refusal, watch_lag
from app.server.realtime_link import GOING_AWAY, Opening, RealtimeLink, Services
from app.server.session_address import transcribes
from pipeline.engines.by_url.engine import ASKS_TO_WAIT
from pipeline.engines.registry import Kind
from pipeline.work import new_client

SESSION_LIMIT = "session_limit_reached"
"""Error code for a client that connects when all places are taken."""

ALL_TAKEN = "All places are taken. Try again later."
FULL = {"server": "full"}
"""Why a client is refused for which there is no place (``Clients.refusal``)."""

log = logging.getLogger("reachy_voice.server")


class Clients:
    """The clients of one server: at most ``most``."""

    def __init__(self, most: int, services: Services) -> None:
        self.closing = False
        """Whether new clients are refused."""
        self.services = services
        self.metrics = services.metrics
        self.parked = services.parked
        self.callers = Callers()
        limits = services.limits
        self.history = LoadHistory()
        self._load = Load(limits.lag_ms / 1000 if limits.lag_ms else None)
        self._most = most
        self._each = limits.sessions_per_address or most
        self.open: set[RealtimeLink] = set()
        self._changed = asyncio.Event()

    def resting(self) -> list[asyncio.Event]:
        """One event for each conversation, set while it needs no engine."""
        return [link.resting for link in self.open]

    @property
    def busy(self) -> str | None:
        """Why no client at all is admitted, in one word for a balancer; ``None`` if some may be."""
        if self.closing:
            return "draining"
        full = len(self.open) >= self._most or (self.open and self._load.too_high)
        return "full" if full else None

    async def refusal(self, opening: Opening) -> Mapping[str, str]:
        """Why a client that has just come is refused: what is not ready, and why, or ``FULL``.
        Empty if it is admitted: then it takes its ``place`` before anything is awaited."""
        address = opening.caller.place
        await self.cut_dead(opening.who, address)
        reason: Refusal
        if self.closing:
            reason, why = "closing", {"server": "shutting down"}
        elif why := self._unready(transcribes(opening.query, opening.fields)):
            reason = "not_ready"
        elif self._full(address):
            reason, why = "full", FULL
            log.info("%s was turned away: this server is full", address)
        else:
            return {}
        self.metrics.note_refusal(reason)
        self.callers.refuse(address, 503)
        return why

    def _unready(self, transcribing: bool) -> dict[str, str]:
        """Engines without which a new client cannot be served, and why. ``transcribing``: it needs
        neither the voice nor the language model."""
        return {
            name: why
            for name, why in health.unready(self.services.assistant).items()
            if not why.startswith((EXCHANGED, ASKS_TO_WAIT))
            and not (transcribing and name in (Kind.LLM, Kind.TTS))
        }

    def _full(self, address: str) -> bool:
        """Whether there is no place for a client from ``address``."""
        of_address = sum(link.address == address for link in self.open)
        return self.busy is not None or of_address >= self._each

    def __len__(self) -> int:
        """How many clients are connected."""
        return len(self.open)

    async def cut_dead(self, who: Identity | None, address: str) -> None:
        """End dead connections of ``who``, so that a client that reconnects finds its place and its
        conversation. If there is no place, end all dead connections from its address."""
        if who is not None:
            await self._cut_dead(link for link in self.open if link.who == who)
        if self._full(address):
            await self._cut_dead(link for link in self.open if link.address == address)

    async def _cut_dead(self, links: Iterable[RealtimeLink]) -> None:
        async with asyncio.TaskGroup() as probes:
            for link in list(links):
                probes.create_task(link.cut_if_dead())

    @contextlib.contextmanager
    def place(self, link: RealtimeLink) -> Iterator[None]:
        """Take a place for a client before anything is awaited, so that no other one takes it and
        ``close_all`` reaches the client. It is freed as soon as the context ends."""
        self.open.add(link)
        self.callers.connect(link.address)
        log.info("%s connects; conversations: %d", link.address, len(self.open))
        try:
            yield
        finally:
            log.info("%s disconnected", link.address)
            self.open.remove(link)
            self.callers.disconnect(link.address)
            link.resting.set()  # for those who wait
            link.ended.set()
            self._changed.set()

    def number(self, caller: Caller) -> int:
        """A robot's number, the same for all its connections: engines serve robots in turn."""
        same = (
            link.client
            for link in self.open
            if (link.caller.place, link.caller.keys) == (caller.place, caller.keys)
        )
        return next(same, 0) or new_client()

    async def watch(self) -> NoReturn:
        """Measure the load of this process, and the lag of its timers while it has clients."""
        looked_at = time.monotonic()

        def note(lag_s: float) -> None:
            nonlocal looked_at
            self._load.note(lag_s)
            if self.open:
                self.metrics.lag.observe(lag_s)
            if (now := time.monotonic()) - looked_at >= PERIOD_S:
                looked_at = now
                self._load.look(now, time.thread_time())

        await watch_lag(note)

    async def part(self) -> None:
        """Disconnect each client once no turn of its conversation is in progress."""

        async def after_its_answer(link: RealtimeLink) -> None:
            link.look()
            await link.resting.wait()
            link.close(GOING_AWAY, "server shutting down")

        async with asyncio.TaskGroup() as group:
            for link in list(self.open):
                group.create_task(after_its_answer(link))

    def close_all(self) -> None:
        """Tell every client that the server is going away. Its conversation can be resumed only at
        another server that shares the folder."""
        self.closing = True
        self.parked.close()
        self.services.turns.close()
        for link in self.open:
            link.close(GOING_AWAY, "server shutting down")

    async def empty(self) -> None:
        """Return when the last client is gone."""
        while self.open:
            self._changed.clear()
            await self._changed.wait()
