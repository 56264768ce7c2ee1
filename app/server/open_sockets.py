"""The clients of one server, and whether there is a place for another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn

from starlette.websockets import WebSocket

from app.access.policy import Caller
from app.models.engine_set import EXCHANGED
from app.server import health
from app.server.callers import Callers
from app.server.gate import CALLER
from app.server.identity import Identity
from app.server.load import PERIOD_S, Load, LoadHistory
from app.server.metrics import Refusal, watch_lag
from app.server.realtime_link import GOING_AWAY, RealtimeLink, Services
from app.server.realtime_socket import RealtimeSocket, accept
from app.server.websocket_link import LINK
from pipeline.engines.by_url.engine import ASKS_TO_WAIT
from pipeline.engines.registry import Kind
from pipeline.work import CLIENT, new_client

SESSION_LIMIT = "session_limit_reached"
"""Error code for a client that connects when all places are taken."""

ALL_TAKEN = "All places are taken. Try again later."

log = logging.getLogger("reachy_voice.server")


class OpenSockets:
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

    def full(self, address: str) -> bool:
        """Whether there is no place for a client from ``address``."""
        of_address = sum(link.address == address for link in self.open)
        return self.busy is not None or of_address >= self._each

    def turned_away(self, address: str, *, transcribes: bool) -> Mapping[str, str]:
        """Why a client that has just come from ``address`` is refused, whoever it is.
        ``transcribes``: its session only transcribes, and needs no other engine."""
        if self.closing:
            self._refuse(address, "closing")
            return {"server": "shutting down"}
        reasons = {
            name: why
            for name, why in health.unready(self.services.assistant).items()
            if not why.startswith((EXCHANGED, ASKS_TO_WAIT))
            and not (transcribes and name in (Kind.LLM, Kind.TTS))
        }
        if reasons:
            self._refuse(address, "not_ready")
        return reasons

    def has_no_place(self, address: str) -> bool:
        """Whether a client that has just come from ``address`` is refused for want of a place."""
        if not self.full(address):
            return False
        self._refuse(address, "full")
        log.info("%s was turned away: this server is full", address)
        return True

    def _refuse(self, address: str, reason: Refusal) -> None:
        self.metrics.note_refusal(reason)
        self.callers.refuse(address, 503)

    def __len__(self) -> int:
        """How many clients are connected."""
        return len(self.open)

    async def cut_dead(self, who: Identity | None, address: str) -> None:
        """End dead connections of ``who``, so that a client that reconnects finds its place and its
        conversation. If there is no place, end all dead connections from its address."""
        if who is not None:
            await self._cut_dead(link for link in self.open if link.who == who)
        if self.full(address):
            await self._cut_dead(link for link in self.open if link.address == address)

    async def _cut_dead(self, links: Iterable[RealtimeLink]) -> None:
        async with asyncio.TaskGroup() as probes:
            for link in list(links):
                probes.create_task(link.cut_if_dead())

    async def serve(self, websocket: WebSocket, who: Identity | None) -> None:
        """Accept a WebSocket and serve it to its end."""
        CLIENT.set(self.number(websocket.scope[CALLER]))
        link = RealtimeSocket(websocket, who, self.services)
        with self.place(link):
            websocket.scope["extensions"][LINK].on_settled()
            await accept(websocket)
            await link.serve()

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
