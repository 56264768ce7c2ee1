"""The doctor's look at microphone and loudspeaker. Only ``talk`` needs them: nothing here fails."""

from __future__ import annotations

import asyncio

from app.doctor.finding import Check
from app.talk.devices import chosen_devices
from hardware.settings import Sound
from hardware.sound.errors import SoundError

Chosen = tuple[str, str]


def look(sound: Sound) -> Chosen | SoundError:
    """Names of the microphone and the loudspeaker that the settings mean, or why there are none."""
    try:
        return asyncio.run(chosen_devices(sound))
    except SoundError as error:
        return error


def check_sound(sound: Sound, found: Chosen | SoundError) -> Check:
    """``found``: what ``look`` has given."""
    if isinstance(found, tuple):
        return Check("sound", "ok", f"{found[0]} -> {found[1]}")
    named = (sound.microphone, sound.speaker) != ("auto", "auto")
    detail = f"{found.what}: {found.why}" if found.why else found.what
    if named:
        return Check("sound", "warn", detail, found.fix)
    return Check("sound", "ok", f"{detail} (only `talk` needs it: {found.fix})")
