"""Which device a setting means."""

from __future__ import annotations

import pytest

from app.talk.talk_app import cancels_echo
from hardware.settings import Sound
from hardware.sound.devices import (
    Device,
    channel_of,
    choose,
    choose_both,
    rates_to_try,
    resolve,
    whole_names,
)
from hardware.sound.errors import SoundError
from hardware.sound.notices import DevicesReady
from hardware.xvf3800.boards import same_array

pytestmark = pytest.mark.machine

LAPTOP = Device(0, "HDA Intel PCH: ALC257 Analog (hw:0,0)", 2, 2, 44_100)
HDMI = Device(1, "HDA Intel PCH: HDMI 0 (hw:0,3)", 0, 8, 44_100)
REACHY = Device(2, "Reachy Mini Audio: USB Audio (hw:1,0)", 2, 2, 16_000)
SEEED = Device(3, "reSpeaker XVF3800 4-Mic Array: USB Audio (hw:2,0)", 6, 2, 16_000)
MONITOR = Device(4, "Monitor of Reachy Mini Audio", 2, 0, 48_000)
DEFAULT = Device(5, "default", 32, 32, 48_000, default_input=True, default_output=True)


@pytest.mark.parametrize(
    ("devices", "microphone", "speaker", "chosen"),
    [
        ([LAPTOP, MONITOR, REACHY, DEFAULT], "auto", "auto", (REACHY, REACHY)),
        ([LAPTOP, HDMI, DEFAULT], "auto", "auto", (DEFAULT, DEFAULT)),
        # The loudspeaker follows only the array's microphone.
        ([LAPTOP, REACHY, SEEED], "respeaker", "auto", (SEEED, SEEED)),
        ([LAPTOP, REACHY, SEEED], "auto", "analog", (REACHY, LAPTOP)),
    ],
)
def test_which_devices_are_chosen(
    devices: list[Device], microphone: str, speaker: str, chosen: tuple[Device, Device]
) -> None:
    assert choose_both(devices, microphone, speaker) == chosen


def test_which_microphone_is_chosen() -> None:
    longer = Device(9, "default: front", 2, 2, 48_000)
    assert choose([longer, DEFAULT], "microphone", "default") is DEFAULT, "the exact name wins"
    assert choose([HDMI, LAPTOP], "microphone", "auto") is LAPTOP, "what is able"


def test_a_monitor_is_not_used_as_microphone() -> None:
    with pytest.raises(SoundError, match="There is no microphone called 'monitor of'"):
        choose([MONITOR, REACHY], "microphone", "monitor of")


def test_an_absent_device_lists_those_present() -> None:
    with pytest.raises(SoundError) as caught:
        choose([LAPTOP, REACHY, HDMI], "microphone", "Blue Yeti")
    assert "ALC257" in caught.value.why
    assert "HDMI" not in caught.value.why
    assert "sound.microphone" in caught.value.fix


def test_no_device_at_all() -> None:
    with pytest.raises(SoundError, match="no loudspeaker"):
        choose([], "loudspeaker", "auto")


@pytest.mark.parametrize(("channel", "number"), [("processed", 1), ("asr", 2), (6, 6)])
def test_channels(channel: str | int, number: int) -> None:
    assert channel_of(SEEED, channel) == number


def test_a_channel_that_is_not_there() -> None:
    with pytest.raises(SoundError, match="has no channel 3: it has 2"):
        channel_of(REACHY, 3)


def test_rates() -> None:
    assert rates_to_try(REACHY, None)[0] == 16_000
    assert rates_to_try(LAPTOP, None)[:3] == (48_000, 44_100, 24_000)
    assert rates_to_try(Device(0, "x", 1, 1, 32_000), None)[:3] == (32_000, 48_000, 44_100)
    assert rates_to_try(Device(0, "x", 1, 1, 64_000), None)[0] == 64_000
    assert rates_to_try(REACHY, 48_000)[:3] == (48_000, 16_000, 44_100)


def test_the_chosen_device_stays_the_chosen_one() -> None:
    chosen = resolve([LAPTOP, REACHY, DEFAULT], Sound())
    again = Device(7, "Reachy Mini Audio: USB Audio (hw:3,0)", 2, 2, 16_000)
    assert (chosen.microphone, chosen.speaker) == (REACHY.name, REACHY.name)
    assert chosen.among([LAPTOP, SEEED, DEFAULT]) == (None, None)
    assert chosen.among([LAPTOP, again]) == (again, again)


def test_a_twin_is_not_taken_for_the_unplugged_device() -> None:
    """Two arrays of one model; ALSA numbers them."""
    twin = Device(8, "Reachy Mini Audio: USB Audio (hw:4,0)", 2, 2, 16_000)
    chosen = resolve([REACHY, twin], Sound())
    assert chosen.among([twin]) == (None, None)
    again = Device(9, "Reachy Mini Audio: USB Audio (hw:2,0)", 2, 2, 16_000)
    assert chosen.among([twin, again]) == (again, again)


# --- Windows, where each way of a device is one of its own --------------------------------------

HEARS, PLAYS = "Echo Cancelling Speakerphone (Reachy Mini Audio)", "Speakers (Reachy Mini Audio)"
SECOND = "Speakers (2- Reachy Mini Audio)"


def test_windows_uses_the_loudspeaker_of_the_same_array() -> None:
    laptop = Device(0, "Speakers (Realtek(R) Audio)", 0, 2, 48_000, default_output=True)
    other, own = Device(1, SECOND, 0, 2, 16_000), Device(2, PLAYS, 0, 2, 16_000)
    microphone = Device(3, HEARS, 2, 0, 16_000)
    heard, played = choose_both([laptop, other, own, microphone], "auto", "auto")
    assert (heard, played) == (microphone, own)
    assert choose_both([laptop, microphone], "auto", "auto") == (microphone, laptop)


@pytest.mark.parametrize(
    ("microphone", "speaker", "expected"),
    [
        (HEARS, PLAYS, True),
        (HEARS, HEARS, True),
        (HEARS, SECOND, False),
        (HEARS, "Speakers (Realtek(R) Audio)", False),
        ("Microphone Array (Realtek(R) Audio)", "Speakers (Realtek(R) Audio)", False),
        (REACHY.name, REACHY.name, True),
        (REACHY.name, "Reachy Mini Audio: USB Audio (hw:4,0)", False),
        (REACHY.name, LAPTOP.name, False),
        (LAPTOP.name, LAPTOP.name, False),
    ],
)
def test_an_array_is_recognised_by_both_names(
    microphone: str, speaker: str, expected: bool
) -> None:
    assert same_array(microphone, speaker) is expected
    assert cancels_echo(DevicesReady(microphone, speaker, 16_000)) is expected


def test_names_cut_by_windows_are_completed() -> None:
    cut, others = HEARS[:31], ["Speakers (Realtek(R) Audio)", PLAYS]
    assert whole_names([*others, cut, HEARS, PLAYS]) == [*others, HEARS, HEARS, PLAYS]
    assert whole_names([cut, *others]) == [cut, *others]
    two = [cut, HEARS, "Echo Cancelling Speakerphone (Room 7 Audio)"]
    assert whole_names(two) == two
    assert whole_names(["default", "default: front"]) == ["default", "default: front"]


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 character"):
        Sound(microphone="  ")
    assert Sound(speaker=" Laptop ").speaker == "Laptop"
