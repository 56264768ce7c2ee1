"""Chooses the microphone, the loudspeaker and their rate from a list of names. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hardware.settings import Sound
from hardware.sound.errors import Role, no_device, too_few_channels
from hardware.xvf3800.boards import is_array_name, same_array

RATES_HZ = (
    48_000, 44_100, 24_000, 16_000, 32_000, 96_000, 22_050, 8_000, 88_200, 192_000, 11_025,
)  # fmt: skip
"""The rates to try, the likeliest first."""
_ALSA_DEFAULT_HZ = 44_100
"""PortAudio reports it for every ALSA device that accepts it, whatever the hardware prefers."""
ARRAY_RATE_HZ = 16_000
"""XVF3800: the firmware's native rate; do not trust its echo canceller at 48 kHz."""
PROCESSED, ASR = 1, 2
"""Channels of an XVF3800, counted from 1: the processed beam, and the one for recognisers."""
_CARD = re.compile(r"\s*\(hw:\d+,\d+\)$")
_MONITORS = ("monitor of ", ".monitor")


@dataclass(frozen=True, slots=True)
class Device:
    """One entry of PortAudio's list. ``index`` is valid only until PortAudio scans again."""

    index: int
    name: str
    inputs: int
    outputs: int
    rate_hz: int
    default_input: bool = False
    default_output: bool = False

    @property
    def array(self) -> bool:
        """Whether its name is that of an XVF3800."""
        return is_array_name(self.name)

    @property
    def monitor(self) -> bool:
        """Whether it records what a loudspeaker plays."""
        name = self.name.lower()
        return any(part in name for part in _MONITORS)

    def serves(self, role: Role) -> bool:
        if role == "microphone":
            return self.inputs > 0 and not self.monitor
        return self.outputs > 0


_MME_LETTERS = 31
"""Windows' oldest sound system truncates names to this length."""


def whole_names(names: Sequence[str]) -> list[str]:
    """The names, in order; a truncated name is replaced by the only full name that begins with it:
    the same device, as another sound system of the machine lists it."""
    whole = []
    for name in names:
        longer = {other for other in names if len(other) > len(name) and other.startswith(name)}
        is_cut = len(name) == _MME_LETTERS and len(longer) == 1
        whole.append(longer.pop() if is_cut else name)
    return whole


def find(devices: Sequence[Device], role: Role, name: str) -> Device | None:
    """The device with exactly this name, else the first whose name contains it."""
    able = [device for device in devices if device.serves(role)]
    part = name.lower()
    for device in able:
        if device.name.lower() == part:
            return device
    return next((device for device in able if part in device.name.lower()), None)


def choose(devices: Sequence[Device], role: Role, name: str) -> Device:
    """The device that a setting refers to. ``auto``: an XVF3800, else the system's default.

    Raises ``SoundError``, listing the names that exist, if no device matches.
    """
    able = [device for device in devices if device.serves(role)]
    if name != "auto":
        device = find(devices, role, name)
    else:
        array = (device for device in able if device.array)
        default = (
            device
            for device in able
            if (device.default_input if role == "microphone" else device.default_output)
        )
        device = next(array, None) or next(default, None) or next(iter(able), None)
    if device is None:
        raise no_device(role, name, [device.name for device in able])
    return device


def choose_speaker(devices: Sequence[Device], name: str, microphone: Device | None) -> Device:
    """``auto`` follows an array's microphone, because its chip cancels only the echo of its own
    loudspeaker. Raises ``SoundError``."""
    if name == "auto" and microphone:
        for device in (microphone, *devices):
            if device.serves("loudspeaker") and same_array(microphone.name, device.name):
                return device
    return choose(devices, "loudspeaker", name)


def choose_both(devices: Sequence[Device], microphone: str, speaker: str) -> tuple[Device, Device]:
    """Microphone and loudspeaker. Raises ``SoundError``."""
    microphone_device = choose(devices, "microphone", microphone)
    return microphone_device, choose_speaker(devices, speaker, microphone_device)


def channel_of(device: Device, channel: str | int) -> int:
    """The channel's number, from 1. Raises ``SoundError`` if the device has no such channel."""
    channels = {"processed": PROCESSED, "asr": ASR}
    number = channel if isinstance(channel, int) else channels[channel]
    if number > device.inputs:
        raise too_few_channels(device.name, number, device.inputs)
    return number


def rates_to_try(device: Device, wanted_hz: int | None) -> tuple[int, ...]:
    """Rates in Hz, best first: ``wanted_hz``, which the device may refuse, its own, the usual."""
    own = ARRAY_RATE_HZ if device.array else device.rate_hz
    first = own if own > 0 and own != _ALSA_DEFAULT_HZ else None
    return tuple(filter(None, dict.fromkeys((wanted_hz, first, *RATES_HZ))))


# --- the same devices again ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The devices that ``auto`` or a part of a name resolved to when the program began; they
    stay."""

    microphone: str
    speaker: str
    others: frozenset[str] = frozenset()
    """The other names that existed then."""

    def among(self, devices: Sequence[Device]) -> tuple[Device | None, Device | None]:
        """Microphone and loudspeaker, if present; never other devices."""
        return self._same("microphone", devices), self._same("loudspeaker", devices)

    def _same(self, role: Role, devices: Sequence[Device]) -> Device | None:
        name = self.microphone if role == "microphone" else self.speaker
        able = [device for device in devices if device.serves(role)]
        exact = next((device for device in able if device.name == name), None)
        if exact is not None:
            return exact
        plain = plain_name(name)
        # An identical device that was there all along is not the one that was unplugged.
        strangers = [device for device in able if device.name not in self.others]
        return next((device for device in strangers if plain_name(device.name) == plain), None)


def resolve(devices: Sequence[Device], settings: Sound) -> DeviceChoice:
    """Resolve the settings. Raises ``SoundError`` if a device or the channel does not exist."""
    microphone, speaker = choose_both(devices, settings.microphone, settings.speaker)
    channel_of(microphone, settings.channel)
    names = {microphone.name, speaker.name}
    others = frozenset(device.name for device in devices) - names
    return DeviceChoice(microphone.name, speaker.name, others)


def plain_name(name: str) -> str:
    """The name without ALSA's card number, which may change on a replug."""
    return _CARD.sub("", name)
