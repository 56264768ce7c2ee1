"""Delivers announcements to the conversations of one process, now or once a client connects.

A conversation is named after its client's address, or a note about that address
(``reachy-voice allow ADDRESS --note kitchen``); that of ``talk`` on this machine is "talk".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from app.access.file import AccessFile
from app.access.policy import Network, is_in, parse_address, parse_network
from app.owner_file import same_name
from pipeline.errors import ReachyVoiceError
from pipeline.speaking.announcements import AnnouncementEnd
from pipeline.spoken import speakable

EVERYBODY = "all"
TALK = "talk"
MOST_CHARS = 1000
"""About a minute of speech."""
MOST_KEPT = 32
"""Announcements kept until a client connects."""
PATIENCE_S = 30.0
"""How long to wait for a pause before looking again who is there, and what is to be said."""
RETRY_S, MOST_RETRY_S = 10.0, 160.0
"""After a failure; twice as long after each further one."""


class AnnouncementError(ReachyVoiceError):
    """An announcement reached nobody."""

    exit_code = 22


class UnknownConversation(ReachyVoiceError):
    """No conversation has this name."""

    exit_code = 2


class AnnouncingSession(Protocol):
    """A ``pipeline.session.Session``."""

    @property
    def announces(self) -> bool: ...

    async def announce(self, text: str, until: float) -> AnnouncementEnd: ...


class AnnouncementRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = Field(max_length=MOST_CHARS)
    to: str = Field(default=EVERYBODY, max_length=100)
    """The name of a conversation, or ``all``."""
    within_s: float = Field(default=60.0, gt=0, le=600)
    """How long to wait for a pause."""
    keep_s: float = Field(default=600.0, ge=0, le=86_400)
    """How long to wait for a client, if none is connected."""


class Announcer:
    """The announcements of one process; ``run`` it in a task."""

    def __init__(self, sessions: Callable[[], Iterable[tuple[AnnouncingSession, str]]]) -> None:
        """``sessions`` returns each with its client's place; that of ``talk`` is empty."""
        self.file: AccessFile | None = None
        """The list of allowed addresses, whose notes name conversations."""
        self._sessions = sessions
        self._deliveries: set[asyncio.Task[bool]] = set()
        self._arrivals: set[asyncio.Event] = set()
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.Event().wait()

    def arrive(self) -> None:
        """Tell waiting deliveries that a conversation begins."""
        for arrival in self._arrivals:
            arrival.set()

    def conversations(self, matches: Callable[[str], bool]) -> dict[AnnouncingSession, str]:
        """The conversations whose place ``matches``."""
        places = list(self._sessions())
        return {each: place for each, place in places if each.announces and matches(place)}

    async def announce(self, request: AnnouncementRequest) -> dict[str, Any]:
        """Returns what became of it, as JSON data. Raises ``UnknownConversation``, and
        ``AnnouncementError`` if no client is connected and it cannot be kept."""
        if not speakable(request.text):
            raise AnnouncementError("There is nothing to say", why="the text has no words")
        notes = await self._notes()
        matches = _matches(request.to, notes)
        ends = await self.say(request.text, matches, request.within_s)
        kept_s = 0.0
        if not ends:
            kept_s = request.keep_s
            self._keep(request, matches)
        conversations = [{"name": _shown(place, notes), **asdict(end)} for place, end in ends]
        return {"conversations": conversations, "kept_s": kept_s}

    async def say(
        self, text: str, matches: Callable[[str], bool], within_s: float
    ) -> list[tuple[str, AnnouncementEnd]]:
        """Say it in all these conversations, each in its next pause; returns when it is over in
        all, with the place of each."""
        until = asyncio.get_running_loop().time() + within_s
        async with asyncio.TaskGroup() as group:
            tasks = [
                (place, group.create_task(session.announce(text, until)))
                for session, place in self.conversations(matches).items()
            ]
        return [(place, task.result()) for place, task in tasks]

    async def deliver(
        self, text: Callable[[], str], matches: Callable[[str], bool], within_s: float
    ) -> bool:
        """Say ``text()`` now, whenever a conversation begins, and again after a failure or without
        a pause, until it was heard. Returns whether anybody did within ``within_s``."""
        loop, retry_s = asyncio.get_running_loop(), RETRY_S
        until = loop.time() + within_s
        while (left_s := until - loop.time()) > 0:
            arrival = asyncio.Event()
            self._arrivals.add(arrival)
            try:
                ends = await self.say(text(), matches, min(left_s, PATIENCE_S))
                outcomes = {end.outcome for _, end in ends}
                if outcomes & {"said", "interrupted"}:
                    return True
                again_at = loop.time() if "busy" in outcomes else until
                if outcomes & {"failed", "full"}:
                    again_at = min(until, loop.time() + retry_s)
                    retry_s = min(2 * retry_s, MOST_RETRY_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(again_at):
                        await arrival.wait()
            finally:
                self._arrivals.discard(arrival)
        return False

    async def _notes(self) -> Sequence[tuple[str, Network]]:
        if self.file is None:
            return ()
        entries = (await asyncio.to_thread(self.file.current)).addresses
        return [(each.note, parse_network(each.network)) for each in entries if each.note]

    def _keep(self, request: AnnouncementRequest, matches: Callable[[str], bool]) -> None:
        if not request.keep_s or self._tasks is None:
            fix = "Connect one, or let it be kept for a while (--keep 600, keep_s)"
            raise AnnouncementError("Nobody heard it", why="no such conversation is open", fix=fix)
        if len(self._deliveries) >= MOST_KEPT:
            why = f"{MOST_KEPT} announcements wait for a conversation already"
            raise AnnouncementError("Nobody will hear it", why=why, fix="Connect a robot")
        task = self._tasks.create_task(self.deliver(lambda: request.text, matches, request.keep_s))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)


def _matches(to: str, notes: Sequence[tuple[str, Network]]) -> Callable[[str], bool]:
    """Raises ``UnknownConversation``."""
    if same_name(to, EVERYBODY):
        return lambda place: True
    if same_name(to, TALK):
        return lambda place: not place
    networks = [network for note, network in notes if same_name(note, to)]
    address = parse_address(to.strip())
    if address is None and not networks:
        raise UnknownConversation(
            f"No conversation is called {to!r}",
            why="it is neither an address nor the note of one",
            fix="Name an address: reachy-voice allow ADDRESS --note NAME; or say it to all",
        )

    def matches(place: str) -> bool:
        at = parse_address(place)
        return at is not None and (at == address or is_in(at, networks))

    return matches


def _shown(place: str, notes: Sequence[tuple[str, Network]]) -> str:
    at = parse_address(place)
    names = (note for note, network in notes if note and at is not None and at in network)
    return next(names, place or TALK)
