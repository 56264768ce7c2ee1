"""One client and one session, whatever carries the client's messages: a WebSocket, or a call.

The session begins with the client's first message, because only then is it known whether the client
resumes a conversation (``app.server.reconnect``). If one is parked for it, the session begins with
the first message that is not a ``session.update``, or after ``SETTLED_S``. Everything runs in one
TaskGroup: when one task ends, all do, so a client that vanishes stops its reply at once.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from app.access.client_secrets import ClientSecret
from app.access.limits import MessageRate
from app.access.policy import Caller
from app.api.routes import Engines
from app.console.recent_turns import RecentTurns
from app.server.identity import Identity
from app.server.metrics import Ending, Metrics
from app.server.reconnect import ParkedConversations
from app.server.session_address import protocol_for
from app.settings.model import LimitSettings
from pipeline.bus import Bus, SlowSubscriber
from pipeline.commands import AppendAudio, Command, Configure, SessionConfig, WakeUp
from pipeline.conversation.chat import Chat
from pipeline.conversation.memory import Memory
from pipeline.events import (
    Event,
    InputCleared,
    ReplyFinished,
    ReplyStarted,
    SpeechRejected,
    SpeechStarted,
    SpeechStopped,
)
from pipeline.realtime import wire
from pipeline.realtime.protocol import RealtimeConnection
from pipeline.realtime.wire import ClientMessage, WireError
from pipeline.session import Session
from pipeline.work import CLIENT

NORMAL, GOING_AWAY, POLICY, INTERNAL = 1000, 1001, 1008, 1011
"""Close codes of RFC 6455. 1008 is a full server, or a client too slow or too fast for it."""

SETTLED_S = 3.0
"""A client that resumes a conversation has sent all its settings this long after the first ones."""

SEND_STALL_S = 10.0
"""A client that reads nothing for this long is too slow. Robots have been seen to pause for 4 s."""

_TOO_FAST = (
    "Messages arrive faster than the server reads them (limits.messages_per_s). It now reads them "
    "more slowly; send fewer or larger ones."
)

LARGE_MESSAGE_CHARS = 256 * 1024
"""Messages longer than this (images, whole recordings) are decoded in a thread."""

logger = logging.getLogger(__name__)


class AssistantLike(Engines, Protocol):
    def session(
        self, bus: Bus, config: SessionConfig, memory: Memory | None = None, place: str = ""
    ) -> Session:
        """``memory``: of a resumed conversation. ``place``: the client's address."""
        ...

    def memory(self, chat: Chat) -> Memory:
        """The memory of a conversation that began at another server."""
        ...

    async def idle(self) -> None:
        """Return when no reply is in progress."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """What all clients of one server share."""

    assistant: AssistantLike
    parked: ParkedConversations
    metrics: Metrics
    limits: LimitSettings
    turns: RecentTurns


@dataclass(frozen=True, slots=True)
class Opening:
    """How a client opens its conversation."""

    caller: Caller
    who: Identity | None
    """The identity with which it may resume; ``None``: it cannot."""
    query: Mapping[str, str]
    fields: Mapping[str, Any]
    """``query`` and ``fields`` are as for ``protocol_for``."""
    secret: ClientSecret | None = None
    """The one that let it in, if any."""


class ClientGone(Exception):
    """The connection has ended."""

    def __init__(self, *, lost: bool) -> None:
        super().__init__(lost)
        self.lost = lost
        """Neither side chose to end it."""


class Closure(Exception):
    """The server ends this connection."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class RealtimeLink(ABC):
    """Serves one client until either side ends it."""

    def __init__(self, opening: Opening, services: Services, sends_audio: bool = True) -> None:
        assistant, limits = services.assistant, services.limits
        self.who = opening.who
        self.client = CLIENT.get()
        self.resting = asyncio.Event()
        """Set while neither side speaks or may be about to."""
        self.resting.set()
        self._user_speaks = False
        self._replies = 0
        """Replies in progress."""
        self.caller = opening.caller
        self.address = self.caller.place
        self.ended = asyncio.Event()
        """Set by the caller of ``serve``, when everything that belongs to the client has ended."""
        self._bus = Bus()
        self._events = self._bus.subscribe()
        self._metrics = services.metrics
        self._metrics.observe(self._bus)
        services.turns.watch(self._bus, self.address)
        self._opening = opening
        self._protocol = protocol_for(
            assistant.defaults(),
            opening.query,
            opening.fields,
            on_error=self._metrics.note_error,
            sends_audio=sends_audio,
        )
        self._assistant = assistant
        self._parked = services.parked
        self._session: Session | None = None
        self._has_settings = False
        """Whether settings have come before the session began."""
        self._settling: asyncio.Task[None] | None = None
        self._memory: Memory | None = None
        self._resumed = False
        self._sending = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._rate = MessageRate(limits.messages_per_s, limits.message_burst, now)
        self._idle_s = limits.idle_s
        self._heard_at = now
        """When a message last passed, either way."""
        self._closed = Closure(GOING_AWAY, "")

    # -- what carries the messages

    @abstractmethod
    async def _send(self, text: str) -> None:
        """Raises ``SlowSubscriber``, or ``ClientGone``."""

    @abstractmethod
    async def _receive(self) -> None:
        """Pass what the client sends to ``take``; ends by raising ``ClientGone``."""

    @abstractmethod
    async def _loss(self) -> ClientGone:
        """Wait until the connection has ended, whatever the cause."""

    @abstractmethod
    async def _hang_up(self, closed: Closure) -> None:
        """End the connection, whether or not the client takes note."""

    @abstractmethod
    async def cut_if_dead(self) -> None:
        """End the connection if the client does not respond any more."""

    # -- life

    def close(self, code: int, reason: str) -> None:
        """Send what has happened so far, then close with ``code`` and let ``serve`` return."""
        self._closed = Closure(code, reason)
        self._events.close()

    @property
    def asleep(self) -> bool:
        return self._session is not None and self._session.asleep

    async def touch(self) -> None:
        if self._session:
            await self._session.submit(WakeUp())

    async def serve(self) -> None:
        with self._metrics.session(), self._parked.present(self.who):
            await self._parked.fetch(self.who, self._assistant.memory)
            if self._opening.query.get("resume") == "false":
                self._parked.drop(self.who)
            await self._serve()

    async def _serve(self) -> None:
        ended: Ending = "server"
        closed: Closure | None = None
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._send_events())
                self._tasks.create_task(self._notice_loss())
                if self._idle_s is not None:
                    self._tasks.create_task(self._notice_idleness(self._idle_s))
                await self._receive()
        except* ClientGone as group:
            ended = "lost" if first(group).lost else "client"
        except* Closure as group:
            closed = first(group)
        except* SlowSubscriber:
            ended, closed = "too_slow", Closure(POLICY, "client too slow")
        except* Exception:
            logger.exception("A session failed")
            ended, closed = "failed", Closure(INTERNAL, "internal error")
        finally:
            await self._leave(ended, moved=closed is not None and closed.code == GOING_AWAY)
        if closed is not None:
            await self._hang_up(closed)

    def _begin(self) -> Session:
        """Create the session, with the conversation that the client resumes, if any."""
        config = self._protocol.config
        memory = self._parked.take(self.who, config.tools)
        if memory is not None:
            self._resumed = True
            self._metrics.note_resumption()
        session = self._assistant.session(self._bus, config, memory, self.address)
        self._memory = session.release()
        self._tasks.create_task(session.run())
        return session

    async def _leave(self, ended: Ending, *, moved: bool) -> None:
        self._metrics.note_end(ended)
        if self._memory is None:
            return
        # The memory may have caused a resumed session to fail, so it is not resumed again.
        again = ended in ("lost", "too_slow") or (ended == "failed" and not self._resumed)
        if again or moved:
            await self._parked.keep(self.who, self._memory, self._protocol.config.tools)
        else:
            await self._parked.end(self.who, self._memory)

    async def _configure(self) -> None:
        """Apply the session fields that came with the connection."""
        fields = self._opening.fields
        await self._submit(self._protocol.configure(fields) if fields else [])

    async def take(self, frame: str | bytes) -> None:
        """Carry out one message of the client."""
        message = await read(self._protocol, frame)
        await self._submit(self._commands(message) if message else [])
        await self._hold_back()

    def _commands(self, message: ClientMessage) -> Sequence[Command]:
        return self._protocol.receive(message)

    async def _submit(self, commands: Sequence[Command]) -> None:
        """Carry out what the client asks, and send what the protocol answers."""
        for command in commands:
            if self._session is None:
                if self._is_early(command):
                    self._has_settings |= isinstance(command, Configure)
                    self._settling = self._settling or self._tasks.create_task(self._settle())
                    continue
                self._session = self._begin()
            await self._session.submit(command)
        await self._flush()

    def _is_early(self, command: Command) -> bool:
        """Whether the tools may yet come that tell if the client resumes its conversation. Sound
        that comes before all settings, from a microphone that is always on, is left out."""
        if isinstance(command, AppendAudio):
            knows = self._has_settings or self._protocol.config.tools
            return not knows and self._parked.waits_for(self.who, tools=True)
        return isinstance(command, Configure) and self._parked.waits_for(self.who)

    async def _settle(self) -> None:
        """Begin although the client sends only settings: it may be muted, or push to talk."""
        await asyncio.sleep(SETTLED_S)
        self._session = self._session or self._begin()

    async def _hold_back(self) -> None:
        """Wait as long as the limits demand before reading on; TCP slows the client down."""
        now = self._loop.time()
        self._heard_at = now
        pace = self._rate.take(now)
        if pace.close:
            raise Closure(POLICY, "too many messages")
        if pace.tell:
            self._protocol.refuse(WireError("rate_limit_exceeded", _TOO_FAST))
            await self._flush()
        if pace.wait_s:
            await asyncio.sleep(pace.wait_s)

    async def _notice_idleness(self, limit_s: float) -> None:
        while True:
            left_s = self._heard_at + limit_s - self._loop.time()
            if left_s <= 0:
                raise Closure(NORMAL, "idle for too long")
            await asyncio.sleep(left_s)

    async def _notice_loss(self) -> None:
        """End the session once the connection is lost, even in the middle of a message."""
        raise await self._loss()

    async def _send_events(self) -> None:
        async for _, event in self._events:
            await self._apply(event)
            self._note_rest(event)
            await self._flush()
        raise self._closed  # only ``close`` ends the events

    async def _apply(self, event: Event) -> None:
        self._protocol.apply(event)

    def _note_rest(self, event: Event) -> None:
        match event:
            case SpeechStarted():
                self._user_speaks = True
            case SpeechRejected() | InputCleared():
                self._user_speaks = False
            case SpeechStopped(why=why):  # does an answer follow by itself?
                self._user_speaks = why != "client" and self._protocol.config.answers_turns
            case ReplyStarted():
                self._user_speaks = False
                self._replies += 1
            case ReplyFinished():
                self._replies -= 1
        self.look()

    def look(self) -> None:
        """Bring ``resting`` up to date: after each event, and before each message."""
        (self.resting.clear if self._busy() else self.resting.set)()

    def _busy(self) -> bool:
        attentive = self._session is not None and self._session.attentive
        return self._user_speaks or self._replies > 0 or attentive

    async def _flush(self) -> None:
        """Send what is queued, in order; both directions call this."""
        async with self._sending:
            for text in self._protocol.messages_to_send():
                try:
                    async with asyncio.timeout(SEND_STALL_S):
                        await self._send(text)
                except TimeoutError:
                    raise SlowSubscriber(f"nothing read for {SEND_STALL_S} s") from None
                self._heard_at = self._loop.time()
                await asyncio.sleep(0)  # let other clients run during a long burst


async def read(protocol: RealtimeConnection, frame: str | bytes) -> ClientMessage | None:
    """Parse a frame, a long one in a thread; ``None``: it was refused."""
    try:
        if len(frame) <= LARGE_MESSAGE_CHARS:
            return wire.parse(frame)
        return await asyncio.to_thread(wire.parse, frame)
    except WireError as error:
        protocol.refuse(error)
        return None


Ended = TypeVar("Ended", ClientGone, Closure)


def first(group: BaseExceptionGroup[Ended]) -> Ended:
    """The first error in the group that is not a group itself."""
    error = group.exceptions[0]
    return first(error) if isinstance(error, BaseExceptionGroup) else error
