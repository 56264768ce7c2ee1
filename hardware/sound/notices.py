"""What a sound card tells about itself while it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Opened:
    """Both devices run. ``rate_hz``: what the microphone is opened with."""

    microphone: str
    speaker: str
    rate_hz: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A device went away while it was in use; what was queued for it is dropped, and it is
    waited for."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class AllZero:
    """The microphone has given nothing but exact zeros for 2 s, which no real one does; or,
    ``over``, that has ended."""

    over: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """Microphone samples, at 16 kHz, that were lost because their reader was late."""

    samples: int


@dataclass(frozen=True, slots=True)
class MoreLatency:
    """The loudspeaker ran dry again and again: its driver gets ``latency_s`` of sound in advance
    from now on, so that silence comes later by as much."""

    speaker: str
    latency_s: float


SoundNotice = Opened | Lost | AllZero | Dropped | MoreLatency
