"""The YAML's sections for the body: sound devices, the microphone array, the robot."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, StringConstraints

from hardware.daemon_url import daemon_url
from pipeline.settings import Section, Sector

ChannelNumber = Annotated[int, Field(ge=1, le=64)]
DeviceName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
"""A device's name or part of it; an empty string would be part of every name."""


class Sound(Section):
    """The microphone and the loudspeaker of ``talk``. ``channel``: counted from 1.
    ``push_to_talk``: listens only between two presses of a key."""

    microphone: DeviceName = "auto"
    speaker: DeviceName = "auto"
    channel: Literal["processed", "asr"] | ChannelNumber = "processed"
    rate_hz: Annotated[int, Field(ge=8_000, le=192_000)] | None = None
    volume: float = Field(default=1.0, ge=0, le=1)
    keep_awake_dbfs: Annotated[float, Field(ge=-80, le=-30)] | None = None
    echo: Literal["auto", "chip", "software", "half-duplex"] = "auto"
    push_to_talk: bool = False


PresetName = Literal["firmware", "reachy-app", "barge-in", "asr-beam"]


class Array(Section):
    """The XVF3800. Degrees: 0 is its left, 90 its front, 180 its right."""

    retired: ClassVar = ("lights",)

    control: Literal["auto", "never"] = "auto"
    preset: PresetName | None = None
    reboot: bool = True
    accept_deg: float | None = Field(default=None, ge=0, lt=360)
    accept_width_deg: float = Field(default=60, gt=0, le=360)

    @property
    def accepted(self) -> Sector | None:
        """The sector in which people are listened to; ``None``: everywhere."""
        if self.accept_deg is None:
            return None
        return Sector(self.accept_deg, self.accept_width_deg)


class Robot(Section):
    """The daemon of a Reachy Mini."""

    url: Annotated[str, AfterValidator(daemon_url)] | None = None
    moves: bool = True
