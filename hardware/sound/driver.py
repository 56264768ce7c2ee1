"""What a sound card needs from a sound library; ``portaudio.py`` implements it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hardware.sound.devices import Device
from hardware.sound.errors import Role
from pipeline.audio import Pcm

OnHeard = Callable[[Pcm, float, float, bool], None]
"""Takes captured samples; when the first was at the membrane; now; whether samples before it were
lost. Times: seconds of ``time.monotonic``, which is the event loop's clock."""
OnAsked = Callable[[int, float, float, bool], Pcm]
"""Takes how many frames to return; when the first will be at the membrane; now; whether the device
had to insert silence before them."""
OnEnded = Callable[[Role], None]
"""Takes the device whose stream has ended; also called after closing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Two mono streams. The driver's threads call the three callbacks, which must not wait."""

    microphone: Device
    channel: int
    """Which of the microphone's channels, from 1; the loudspeaker plays the same on every channel
    that it has to be opened with."""
    microphone_hz: int
    speaker: Device
    speaker_hz: int
    speaker_latency_s: float
    """How much the driver should buffer."""
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
        """Scan again; call this while nothing is open. Raises ``SoundError``."""
        ...

    async def open(self, plan: Plan) -> Latency:
        """Start both streams, or neither. Raises ``RateRefused``, or another ``SoundError``."""
        ...

    async def reopen_speaker(self, plan: Plan) -> Latency:
        """Restart the loudspeaker's stream only. Raises ``SoundError``."""
        ...

    async def close(self) -> bool:
        """Close the streams and drop their audio. False: the driver hangs."""
        ...

    def end(self) -> None:
        """Shut down; no call may follow."""
        ...
