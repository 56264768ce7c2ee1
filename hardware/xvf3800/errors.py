"""Errors of the array: what happened, why, and what to do next."""

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
"""After these problems the same handle may work again."""

_WINUSB = "give the array's control interface the driver WinUSB, for example with Zadig"


def permission_fix(system: str) -> str:
    """How to get permission. ``system``: as ``sys.platform``."""
    if system == "linux":
        return f"Run: {INSTALL}\nIt installs this udev rule:\n{RULES}\n{SECOND_STEP}"
    end_others = "End other programs that control it"
    return f"{end_others}; or {_WINUSB}" if system == "win32" else end_others


WORDS: dict[Problem, tuple[str, str]] = {
    "no usb library": (
        "No USB library was found, so the microphone array cannot be controlled",
        "Run: reachy-voice setup (it installs libusb-package), or install libusb-1.0",
    ),
    "not found": (
        "No XVF3800 microphone array was found",
        "Plug the Reachy Mini or the ReSpeaker in: `lsusb` lists it as 38fb:1001 or 2886:001a. "
        "If it is on another machine, set robot.url to the robot's daemon",
    ),
    "no permission": (
        "You lack permission to control the microphone array; its sound still works",
        permission_fix(sys.platform),
    ),
    # libusb cannot reach the device (Windows).
    "no driver": (
        "The microphone array cannot be controlled through this system's driver",
        f"On Windows, {_WINUSB}",
    ),
    "gone": ("The microphone array is gone", "Plug it in again; it will be found automatically"),
    "busy": (
        "The microphone array is busy",
        "Try again. If it stays busy, end other programs that control it; if that is the robot's "
        "daemon, set robot.url",
    ),
    # A STALL of the USB control endpoint.
    "stalled": (
        "The microphone array refused a command",
        "Its firmware may not know the command. If all commands fail, run: reachy-voice xvf reboot",
    ),
    "silent": (
        "The microphone array does not answer",
        "Run: reachy-voice xvf reboot. If that does not help, unplug it for a moment",
    ),
    "wrong answer": (
        "The microphone array sent an invalid answer",
        "Update its firmware (docs/xvf3800.md); other versions may have other parameters",
    ),
    "refused": (
        "The microphone array's firmware does not accept a command",
        "Update its firmware (docs/xvf3800.md), or use another parameter",
    ),
    "not taken": (
        "The microphone array did not take a value",
        "The chip may change it by itself, like PP_AGCGAIN while PP_AGCONOFF is 1",
    ),
    "transfer failed": (
        "A USB transfer to the microphone array failed",
        "Unplug it for a moment; try another port or cable, without a hub",
    ),
    "daemon away": (
        "This machine has no microphone array, and the robot, which has one, does not answer",
        "Switch the robot and its daemon on, correct robot.url, or plug an array in here",
    ),
    "daemon silent": (
        "The robot's daemon does not answer requests for its microphone array",
        "If this persists, restart the robot's daemon",
    ),
    "not the daemon": (
        "The server at robot.url offers no microphone array",
        "Check robot.url; update the robot's daemon, this was written for reachy-mini 1.13.0",
    ),
    "not back": (
        "The microphone array did not come back after its restart",
        "Unplug it for some seconds, and plug it in again",
    ),
}


class ArrayError(ReachyVoiceError):
    """The XVF3800's control interface cannot be used. Its sound may still work."""

    exit_code = 21
    problem: Problem = "other"


def array_error(problem: Problem, why: str) -> ArrayError:
    """The error for one of ``WORDS``."""
    what, fix = WORDS[problem]
    error = ArrayError(what, why=why, fix=fix)
    error.problem = problem
    return error


class ParameterError(ArrayError):
    """A mistake by the caller, found before anything is sent."""

    exit_code = 2
