"""From settings and a list of devices to streams that run: which rates, which channel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hardware.settings import Sound
from hardware.sound.devices import Device, Role, channel_of, choose_both, rates_to_try
from hardware.sound.errors import RateRefused

_CARD = re.compile(r"\s*\(hw:\d+,\d+\)$")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What ``auto`` or a part of a name meant when the program began; it stays. ``others``: names
    that there were beside these two."""

    microphone: str
    speaker: str
    others: frozenset[str] = frozenset()

    def among(self, devices: Sequence[Device]) -> tuple[Device | None, Device | None]:
        """Microphone and loudspeaker, where they are there; never others."""
        return self._same("microphone", devices), self._same("loudspeaker", devices)

    def _same(self, role: Role, devices: Sequence[Device]) -> Device | None:
        name = self.microphone if role == "microphone" else self.speaker
        able = [device for device in devices if device.serves(role)]
        exact = next((device for device in able if device.name == name), None)
        if exact is not None:
            return exact
        plain = plain_name(name)
        # Its twin that was there all the time is not the one that was unplugged.
        strangers = [device for device in able if device.name not in self.others]
        return next((device for device in strangers if plain_name(device.name) == plain), None)


def resolve(devices: Sequence[Device], settings: Sound) -> Chosen:
    """Raises ``SoundError`` when there is no such device, or no such channel."""
    microphone, speaker = choose_both(devices, settings.microphone, settings.speaker)
    channel_of(microphone, settings.channel)
    chosen = {microphone.name, speaker.name}
    others = frozenset(device.name for device in devices) - chosen
    return Chosen(microphone.name, speaker.name, others)


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
