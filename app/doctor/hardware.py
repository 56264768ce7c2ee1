"""The doctor's checks of the microphone array: quick, and silent about missing hardware.

Most machines have no array, which is fine. These checks never fail: even without control of the
array, its sound works.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from app.settings.model import Settings
from app.setup.finding import Check
from hardware.settings import Array
from hardware.xvf3800.boards import BOARD_NAMES, is_array_name, same_array, version_of
from hardware.xvf3800.control import ArrayControl, numbers
from hardware.xvf3800.errors import ArrayError, ParameterError
from hardware.xvf3800.opening import open_array
from hardware.xvf3800.parameters import is_speech, route_in_words

ARRAY = "microphone array"
UPDATE = "Update its firmware: docs/xvf3800.md"
REACHY_GOOD = (2, 1, 4)
"""Earlier versions deliver only zeros after a suspend or USB reset (Pollen's changelog)."""
SEEED_GOOD = (2, 0, 10)
"""Earlier versions may not capture after a USB reset (Seeed's firmware changelog)."""
MIXER_S = 0.3

OpenArray = Callable[[Array, str | None], ArrayControl]


def check_hardware(
    settings: Settings,
    devices: tuple[str, str] | None = None,
    *,
    opener: OpenArray = open_array,
    asound: Path = Path("/proc/asound"),
    mixer: Callable[[int], str | None] | None = None,
) -> Iterator[Check]:
    """Array, firmware, permission, channels, echo path, echo canceller and volume.

    ``devices``: names of the microphone and loudspeaker in use; None if unknown. The keyword
    arguments are for tests.
    """
    card = find_card(asound)
    control, finding = _open(settings, opener, card)
    yield finding
    if control is not None:
        try:
            yield from _check_chip(control, settings)
        finally:
            control.close()
    if control is None and card is None:
        return
    if control is None or control.via == "usb":
        yield check_echo_path(devices, settings.sound.echo)
    if card is not None and sys.platform == "linux":
        yield check_volume(card.number, (mixer or _mixer)(card.number))


def _open(
    settings: Settings, opener: OpenArray, card: AlsaCard | None
) -> tuple[ArrayControl | None, Check]:
    if settings.array.control == "never":
        return None, Check(ARRAY, "ok", "not looked for (array.control: never)")
    try:
        control = opener(settings.array, settings.robot.url)
    except ArrayError as error:
        if error.problem == "not found" and card is None:
            return None, Check(ARRAY, "ok", "none here")
        if error.problem == "not found" and card is not None:
            detail = f"{card.name} is a sound card, but cannot be controlled: {error.why}"
            return None, Check(ARRAY, "warn", detail, error.fix)
        without_usb = error.problem == "no usb library"
        if without_usb and card is None and settings.robot.url is None:
            return None, Check(ARRAY, "ok", "none here, as far as can be seen without libusb")
        return None, Check(ARRAY, "warn", error.account, error.fix)
    way = "through the robot's daemon" if control.via == "daemon" else "over USB"
    detail = f"{BOARD_NAMES[control.board]}, firmware {control.firmware}, {way}"
    return control, Check(ARRAY, "ok", detail)


# --- the chip ----------------------------------------------------------------------------------


def _check_chip(control: ArrayControl, settings: Settings) -> Iterator[Check]:
    beams = settings.array.preset == "asr-beam"
    channels = partial(check_channels, channel=settings.sound.channel, beams=beams)
    for check in (check_firmware, channels, check_canceller):
        try:
            yield check(control)
        except ArrayError as error:
            yield Check("array control", "warn", error.account, error.fix)
            return


def check_firmware(control: ArrayControl) -> Check:
    """Warn about versions and builds that are known to be bad."""
    build = _build(control)
    text = f"{control.firmware} {build}".strip()
    if re.search(r"io48|48k", build):
        why = "a build for 48 kHz, whose echo canceller never settles"
        return Check("array firmware", "warn", f"{text}: {why}", f"{UPDATE} (a build for 16 kHz)")
    if control.board == "seeed" and "lin" in build:
        why = "a Reachy Mini with a firmware from before 2.1"
        return Check("array firmware", "warn", f"{text}: {why}", UPDATE)
    version = version_of(control.firmware)
    if control.board == "reachy" and version < REACHY_GOOD:
        why = "delivers only zeros after a suspend or USB reset, until it is restarted"
        return Check("array firmware", "warn", f"{text}: {why}", f"{UPDATE}, to 2.1.4")
    if control.board == "seeed" and version < SEEED_GOOD:
        why = "may give no sound after a USB reset"
        return Check("array firmware", "warn", f"{text}: {why}", UPDATE)
    return Check("array firmware", "ok", text)


def _build(control: ArrayControl) -> str:
    """The firmware's build, as ``ua-io16-lin``; empty by the daemon, which sends only numbers."""
    try:
        return str(control.read("BLD_MSG"))
    except ParameterError:
        return ""


def check_channels(control: ArrayControl, channel: str | int, *, beams: bool) -> Check:
    """The routing of both channels, and whether the channel in use carries speech.

    ``channel``: ``sound.channel``. ``beams``: ``talk`` routes the recognisers' beam to the second.
    """
    asr = bool(numbers(control, "AEC_ASROUTONOFF")[0])
    left, right = (
        tuple(map(int, numbers(control, name))) for name in ("AUDIO_MGR_OP_L", "AUDIO_MGR_OP_R")
    )
    words = (
        f"1: {route_in_words(left[0], left[1], asr)}; 2: {route_in_words(right[0], right[1], asr)}"
    )
    if channel in ("asr", 2):
        good = is_speech(right[0]) and (channel == 2 or (right[0] == 7 and asr))
        if good or beams:
            return Check("array channels", "ok", words)
        fix = "Set array.preset: asr-beam, or sound.channel: processed"
        return Check("array channels", "warn", f"{words}; sound.channel is {channel}", fix)
    if is_speech(left[0]):
        return Check("array channels", "ok", words)
    fix = "Run: reachy-voice xvf set AUDIO_MGR_OP_L 8 0 (the processed beam)"
    return Check("array channels", "warn", words, fix)


def check_canceller(control: ArrayControl) -> Check:
    """Not having converged is no fault: perhaps nothing has been played since the start."""
    if numbers(control, "SHF_BYPASS")[0]:
        fix = "Run: reachy-voice xvf set SHF_BYPASS 0"
        return Check("array echo canceller", "warn", "switched off (SHF_BYPASS)", fix)
    if numbers(control, "AEC_AECCONVERGED")[0]:
        return Check("array echo canceller", "ok", "settled")
    detail = "not settled; it does within 30 s of playing something through the array"
    return Check("array echo canceller", "ok", detail)


# --- sound -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlsaCard:
    """An ALSA sound card."""

    number: int
    name: str


def find_card(asound: Path) -> AlsaCard | None:
    """The array's sound card, from /proc/asound; None if there is none, or not on Linux."""
    try:
        text = (asound / "cards").read_text()
    except OSError:
        return None
    for number, name in re.findall(r"^ *(\d+) \[.*?\]: (.*\n.*)$", text, re.MULTILINE):
        if is_array_name(name):
            label = name.splitlines()[0].rpartition(" - ")[2].strip()
            return AlsaCard(int(number), label)
    return None


def check_echo_path(devices: tuple[str, str] | None, echo: str) -> Check:
    """The chip cancels only what it plays itself, from what it records itself.

    ``echo``: ``sound.echo``.
    """
    name = "array echo path"
    if devices is None:
        return Check(name, "ok", "the sound devices in use are unknown")
    if echo in ("software", "half-duplex"):
        return Check(name, "ok", f"sound.echo is {echo}, so the chip is not used")
    microphone, speaker = devices
    if same_array(microphone, speaker):
        return Check(name, "ok", f"played through {speaker}")
    detail = f"played through {speaker}: the array cannot cancel what it does not play"
    if is_array_name(microphone):
        fix = "Set sound.speaker to auto and plug the loudspeaker into the array"
        return Check(name, "warn", detail, f"{fix}, or sound.echo: software")
    if echo == "chip":
        fix = "Set sound.microphone and sound.speaker to auto, or sound.echo"
        return Check(name, "warn", f"{microphone} records, {detail}", fix)
    return Check(name, "ok", f"{microphone} records, not the array; this program cancels the echo")


def check_volume(card: int, mixer: str | None) -> Check:
    """The second PCM control of an XVF3800 must be at 100 %: a known trap of its sound on Linux.

    ``mixer``: the output of ``amixer -c CARD sget PCM,1``; None if it failed.
    """
    levels = [int(level) for level in re.findall(r"\[(\d+)%\]", mixer or "")]
    if mixer is None or not levels:
        return Check("array volume", "ok", "unknown: no amixer, or it does not know PCM,1")
    level = min(levels)
    is_muted = "[off]" in mixer
    if level == 100 and not is_muted:
        return Check("array volume", "ok", "100 %")
    detail = f"{level} %{', muted' if is_muted else ''}; it must be 100 %"
    return Check("array volume", "warn", detail, f"Run: amixer -c {card} set PCM,1 100% unmute")


def _mixer(card: int) -> str | None:
    command = ["amixer", "-c", str(card), "sget", "PCM,1"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=MIXER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout if run.returncode == 0 else None
