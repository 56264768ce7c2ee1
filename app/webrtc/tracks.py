"""The sound of a call: Opus packets to samples, and samples to a paced track."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError
from av import AudioCodecContext, AudioFrame, CodecContext, Packet
from av.error import FFmpegError

from app.webrtc.output_queue import FRAME_SAMPLES, RATE, OutputQueue
from pipeline.audio import EMPTY, Pcm

FRAME_S = FRAME_SAMPLES / RATE
LATE_S = 1.0
"""After a longer stall the track continues from now; after a shorter one it catches up."""
MOST_PAUSE = RATE
"""A longer gap in the timestamps is a muted sender; one shorter than a packet is jitter; any other
is a pause, in which the sender sends nothing (DTX)."""
FADE = 0.5
"""A lost packet is replaced by the one before it times this factor; several fade out."""
EARLY = 3
"""A missing packet counts as lost once this many later ones (60 ms) have come. Playback would need
a buffer that is always full; recognition waits only at a gap."""
FAR = 500
"""A number so far from the expected one begins a new stream."""

TimedPayload = tuple[int, bytes]
"""When a packet begins, in the sender's count of samples, and its payload."""


class SpeakerTrack(MediaStreamTrack):
    """What the client hears: a frame every 20 ms by the loop's clock; between answers, silence."""

    kind = "audio"

    def __init__(self, queue: OutputQueue) -> None:
        super().__init__()
        self._queue = queue
        self._due: float | None = None
        self._samples = 0

    async def recv(self) -> AudioFrame:
        now = asyncio.get_running_loop().time()
        due = now if self._due is None else self._due + FRAME_S
        if (late_s := now - due) > LATE_S:
            self._samples += round(late_s * RATE)
            due = now
        self._due = due
        await asyncio.sleep(max(0.0, due - now))
        if self.readyState != "live":
            raise MediaStreamError
        stereo = np.repeat(self._queue.take(), 2)  # aiortc makes mono softer by 3 dB
        frame = AudioFrame.from_ndarray(stereo[np.newaxis], "s16", "stereo")
        frame.sample_rate, frame.time_base = RATE, Fraction(1, RATE)
        frame.pts = self._samples
        self._samples += FRAME_SAMPLES
        return frame


class PacketOrder:
    """One stream of packets with 16-bit numbers."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._early: dict[int, TimedPayload] = {}

    def add(self, number: int, packet: TimedPayload) -> Iterator[TimedPayload | None]:
        """The packets that are due, in order; ``None`` for each that is lost."""
        if self._next is None:
            self._next = number
        ahead = (number - self._next + 0x8000) % 0x10000 - 0x8000
        if abs(ahead) > FAR:
            self._early.clear()
            self._next, ahead = number, 0
        if ahead < 0:  # it came twice, or too late
            return
        self._early[number] = packet
        while self._next in self._early or len(self._early) >= EARLY:
            yield self._early.pop(self._next, None)
            self._next = (self._next + 1) % 0x10000


class PacketEar:
    """Stands in for aiortc's jitter buffer and decoder, which hold back 80 ms of sound, and 320 ms
    from the first lost packet on. ``hear`` gets samples at ``RATE``."""

    def __init__(self, hear: Callable[[Pcm], None]) -> None:
        self._hear = hear
        self._order = PacketOrder()
        self._last = EMPTY
        self._due = 0
        """When the next packet begins, in 32 bits."""
        opus = CodecContext.create("libopus", "r")
        assert isinstance(opus, AudioCodecContext)
        opus.format, opus.layout, opus.sample_rate = "s16", "mono", RATE
        self._opus = opus

    def add(self, packet: Any) -> tuple[bool, None]:
        """Called by aiortc's receiver; it gets no frame to decode."""
        for each in self._order.add(packet.sequence_number, (packet.timestamp, packet._data)):
            begins, payload = each or (self._due, None)
            pcm = self._last = self._decode(payload)
            if len(pcm) <= (pause := (begins - self._due) % 2**32) < MOST_PAUSE:
                pcm = np.concatenate((np.zeros(pause, np.int16), pcm))
            self._due = (begins + len(self._last)) % 2**32
            if len(pcm):
                self._hear(pcm)
        return False, None

    def _decode(self, payload: bytes | None) -> Pcm:
        if payload:
            try:
                frames = self._opus.decode(Packet(payload))
                return np.concatenate((EMPTY, *(frame.to_ndarray()[0] for frame in frames)))
            except FFmpegError:
                pass  # treated as lost
        return (self._last * FADE).astype(np.int16)
