"""What a sound card needs from a sound library; PortAudio's is in ``portaudio.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hardware.sound.devices import Device
from hardware.sound.errors import Role
from pipeline.audio import Pcm

OnHeard = Callable[[memoryview, float, float, bool], None]
"""Interleaved int16; when its first frame was at the membrane; now; whether samples before it were
lost. Times: seconds of ``time.monotonic``, which is the event loop's."""
OnAsked = Callable[[int, float, float, bool], Pcm]
"""How many frames are wanted; when the first of them will be at the membrane; now; whether the
device had to make silence of its own before them."""
OnEnded = Callable[[Role], None]
"""Whose stream has ended; also when it was closed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Two streams, 16 bits. ``channels``: of the microphone. ``speaker_latency_s``: what the
    driver is to hold in advance. All three are called by its threads, and must not wait."""

    microphone: Device
    channels: int
    microphone_hz: int
    speaker: Device
    speaker_hz: int
    speaker_latency_s: float
    on_heard: OnHeard
    on_asked: OnAsked
    on_ended: OnEnded


@dataclass(frozen=True, slots=True)
class Latency:
    """What the driver says that it delays, in seconds."""

    microphone_s: float
    speaker_s: float


class SoundDriver(Protocol):
    """One at a time of its methods runs. None may block the event loop."""

    async def devices(self) -> Sequence[Device]:
        """Look anew; nothing is open. Raises ``SoundError``."""
        ...

    async def open(self, plan: Plan) -> Latency:
        """Start both streams, or neither. Raises ``RateRefused``, or another ``SoundError``."""
        ...

    async def reopen_speaker(self, plan: Plan) -> Latency:
        """End the loudspeaker's stream and start it anew; the microphone's goes on. Raises
        ``SoundError``."""
        ...

    async def close(self) -> bool:
        """End what is open, and drop what it holds. False: the driver hangs."""
        ...

    def end(self) -> None:
        """Nothing is asked of it any more."""
        ...
