"""From settings and a list of devices to streams that run: which rates, which channel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hardware.settings import Sound
from hardware.sound.devices import Device, channel_of, choose_both, rates_to_try
from hardware.sound.errors import RateRefused

_CARD = re.compile(r"\s*\(hw:\d+,\d+\)$")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What ``auto`` or a part of a name meant when the program began; it stays."""

    microphone: str
    speaker: str

    def among(self, devices: Sequence[Device]) -> tuple[Device | None, Device | None]:
        """Microphone and loudspeaker, where they are there; never others."""
        return (
            _same(self.microphone, [device for device in devices if device.serves("microphone")]),
            _same(self.speaker, [device for device in devices if device.serves("loudspeaker")]),
        )


def resolve(devices: Sequence[Device], settings: Sound) -> Chosen:
    """Raises ``SoundError`` when there is no such device, or no such channel."""
    microphone, speaker = choose_both(devices, settings.microphone, settings.speaker)
    channel_of(microphone, settings.channel)
    return Chosen(microphone.name, speaker.name)


def plain_name(name: str) -> str:
    """Without ALSA's card number, which another one may have after a replug."""
    return _CARD.sub("", name)


@dataclass(slots=True)
class Rates:
    """What is still to be tried, in order; the first pair that both devices take is it."""

    microphone: list[int]
    speaker: list[int]

    @classmethod
    def of(cls, microphone: Device, speaker: Device, wanted_hz: int | None) -> Rates:
        return cls(
            list(rates_to_try(microphone, wanted_hz)), list(rates_to_try(speaker, wanted_hz))
        )

    def first(self) -> tuple[int, int]:
        """Hz of the microphone and of the loudspeaker."""
        return self.microphone[0], self.speaker[0]

    def refuse(self, refusal: RateRefused) -> bool:
        """Go on to the next; False when there is none."""
        rates = self.microphone if refusal.role == "microphone" else self.speaker
        rates.pop(0)
        return bool(rates)


def _same(name: str, devices: Sequence[Device]) -> Device | None:
    exact = next((device for device in devices if device.name == name), None)
    if exact is not None:
        return exact
    plain = plain_name(name)
    return next((device for device in devices if plain_name(device.name) == plain), None)
