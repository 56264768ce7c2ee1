"""A client on WebRTC: messages on a data channel, sound on tracks. Other clients may control its
session over a WebSocket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from app.access.client_secrets import ClientSecret
from app.access.policy import Caller
from app.server.identity import identity_of, maker_of
from app.server.realtime_link import (
    ClientGone,
    Closure,
    Opening,
    RealtimeLink,
    Services,
)
from app.webrtc.output_queue import RATE, OutputQueue, OutputState
from app.webrtc.peer import LEAST_LAG_S, Peer
from pipeline.bus import Published
from pipeline.commands import AppendAudio, CancelResponse, Command
from pipeline.events import (
    Event,
    OutputBuffer,
    ReplyAudio,
    ReplyFinished,
    ReplyStarted,
    SpeechStarted,
)
from pipeline.realtime.wire import ClientMessage, WireError
from pipeline.session import Session

CONTROLS = 4
"""Most control sockets per call."""
UNREAD = 1024
"""How many messages a control socket may lag behind."""

log = logging.getLogger("reachy_voice.server")


class CallLink(RealtimeLink):
    """Serves one call. Its answers are played on the track, never sent as messages."""

    def __init__(self, peer: Peer, opening: Opening, services: Services) -> None:
        super().__init__(opening, services, sends_audio=False)
        self.output = OutputQueue(self._tell)
        self._peer = peer
        self._connect_s = services.limits.handshake_s
        self._controls: set[asyncio.Queue[str | None]] = set()
        self._ready = asyncio.Event()
        """Set once messages may be carried out."""
        self._bus.tap(self._play)

    async def serve(self) -> None:
        try:
            async with asyncio.timeout(self._connect_s):
                await self._peer.opened.wait()
        except TimeoutError:
            log.warning(
                "%s: no WebRTC connection in %g s: does a firewall hold back UDP? (docs/webrtc.md)",
                *(self.address, self._connect_s),
            )
        else:
            if not self._peer.ended:
                await super().serve()

    def close(self, code: int, reason: str) -> None:
        super().close(code, reason)
        if not self._peer.opened.is_set():
            self._peer.end(lost=False)

    @asynccontextmanager
    async def control(self) -> AsyncIterator[asyncio.Queue[str | None]]:
        """A queue of what the client is sent from now on; ``None``: it was read too slowly."""
        unread: asyncio.Queue[str | None] = asyncio.Queue(UNREAD)
        unread.put_nowait(self._protocol.introduction())
        self._controls.add(unread)
        try:
            yield unread
        finally:
            self._controls.discard(unread)

    async def steer(self, frame: str | bytes) -> None:
        """Carry out one message from a control socket, once the call is connected."""
        await self._ready.wait()
        await self.take(frame)

    def is_of(self, caller: Caller, secret: ClientSecret | None) -> bool:
        """Whether ``caller`` may control this call: as its client, or as maker of its secret."""
        used = self._opening.secret
        return (
            (caller.place, caller.keys) == (self.address, self.caller.keys)
            or (self.who is not None and self.who == identity_of(caller, secret))
            or (used is not None and used.maker == maker_of(caller))
        )

    @property
    def crowded(self) -> bool:
        return len(self._controls) >= CONTROLS

    # -- from the client

    async def cut_if_dead(self) -> None:
        if not await self._peer.answers():
            self._peer.end(lost=True)
            await self.ended.wait()

    async def _receive(self) -> None:
        await self._flush()  # controls have had a session.created
        self._ready.set()
        await self._configure()
        while True:
            got = await self._peer.receive()
            self.look()
            if isinstance(got, str | bytes):
                await self.take(got)
                continue
            self._heard_at = self._loop.time()
            await self._submit([AppendAudio(got, RATE, live=True)])

    def _begin(self) -> Session:
        session = super()._begin()
        session.set_player_lag(LEAST_LAG_S)  # until the client has reported
        return session

    async def _loss(self) -> ClientGone:
        return ClientGone(lost=await self._peer.ending())

    def _commands(self, message: ClientMessage) -> Sequence[Command]:
        if message.type != "output_audio_buffer.clear":
            return super()._commands(message)
        return [CancelResponse(each, message.event_id) for each in self.output.clear()]

    # -- to the client

    def _busy(self) -> bool:
        """Also while the end of an answer waits here: the client has only what was played."""
        return super()._busy() or self.output.plays

    def _tell(self, reply_id: str, state: OutputState) -> None:
        self._bus.publish(OutputBuffer(reply_id, state))

    def _play(self, published: Published) -> None:
        match published.event:
            case ReplyAudio(reply_id=reply_id, pcm=pcm, rate=rate) if self._peer.plays:
                self.output.say(reply_id, pcm, rate)
            case ReplyFinished(reply_id=reply_id, status="cancelled"):
                self.output.cut(reply_id)
            case ReplyFinished(reply_id=reply_id):
                self.output.end(reply_id)
            case SpeechStarted() if self._protocol.config.interruptible:
                self.output.clear()

    async def _apply(self, event: Event) -> None:
        if isinstance(event, ReplyStarted | SpeechStarted) and self._session:  # for the next reply
            self._session.set_player_lag(await self._peer.player_lag_s())
        if not isinstance(event, ReplyAudio):
            await super()._apply(event)

    async def _send(self, text: str) -> None:
        for unread in list(self._controls) if self._ready.is_set() else ():
            if unread.full():
                self._controls.discard(unread)
                unread.get_nowait()
                unread.put_nowait(None)
            else:
                unread.put_nowait(text)
        try:
            await self._peer.send(text)
        except ValueError as error:
            self._protocol.refuse(WireError("event_too_large", str(error)))

    async def _hang_up(self, closed: Closure) -> None:
        """Does nothing: ``Peer.close``, which is always called, ends the connection."""
