"""What a sound card needs from a sound library; ``portaudio.py`` implements it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hardware.sound.devices import Device
from hardware.sound.errors import Role
from pipeline.audio import Pcm

OnHeard = Callable[[Pcm, float, float, bool], None]
"""Samples to keep; when the first of them was at the membrane; now; whether some before it were
lost. Times: seconds of ``time.monotonic``, which is the event loop's."""
OnAsked = Callable[[int, float, float, bool], Pcm]
"""How many frames are wanted; when the first of them will be at the membrane; now; whether the
device had to make silence of its own before them."""
OnEnded = Callable[[Role], None]
"""The device whose stream has ended; also called after closing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Two streams, mono. ``channel``: which of the microphone's, from 1; the loudspeaker plays the
    same on all that it has to be opened with. ``speaker_latency_s``: what the
    driver should buffer. Its threads call all three, which must not wait."""

    microphone: Device
    channel: int
    microphone_hz: int
    speaker: Device
    speaker_hz: int
    speaker_latency_s: float
    on_heard: OnHeard
    on_asked: OnAsked
    on_ended: OnEnded


@dataclass(frozen=True, slots=True)
class Latency:
    """The delay that the driver reports, in seconds."""

    microphone_s: float
    speaker_s: float


class SoundDriver(Protocol):
    """Its methods run one at a time, off the event loop."""

    async def devices(self) -> Sequence[Device]:
        """Scan again; nothing is open. Raises ``SoundError``."""
        ...

    async def open(self, plan: Plan) -> Latency:
        """Start both streams, or neither. Raises ``RateRefused``, or another ``SoundError``."""
        ...

    async def reopen_speaker(self, plan: Plan) -> Latency:
        """Restart the loudspeaker's stream; the microphone's goes on. Raises ``SoundError``."""
        ...

    async def close(self) -> bool:
        """Close the streams and drop what they hold. False: the driver hangs."""
        ...

    def end(self) -> None:
        """Shut down; no call follows."""
        ...
