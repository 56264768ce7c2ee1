"""The doctor's checks of the array."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from app.doctor.hardware import check_echo_path, check_hardware, check_volume, find_card
from app.settings.load import load_settings
from app.settings.model import Settings
from app.setup.finding import Check
from hardware.xvf3800.control import ArrayControl
from hardware.xvf3800.device import UsbArray
from hardware.xvf3800.errors import ArrayError, array_error
from tests.support.fake_usb import REACHY, SEEED, FakeBus, FakeXvf, gone, ints, late
from tests.support.scripted_array import ScriptedArray

pytestmark = pytest.mark.machine

CARDS = """ 0 [PCH            ]: HDA-Intel - HDA Intel PCH
                      HDA Intel PCH at 0x6001110000 irq 142
 2 [Audio          ]: USB-Audio - Reachy Mini Audio
                      Pollen Robotics Reachy Mini Audio at usb-0000:00:14.0-2, high speed
"""
MIXER = """Simple mixer control 'PCM',1
  Capabilities: pvolume pvolume-joined pswitch pswitch-joined
  Playback channels: Mono
  Limits: Playback 0 - 60
  Mono: Playback 60 [100%] [0.00dB] [on]
"""


@pytest.fixture
def settings() -> Settings:
    return load_settings(environ={}).settings


@pytest.fixture
def asound(tmp_path: Path) -> Path:
    (tmp_path / "cards").write_text(CARDS)
    return tmp_path


def look(
    settings: Settings,
    thing: FakeXvf | ArrayError | None,
    asound: Path = Path("/nonexistent"),
    devices: tuple[str, str] | None = None,
) -> dict[str, Check]:
    """The findings by name. ``thing``: the device on USB, or the error that opening raises."""
    bus = FakeBus(*([thing] if isinstance(thing, FakeXvf) else []))

    def opened(*_: object) -> ArrayControl:
        if isinstance(thing, ArrayError):
            raise thing
        return UsbArray(bus, bus.clock, bus.clock.pause)

    how: Any = {"opener": opened, "asound": asound, "mixer": lambda _: MIXER}
    checks = list(check_hardware(settings, devices, **how))
    assert bus.open_handles == 0
    assert all(check.state != "fail" for check in checks)
    assert all(check.fix for check in checks if check.state != "ok")
    found = {check.name: check for check in checks}
    assert len(found) == len(checks), "no name twice"
    return found


# --- most machines -----------------------------------------------------------------------------


def test_a_machine_without_an_array_is_one_good_finding(settings: Settings) -> None:
    for thing in (None, array_error("not found", "none"), array_error("no usb library", "none")):
        found = look(settings, thing)
        assert list(found) == ["microphone array"]
        assert found["microphone array"].state == "ok"
        assert "none here" in found["microphone array"].detail


def test_the_real_check_does_not_fail_on_this_machine(settings: Settings) -> None:
    checks = list(check_hardware(settings))
    assert checks[0].name == "microphone array"
    assert all(check.state != "fail" for check in checks)


def test_control_never_checks_nothing(settings: Settings) -> None:
    never = settings.array.model_copy(update={"control": "never"})
    device = FakeXvf()
    found = look(settings.model_copy(update={"array": never}), device)
    assert (device.requests, found["microphone array"].state) == (0, "ok")


# --- an array that is well ---------------------------------------------------------------------


def test_a_good_array_has_only_good_findings(settings: Settings, asound: Path) -> None:
    card = "Reachy Mini Audio: USB Audio (hw:2,0)"
    found = look(settings, FakeXvf(REACHY), asound, (card, card))
    assert {name: check.state for name, check in found.items()} == {
        "microphone array": "ok",
        "array firmware": "ok",
        "array channels": "ok",
        "array echo canceller": "ok",
        "array echo path": "ok",
        "array volume": "ok",
    }
    assert found["microphone array"].detail == "Reachy Mini Audio, firmware 2.1.4, over USB"
    assert found["array channels"].detail == "1: processed: the chosen beam; 2: silence"
    assert found["array echo canceller"].detail == "settled"


def test_nothing_played_yet_is_no_fault(settings: Settings) -> None:
    found = look(settings, FakeXvf(registers={(33, 3): ints(0)}))
    assert found["array echo canceller"].state == "ok"
    assert "within 30 s" in found["array echo canceller"].detail


def test_the_array_is_closed_after_an_error(settings: Settings) -> None:
    array = ScriptedArray(
        {"BLD_MSG": "ua-io16-lin", "AEC_ASROUTONOFF": array_error("gone", "unplugged")}
    )
    checks = list(check_hardware(settings, opener=lambda *_: array, asound=Path("/nonexistent")))
    assert not array.open
    assert "unplugged" in str(checks)


# --- each trap ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "said"),
    [
        (FakeXvf(REACHY, registers={(48, 0): bytes([2, 1, 2])}), "only zeros after a suspend"),
        (FakeXvf(SEEED, registers={(48, 0): bytes([2, 0, 9])}), "no sound after a USB reset"),
        (
            FakeXvf(SEEED, registers={(48, 1): b"ua-io16-lin".ljust(50, b"\0")}),
            "Reachy Mini with a firmware from before 2.1",
        ),
        (
            FakeXvf(SEEED, registers={(48, 1): b"ua-io48-sqr".ljust(50, b"\0")}),
            "echo canceller never settles",
        ),
    ],
)
def test_bad_firmware_is_known(settings: Settings, device: FakeXvf, said: str) -> None:
    check = look(settings, device)["array firmware"]
    assert (check.state, said in check.detail) == ("warn", True)
    assert "docs/xvf3800.md" in check.fix


def test_a_current_respeaker_is_good(settings: Settings) -> None:
    device = FakeXvf(SEEED, registers={(48, 1): b"ua-io16-6ch-sqr".ljust(50, b"\0")})
    assert look(settings, device)["array firmware"].state == "ok"


@pytest.mark.parametrize(
    ("left", "right", "asr", "state", "said"),
    [
        ((6, 3), (7, 3), 1, "ok", "2: for recognisers: the auto-select beam"),
        ((8, 0), (7, 3), 0, "ok", "2: microphone 4, its echo taken out"),
        ((0, 0), (8, 0), 0, "warn", "1: silence"),
        ((5, 0), (8, 0), 0, "warn", "the echo's reference"),
        ((1, 2), (8, 0), 0, "warn", "microphone 3, raw"),
    ],
)
def test_the_channels_are_described_in_words(
    settings: Settings,
    left: tuple[int, int],
    right: tuple[int, int],
    asr: int,
    state: str,
    said: str,
) -> None:
    registers = {(35, 15): bytes(left), (35, 19): bytes(right), (33, 35): ints(asr)}
    check = look(settings, FakeXvf(registers=registers))["array channels"]
    assert (check.state, said in check.detail) == (state, True)


@pytest.mark.parametrize(
    ("right", "asr", "channel", "preset", "state"),
    [
        ((0, 0), 0, "asr", None, "warn"),
        ((8, 0), 0, "asr", None, "warn"),
        ((7, 3), 0, "asr", None, "warn"),
        ((7, 3), 1, "asr", None, "ok"),
        ((0, 0), 0, "asr", "asr-beam", "ok"),
        ((0, 0), 0, 2, None, "warn"),
        ((8, 0), 0, 2, None, "ok"),
        ((0, 0), 0, 1, None, "ok"),
    ],
)
def test_the_chosen_channel_must_carry_a_voice(
    settings: Settings,
    right: tuple[int, int],
    asr: int,
    channel: str | int,
    preset: str | None,
    state: str,
) -> None:
    sound = settings.sound.model_copy(update={"channel": channel})
    array = settings.array.model_copy(update={"preset": preset})
    chosen = settings.model_copy(update={"sound": sound, "array": array})
    check = look(chosen, FakeXvf(registers={(35, 19): bytes(right), (33, 35): ints(asr)}))
    assert check["array channels"].state == state
    assert state == "ok" or "array.preset: asr-beam" in check["array channels"].fix


def test_a_disabled_canceller_is_reported(settings: Settings) -> None:
    check = look(settings, FakeXvf(registers={(33, 70): bytes([1])}))["array echo canceller"]
    assert (check.state, "SHF_BYPASS" in check.fix) == ("warn", True)


def test_a_missing_permission_is_a_warning_and_sound_is_checked(
    settings: Settings, asound: Path
) -> None:
    found = look(settings, FakeXvf(permission=False), asound)
    assert found["microphone array"].state == "warn"
    assert 'SUBSYSTEM=="usb"' in found["microphone array"].fix
    assert found["array volume"].state == "ok"


def test_a_sound_card_missing_on_usb_is_reported(settings: Settings, asound: Path) -> None:
    found = look(settings, None, asound)["microphone array"]
    assert (found.state, "Reachy Mini Audio is a sound card" in found.detail) == ("warn", True)


def test_a_robot_that_does_not_answer_is_reported(settings: Settings) -> None:
    found = look(settings, array_error("daemon away", "http://localhost:8000: ConnectError"))
    assert (found["microphone array"].state, len(found)) == ("warn", 1)


@pytest.mark.parametrize("fault", [gone, late(60)])
def test_an_array_lost_during_the_check_ends_it(settings: Settings, fault: object) -> None:
    device = FakeXvf(retries=0)
    device.faults = [late(0), fault]  # type: ignore[list-item]
    assert look(settings, device)["array control"].state == "warn"


ARRAY_CARD, OTHER_CARD = "ReSpeaker XVF3800: USB Audio (hw:2,0)", "HDA Intel PCH: ALC256"


@pytest.mark.parametrize(
    ("devices", "echo", "state", "said"),
    [
        (None, "auto", "ok", "unknown"),
        ((ARRAY_CARD, ARRAY_CARD), "auto", "ok", "played through ReSpeaker"),
        ((ARRAY_CARD, OTHER_CARD), "auto", "warn", "does not play"),
        ((ARRAY_CARD, OTHER_CARD), "chip", "warn", "does not play"),
        ((ARRAY_CARD, OTHER_CARD), "software", "ok", "software"),
        ((OTHER_CARD, OTHER_CARD), "auto", "ok", "not the array"),
        ((OTHER_CARD, ARRAY_CARD), "auto", "ok", "not the array"),
        ((OTHER_CARD, OTHER_CARD), "chip", "warn", "records"),
    ],
)
def test_playing_elsewhere_is_a_warning_if_the_chip_cancels_the_echo(
    devices: tuple[str, str] | None, echo: str, state: str, said: str
) -> None:
    check = check_echo_path(devices, echo)
    assert (check.state, said in check.detail) == (state, True)


@pytest.mark.parametrize(
    ("mixer", "state", "said"),
    [
        (MIXER, "ok", "100 %"),
        (MIXER.replace("100%", "62%"), "warn", "62 %"),
        (MIXER.replace("[on]", "[off]"), "warn", "muted"),
        (None, "ok", "unknown"),
        ("", "ok", "unknown"),
    ],
)
def test_the_volume_trap_is_found(mixer: str | None, state: str, said: str) -> None:
    check = check_volume(2, mixer)
    assert (check.state, said in check.detail) == (state, True)
    assert state == "ok" or "amixer -c 2 set PCM,1 100%" in check.fix


def test_the_card_is_found_by_name(asound: Path) -> None:
    card = find_card(asound)
    assert card is not None
    assert (card.number, card.name) == (2, "Reachy Mini Audio")
    (asound / "cards").write_text(CARDS.replace("Reachy Mini Audio", "Headset"))
    assert find_card(asound) is None
    with contextlib.suppress(FileNotFoundError):
        (asound / "cards").unlink()
    assert find_card(asound) is None
