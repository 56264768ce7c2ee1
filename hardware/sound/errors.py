"""Errors of a sound device, in words for its user."""

from __future__ import annotations

from typing import Literal

from pipeline.errors import ReachyVoiceError

Role = Literal["microphone", "loudspeaker"]


class SoundError(ReachyVoiceError):
    """A microphone or a loudspeaker is absent, busy, or not as the settings say."""

    exit_code = 22


def no_portaudio(why: str) -> SoundError:
    return SoundError(
        "The PortAudio library is not installed",
        why=why,
        fix="On Debian, Ubuntu and Raspberry Pi OS: sudo apt install libportaudio2",
    )


def no_sound_system(why: str) -> SoundError:
    return SoundError(
        "The sound system does not start",
        why=why,
        fix="Start it again (PipeWire: systemctl --user restart pipewire; PulseAudio: pulseaudio"
        " --start), then: reachy-voice devices",
    )


def no_device(role: Role, name: str, there: list[str]) -> SoundError:
    """``there``: the existing names."""
    setting = "sound.microphone" if role == "microphone" else "sound.speaker"
    if not there:
        return SoundError(
            f"This machine has no {role}",
            why=f"its sound system lists no {role}",
            fix="Plug one in, then: reachy-voice devices",
        )
    names = ", ".join(map(repr, there))
    return SoundError(
        f"There is no {role} called {name!r}",
        why=f"the machine has: {names}",
        fix=f"Plug it in, or set {setting} to a part of one of these names, or to auto",
    )


def too_few_channels(name: str, channel: int, has: int) -> SoundError:
    """``channel``: counted from 1."""
    return SoundError(
        f"{name} has no channel {channel}",
        why=f"it has {has}",
        fix="Set sound.channel to processed, or to a number up to that",
    )


def not_opened(role: Role, name: str, why: str) -> SoundError:
    return SoundError(
        f"The {role} {name} cannot be opened",
        why=why,
        fix="End other programs that use it, or unplug it and plug it in again; reachy-voice"
        " devices lists the devices",
    )


class RateRefused(SoundError):
    """The device cannot be opened with this many samples per second."""

    def __init__(self, role: Role, name: str, rate_hz: int) -> None:
        super().__init__(
            f"The {role} {name} does not take {rate_hz} samples per second",
            why="its driver refuses them",
            fix="Choose another device",
        )
        self.role, self.name, self.rate_hz = role, name, rate_hz


def no_rate(role: Role, name: str) -> SoundError:
    """The device refuses every rate of ``devices.rates_to_try``."""
    return SoundError(
        f"The {role} {name} takes no usual number of samples per second",
        why="its driver refuses its own rate and all usual ones from 8000 to 192000",
        fix="Set sound.rate_hz to the rate in its manual, or choose another device",
    )


def driver_hangs(name: str) -> SoundError:
    return SoundError(
        f"The driver of {name} does not answer",
        why="a call to it has not come back",
        fix="Restart this program; if that does not help, unplug the device and plug it in again",
    )
