"""A WebRTC client on aiortc: a microphone to speak into, a data channel, and received audio."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Any

import httpx
import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCSessionDescription,
)
from av import AudioFrame

from app.webrtc.output_queue import FRAME_SAMPLES, RATE, SILENCE
from app.webrtc.tracks import FRAME_S, PacketEar
from pipeline.audio import Pcm
from reachy_voice.testing import Cast
from tests.clients.engines import LEVELS, heard_phrase, phrase_cast
from tests.support.conformance import Recorder
from tests.support.scripted_server import Served

CALLS = "/v1/realtime/calls"
SESSION = {"type": "realtime", "instructions": "Be brief."}
AUDIBLE = 300
"""A frame is audible if its peak reaches this."""
LONGEST_S = 90.0
"""Timeout for each step of a call; generous, since the machine may be busy."""


def tone(phrase: str, seconds: float = 0.5) -> Pcm:
    """A phrase of ``tests.clients.engines`` as a sine at 48 kHz, which survives Opus."""
    (level,) = (level for level, known in LEVELS.items() if known == phrase)
    at = np.arange(round(seconds * RATE)) / RATE
    return np.asarray(np.sin(2 * np.pi * 400 * at) * level, dtype=np.int16)


def sine_phrase(pcm: Pcm) -> str:
    """The phrase that the sine in ``pcm`` stands for: its peaks have the phrase's level."""
    peaks = np.abs(pcm[: len(pcm) // 160 * 160]).reshape(-1, 160).max(axis=1)
    return heard_phrase(peaks)


def tone_cast() -> Cast:
    """Engines that know the phrases and take every pause for the end of the turn."""
    cast = phrase_cast()
    cast.stt.hears = sine_phrase
    return cast


class Microphone(MediaStreamTrack):
    """Sends what is said into it in real time, silence otherwise. ``muted``: always silence."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self.muted = False
        self._said = np.zeros(0, np.int16)
        self._begun: float | None = None
        self._frames = 0
        self.silent = asyncio.Event()
        self.silent.set()

    def say(self, pcm: Pcm) -> None:
        self._said = np.concatenate((self._said, pcm))
        self.silent.clear()

    async def recv(self) -> AudioFrame:
        now = asyncio.get_running_loop().time()
        self._begun = self._begun or now
        await asyncio.sleep(max(0.0, self._begun + self._frames * FRAME_S - now))
        frame, self._said = self._said[:FRAME_SAMPLES], self._said[FRAME_SAMPLES:]
        if not len(self._said):
            self.silent.set()
        frame = np.concatenate((frame, SILENCE[len(frame) :]))
        both = np.repeat(SILENCE if self.muted else frame, 2)
        packet = AudioFrame.from_ndarray(both[None], "s16", "stereo")
        packet.sample_rate, packet.time_base = RATE, Fraction(1, RATE)
        packet.pts = self._frames * FRAME_SAMPLES
        self._frames += 1
        return packet


class Caller:
    """One call. The conformance recorder checks every event."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.microphone = Microphone()
        self.location = ""
        self.heard: list[tuple[float, Pcm]] = []
        """Each received frame with its arrival time."""
        self.closed = asyncio.Event()
        self._audible = asyncio.Event()
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._channel: RTCDataChannel | None = None
        self._events: asyncio.Queue[str] = asyncio.Queue()

    async def offer(self) -> str:
        connection = self._connection
        transceiver = connection.addTransceiver(self.microphone)
        ear = PacketEar(self._hear)
        setattr(transceiver.receiver, "_RTCRtpReceiver__jitter_buffer", ear)  # noqa: B010
        self._channel = connection.createDataChannel("oai-events")
        self._channel.on("message", self._events.put_nowait)
        self._channel.on("close", self.closed.set)
        connection.on("connectionstatechange", self._look)
        await connection.setLocalDescription()
        offer: str = connection.localDescription.sdp
        return offer

    async def accept(self, answer: httpx.Response) -> None:
        assert answer.status_code == 201, answer.text
        self.location = answer.headers["Location"]
        await self._connection.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))

    def _look(self) -> None:
        if self._connection.connectionState in ("closed", "failed"):
            self.closed.set()

    # -- messages

    async def next(self) -> dict[str, Any]:
        return self.recorder.record(await self._events.get())

    async def until(self, type: str) -> dict[str, Any]:
        while (event := await self.next())["type"] != type:
            assert event["type"] != "error", event
        return event

    def send(self, type: str, **fields: Any) -> None:
        assert self._channel
        self._channel.send(json.dumps({"type": type, **fields}))

    @property
    def types(self) -> Sequence[str]:
        return self.recorder.types

    @property
    def sctp(self) -> Any:
        """The SCTP transport under the data channel."""
        return self._connection.sctp

    # -- sound

    def _hear(self, pcm: Pcm) -> None:
        self.heard.append((asyncio.get_running_loop().time(), pcm))
        if np.abs(pcm).max() > AUDIBLE:
            self._audible.set()

    async def hears(self) -> float:
        """Wait for the next audible frame; returns its arrival time."""
        self._audible.clear()
        await self._audible.wait()
        return self.heard[-1][0]

    def audible(self, since: float = 0.0) -> list[float]:
        """Arrival times of the audible frames from ``since`` on."""
        return [at for at, pcm in self.heard if at >= since and np.abs(pcm).max() > AUDIBLE]

    # -- the network

    def spoil(self, loss: float, jitter_s: float, seed: int = 1) -> None:
        """From now on, drop this share of the packets and delay the others by up to this much, both
        ways."""
        chance, loop = random.Random(seed), asyncio.get_running_loop()

        def late(pass_on: Any) -> Any:
            def arrive(*packet: Any) -> None:
                if not self.closed.is_set():
                    pass_on(*packet)

            def spoilt(*packet: Any) -> None:
                if chance.random() >= loss:
                    loop.call_later(chance.uniform(0, jitter_s), arrive, *packet)

            return spoilt

        for protocol in self._sockets():
            protocol.transport = _Spoilt(protocol.transport, late(protocol.transport.sendto))
        protocol.receiver.data_received = late(protocol.receiver.data_received)

    def mute(self) -> None:
        """Like ``sender.replaceTrack(null)``: send no more audio packets."""
        (sender,) = self._connection.getSenders()
        sender.replaceTrack(None)

    def vanish(self) -> None:
        """Lose the network without closing anything."""
        for protocol in self._sockets():
            protocol.transport.abort()

    def _sockets(self) -> list[Any]:
        (transceiver,) = self._connection.getTransceivers()
        return list(transceiver.receiver.transport.transport._connection._protocols)

    async def leave(self) -> None:
        self.closed.set()
        await self._connection.close()


class _Spoilt:
    def __init__(self, transport: asyncio.DatagramTransport, send: Any) -> None:
        self._transport = transport
        self.sendto = send

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def offer() -> str:
    """An SDP offer from a client that never calls."""
    caller = Caller()
    try:
        return await caller.offer()
    finally:
        await caller.leave()


@asynccontextmanager
async def calling(
    served: Served,
    query: str = "",
    session: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    longest_s: float = LONGEST_S,
) -> AsyncIterator[Caller]:
    """A call that has received ``session.created``. ``session``: sent with the offer as a form."""
    caller = Caller()
    try:
        offer = await caller.offer()
        body: dict[str, Any] = {"content": offer}
        given = {**(headers or {}), "Content-Type": "application/sdp"}
        if session is not None:
            given = headers or {}
            body = {"files": {"sdp": (None, offer), "session": (None, json.dumps(session))}}
        async with asyncio.timeout(longest_s):  # otherwise aiortc's threads would outlive a failure
            await caller.accept(await served.post(f"{CALLS}{query}", headers=given, **body))
            assert (await caller.next())["type"] == "session.created"
            yield caller
    finally:
        await caller.leave()
