"""One client's WebRTC connection, by aiortc: an offer in, an answer out, then messages and sound.

Imported only if ``server.webrtc`` is true, because it imports aiortc.
"""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import UTC, datetime

from aiortc import (
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.sdp import SessionDescription
from aiortc.stats import RTCRemoteInboundRtpStreamStats

from app.access.api_errors import ApiError
from app.webrtc.output_queue import RATE, OutputQueue
from app.webrtc.tracks import FRAME_S, PacketEar, SpeakerTrack
from pipeline.audio import Pcm

log = logging.getLogger("reachy_voice.webrtc")

MOST_MESSAGES, MOST_CHARS = 4096, 32 * 1024 * 1024
"""Most messages that wait for the session, and their characters: more than ``limits.message_burst``
usually allows, as nothing here holds a client back like TCP."""
MOST_FRAMES = 256
"""Most frames of sound that wait for the session: five seconds."""
FULL_BYTES, ROOM_BYTES = 256 * 1024, 64 * 1024
"""If more than the first size is unsent, sending waits until no more than the second is."""
SILENCE_S = 3.0
"""A client that has been heard is gone if it sends no sound for this long, and no report for twice
as long. Muted ones still report: browsers do every 5 s."""
MOST_IN_PARTS = 1024 * 1024
"""Most bytes of unfinished messages beyond the room that the client was told of."""
PLAYER_S = 0.06
"""What a browser's jitter buffer holds at rest: three packets."""
LEAST_LAG_S = FRAME_S + PLAYER_S
"""How long after being queued sound is heard, at least."""

MOST_LINES = 300
"""Most lines of an offer, without its candidates; browsers send under a hundred. aiortc's memory
grows with their square: gigabytes, for as many lines as a request has room for."""

_CANDIDATES = re.compile(r"^a=(candidate:|end-of-candidates).*\r?\n?", re.MULTILINE)
_EXTENSION_ATTRIBUTES = re.compile(r"^(a=extmap:\S+ \S+)[^\r\n]+", re.MULTILINE)


def _invalid(why: str) -> ApiError:
    return ApiError(400, "invalid_offer", why, "sdp")


class Peer:
    """``answer`` the offer, wait for ``opened``, ``receive``; ``close`` it in any case."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        """Set once messages can pass, or never will."""
        self.plays = True
        """Whether the client takes sound."""
        self._loop = asyncio.get_running_loop()
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._channel: RTCDataChannel | None = None
        self._unread: asyncio.Queue[str | bytes | Pcm] = asyncio.Queue()
        self._messages = self._chars = self._frames = 0
        """Unread messages, their characters, and unread frames of sound."""
        self._room = asyncio.Event()
        self._heard_at: float | None = None
        """When sound last arrived."""
        self._lost: asyncio.Future[bool] = self._loop.create_future()
        """Whether the connection was lost, once it has ended."""

    async def answer(self, offer: str, output: OutputQueue) -> str:
        """The answer, with our addresses. Raises ``ApiError``.

        The client's addresses are ignored: its own checks show where it is, even if it hides them
        behind mDNS names, and so no offer can direct packets of this machine elsewhere."""
        offer = _EXTENSION_ATTRIBUTES.sub(r"\1", _CANDIDATES.sub("", offer))  # unread by aiortc
        if len(offer.splitlines()) > MOST_LINES:
            raise _invalid(f"The offer has more than {MOST_LINES} lines.")
        try:
            parts = SessionDescription.parse(offer).media
        except Exception as error:
            raise _invalid(f"The offer is no SDP: {error}") from None
        if sorted(part.kind for part in parts) != ["application", "audio"]:
            raise _invalid("The offer must have one audio track and a data channel, nothing else.")
        # The others may use the transport of the first.
        dtls, ice = parts[0].dtls, parts[0].ice
        if not (dtls and dtls.fingerprints and ice and ice.password):
            raise _invalid("The offer has no a=fingerprint or no a=ice-pwd.")
        connection = self._connection
        transceiver = connection.addTransceiver(SpeakerTrack(output))
        codecs = RTCRtpSender.getCapabilities("audio").codecs
        transceiver.setCodecPreferences([each for each in codecs if each.name == "opus"])
        # Its own jitter buffer has no other way in.
        ear = PacketEar(self._hear)
        setattr(transceiver.receiver, "_RTCRtpReceiver__jitter_buffer", ear)  # noqa: B010
        connection.on("datachannel", self._take_channel)
        connection.on("connectionstatechange", self._state_changed)
        try:
            await connection.setRemoteDescription(RTCSessionDescription(offer, "offer"))
            await connection.setLocalDescription()
        except Exception as error:
            raise _invalid(f"The offer cannot be answered: {error}") from None
        self._bound_parts()
        self.plays = transceiver.currentDirection in ("sendrecv", "sendonly")
        answer: str = connection.localDescription.sdp
        return answer

    async def receive(self) -> str | bytes | Pcm:
        """The next message, or sound at ``output_queue.RATE``."""
        message = await self._unread.get()
        if isinstance(message, str | bytes):
            self._messages -= 1
            self._chars -= len(message)
        else:
            self._frames -= 1
        return message

    async def send(self, text: str) -> None:
        """Raises ``ValueError`` if the message is too long for the client."""
        channel = self._channel
        if channel is None or channel.readyState != "open":
            return  # ``ending`` says why
        channel.send(text)
        if channel.bufferedAmount > FULL_BYTES:
            self._room.clear()
            await self._room.wait()

    async def ending(self) -> bool:
        """Wait for the end; returns whether the connection was lost."""
        return await asyncio.shield(self._lost)

    @property
    def ended(self) -> bool:
        return self._lost.done()

    @property
    def _silent(self) -> bool:
        return self._heard_at is not None and self._loop.time() - self._heard_at >= SILENCE_S

    async def answers(self) -> bool:
        """Whether the client seems to be there."""
        if self.ended or not self._silent:
            return not self.ended
        report, now = await self._report(), datetime.now(UTC)
        return report is not None and (now - report.timestamp).total_seconds() < 2 * SILENCE_S

    async def player_lag_s(self) -> float:
        """How long after being queued sound is heard, by the receiver's reports."""
        report = await self._report()
        if report is None:
            return LEAST_LAG_S
        trip_s = report.roundTripTime or 0.0
        return LEAST_LAG_S + trip_s / 2 + max(0.0, 2 * report.jitter / RATE - PLAYER_S)

    async def _report(self) -> RTCRemoteInboundRtpStreamStats | None:
        """The receiver's newest report."""
        (sender,) = self._connection.getSenders()
        every = (await sender.getStats()).values()
        return next((s for s in every if isinstance(s, RTCRemoteInboundRtpStreamStats)), None)

    def end(self, *, lost: bool) -> None:
        """Let nothing more pass; ``close`` does the rest. ``ending`` returns ``lost``."""
        if not self._lost.done():
            self._lost.set_result(lost)
        self.opened.set()
        self._room.set()

    async def close(self) -> None:
        self.end(lost=False)
        closing = asyncio.create_task(self._connection.close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait({closing})  # cut short, it would leave a thread behind
            raise

    def _bound_parts(self) -> None:
        """Bound the parts of unfinished messages: aiortc keeps as many as a client sends."""
        sctp = self._connection.sctp
        assert sctp is not None
        take = sctp._handle_data

        async def handle(data: bytes) -> None:
            if sctp._advertised_rwnd > -MOST_IN_PARTS:
                await take(data)
            else:
                self.end(lost=False)

        setattr(sctp, "_handle_data", handle)  # noqa: B010

    # -- what aiortc calls

    def _take_channel(self, channel: RTCDataChannel) -> None:
        if self._channel is not None:
            return
        self._channel = channel
        channel.bufferedAmountLowThreshold = ROOM_BYTES
        channel.on("message", self._take)
        channel.on("bufferedamountlow", self._room.set)
        channel.on("close", self._channel_closed)
        self.opened.set()

    def _take(self, message: str | bytes) -> None:
        if self._lost.done():
            return
        self._messages += 1
        self._chars += len(message)
        if self._messages > MOST_MESSAGES or self._chars > MOST_CHARS:
            log.warning("A call is ended: it sends messages faster than they are read")
            self.end(lost=False)
        else:
            self._unread.put_nowait(message)

    def _hear(self, pcm: Pcm) -> None:
        self._heard_at = self._loop.time()
        if self._frames < MOST_FRAMES:
            self._frames += 1
            self._unread.put_nowait(pcm)

    def _channel_closed(self) -> None:
        """The channel is closed: by the client, unless the connection below it is lost."""
        sctp = self._connection.sctp
        if sctp is not None and sctp.transport.state == "connected":
            self.end(lost=False)

    def _state_changed(self) -> None:
        state, sctp = self._connection.connectionState, self._connection.sctp
        if state in ("failed", "closed"):  # if the network is lost, aiortc may report either
            ice = sctp.transport.transport.state if sctp else ""
            self.end(lost="failed" in (state, ice))
