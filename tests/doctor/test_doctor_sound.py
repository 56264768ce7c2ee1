"""The doctor's words on microphone and loudspeaker."""

from __future__ import annotations

from pathlib import Path

from app.doctor.checks import check_sound, chosen_sound
from hardware.settings import Sound
from hardware.sound.errors import SoundError
from tests.support.virtual_sound import NAME, VirtualSound, need_virtual_sound


def test_a_machine_without_sound_is_fine() -> None:
    check = check_sound(Sound(), SoundError("There is none", why="no card", fix="Plug one in"))
    assert (check.state, check.fix) == ("ok", "")
    assert "only `talk` needs it: Plug one in" in check.detail


def test_a_device_that_was_named_should_be_there() -> None:
    check = check_sound(Sound(microphone="Jabra"), SoundError("It is not here", fix="Look"))
    assert (check.state, check.detail, check.fix) == ("warn", "It is not here", "Look")


def test_the_chosen_devices_are_named(tmp_path: Path) -> None:
    need_virtual_sound()
    with VirtualSound(tmp_path / "pulse"):
        sound = Sound(microphone=NAME, speaker=NAME)
        check = check_sound(sound, chosen_sound(sound))
        assert (check.state, check.detail) == ("ok", f"{NAME} -> {NAME}")
        missing = Sound(microphone="Jabra")
        assert check_sound(missing, chosen_sound(missing)).state == "warn"
