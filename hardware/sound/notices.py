"""Notices of a running sound card."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DevicesReady:
    """Both devices are running."""

    microphone: str
    speaker: str
    rate_hz: int
    """The microphone's rate."""


@dataclass(frozen=True, slots=True)
class DeviceLoss:
    """A device went away while in use; its queued audio is dropped, and the card waits for it."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class AllZero:
    """The microphone has delivered only exact zeros for 2 s, which no working one does."""

    over: bool = False
    """That has ended."""


@dataclass(frozen=True, slots=True)
class Lifeless:
    """For 5 s the microphone has delivered next to nothing: rare bursts among zeros, a constant,
    one bit of dither, or the same sound again and again."""

    over: bool = False
    """That has ended."""


@dataclass(frozen=True, slots=True)
class SampleLoss:
    """Microphone samples, at 16 kHz, that were lost because their reader was late."""

    samples: int


@dataclass(frozen=True, slots=True)
class MoreLatency:
    """The loudspeaker ran dry repeatedly: its driver now buffers ``latency_s`` of sound, so it
    falls silent that much later."""

    speaker: str
    latency_s: float


SoundNotice = DevicesReady | DeviceLoss | AllZero | Lifeless | SampleLoss | MoreLatency
