"""What can go wrong with the array: what happened, why, and what to do next."""

from __future__ import annotations

import sys
from typing import Literal

from hardware.xvf3800.udev import INSTALL, RULES, SECOND_STEP
from pipeline.errors import ReachyVoiceError

Problem = Literal[
    "no usb library",
    "not found",
    "no permission",
    "no driver",
    "gone",
    "busy",
    "stalled",
    "silent",
    "wrong answer",
    "refused",
    "not taken",
    "transfer failed",
    "daemon away",
    "daemon silent",
    "not the daemon",
    "not back",
    "other",
]

TRANSIENT: tuple[Problem, ...] = ("busy", "stalled", "silent", "wrong answer")
"""After these the same handle may work again."""

_WINUSB = "give the array's control interface the driver WinUSB, for example with Zadig"


def permission_fix(system: str) -> str:
    """What gives permission. ``system``: as ``sys.platform``."""
    if system == "linux":
        return f"Run: {INSTALL}\nIt installs this udev rule:\n{RULES}\n{SECOND_STEP}"
    end_others = "End other programs that control it"
    return f"{end_others}; or {_WINUSB}" if system == "win32" else end_others


WORDS: dict[Problem, tuple[str, str]] = {
    "no usb library": (
        "No USB library was found, so the microphone array cannot be controlled",
        "Run: script/serve --setup-only (it installs libusb-package), or install libusb-1.0",
    ),
    "not found": (
        "No XVF3800 microphone array was found",
        "Plug the Reachy Mini or the ReSpeaker in: `lsusb` lists it as 38fb:1001 or 2886:001a. "
        "If it is at another machine, set robot.url to the robot's daemon",
    ),
    "no permission": (
        "The system does not let you control the microphone array; its sound works all the same",
        permission_fix(sys.platform),
    ),
    # libusb cannot reach the device (Windows).
    "no driver": (
        "The microphone array cannot be controlled through this system's driver",
        f"On Windows, {_WINUSB}",
    ),
    "gone": ("The microphone array is gone", "Plug it in again; it is found by itself"),
    "busy": (
        "The microphone array is busy",
        "Try again. If it stays so, end other programs that control it; if that is the robot's "
        "daemon, set robot.url",
    ),
    # A STALL of the USB control endpoint.
    "stalled": (
        "The microphone array refused a command",
        "Its firmware may not know the command. If all fail, run: reachy-voice xvf reboot",
    ),
    "silent": (
        "The microphone array does not answer",
        "Run: reachy-voice xvf reboot. If that does not help, unplug it for a moment",
    ),
    "wrong answer": (
        "The microphone array gave an answer that makes no sense",
        "Update its firmware (docs/xvf3800.md); another one may have other parameters",
    ),
    "refused": (
        "The microphone array's firmware does not accept a command",
        "Update its firmware (docs/xvf3800.md), or use another parameter",
    ),
    "not taken": (
        "The microphone array did not take a value",
        "The chip may change it by itself, as PP_AGCGAIN while PP_AGCONOFF is 1",
    ),
    "transfer failed": (
        "A USB transfer to the microphone array failed",
        "Unplug it for a moment; use another port or cable, and no hub",
    ),
    "daemon away": (
        "No microphone array is here, and the robot, which has one, does not answer",
        "Switch the robot and its daemon on, correct robot.url, or plug an array in here",
    ),
    "daemon silent": (
        "The robot's daemon does not answer when it is asked about its microphone array",
        "If it stays so, restart the robot's daemon",
    ),
    "not the daemon": (
        "What answers at robot.url gives no microphone array",
        "Check robot.url; update the robot's daemon, this was written for reachy-mini 1.13.0",
    ),
    "not back": (
        "The microphone array did not come back after its restart",
        "Unplug it for some seconds, and plug it in again",
    ),
}


class ArrayError(ReachyVoiceError):
    """The XVF3800's control interface cannot be used. Its sound may work all the same."""

    exit_code = 21
    problem: Problem = "other"


def array_error(problem: Problem, why: str) -> ArrayError:
    """The error for one of ``WORDS``."""
    what, fix = WORDS[problem]
    error = ArrayError(what, why=why, fix=fix)
    error.problem = problem
    return error


class ParameterError(ArrayError):
    """A mistake of the caller, found before anything is sent."""

    exit_code = 2
