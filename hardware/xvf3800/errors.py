"""What can go wrong with the array, each with a name, a reason and a next step."""

from __future__ import annotations

import sys

from hardware.xvf3800.udev import INSTALL, RULES, SECOND_STEP
from pipeline.errors import NamedError, ReachyVoiceError


class ArrayError(ReachyVoiceError):
    """The XVF3800's control interface cannot be used. Its sound may work all the same."""

    exit_code = 21


class DeviceError(NamedError, ArrayError):
    """Something with the device."""


class NoUsbLibrary(DeviceError):
    """libusb cannot be loaded."""

    WHAT = "No USB library was found, so the microphone array cannot be controlled"
    FIX = "Run: script/serve --setup-only (it installs libusb-package), or install libusb-1.0"


class ArrayNotFound(DeviceError):
    """No XVF3800 is plugged in, or none that we know."""

    WHAT = "No XVF3800 microphone array was found"
    FIX = (
        "Plug the Reachy Mini or the ReSpeaker in: `lsusb` lists it as 38fb:1001 or 2886:001a. "
        "If it is at another machine, set robot.url to the robot's daemon"
    )


_WINUSB = "give the array's control interface the driver WinUSB, for example with Zadig"


def _permission(system: str) -> str:
    """What gives permission. ``system``: as ``sys.platform``."""
    if system == "linux":
        return f"Run: {INSTALL}\nIt installs this udev rule:\n{RULES}\n{SECOND_STEP}"
    end_others = "End other programs that control it"
    return f"{end_others}; or {_WINUSB}" if system == "win32" else end_others


class NoPermission(DeviceError):
    """The operating system lets this user hear the array, but not control it."""

    WHAT = "The system does not let you control the microphone array; its sound works all the same"
    FIX = _permission(sys.platform)


class NoDriver(DeviceError):
    """The system has no driver through which libusb reaches the device (Windows)."""

    WHAT = "The microphone array cannot be controlled through this system's driver"
    FIX = f"On Windows, {_WINUSB}"


class ArrayGone(DeviceError):
    """The device was unplugged, or it restarts."""

    WHAT = "The microphone array is gone"
    FIX = "Plug it in again; it is found by itself"


class ArrayBusy(DeviceError):
    """The device or another program keeps us waiting."""

    WHAT = "The microphone array is busy"
    FIX = (
        "Try again. If it stays so, end other programs that control it; if that is the robot's "
        "daemon, set robot.url"
    )


class ArrayStalled(DeviceError):
    """The device refuses the transfer (a STALL of the USB control endpoint)."""

    WHAT = "The microphone array refused a command"
    FIX = "Its firmware may not know the command. If all fail, run: reachy-voice xvf reboot"


class ArraySilent(DeviceError):
    """The device does not answer in time."""

    WHAT = "The microphone array does not answer"
    FIX = "Run: reachy-voice xvf reboot. If that does not help, unplug it for a moment"


class WrongAnswer(DeviceError):
    """The answer is not what the protocol says: too short, or of an unknown status."""

    WHAT = "The microphone array gave an answer that makes no sense"
    FIX = "Update its firmware (docs/xvf3800.md); another one may have other parameters"


class ArrayRefused(DeviceError):
    """The firmware says no: it does not know the command, or does not like the value."""

    WHAT = "The microphone array's firmware does not accept a command"
    FIX = "Update its firmware (docs/xvf3800.md), or use another parameter"


class NotTaken(DeviceError):
    """What is read back is not what was written."""

    WHAT = "The microphone array did not take a value"
    FIX = "The chip may change it by itself, as PP_AGCGAIN while PP_AGCONOFF is 1"


class TransferFailed(DeviceError):
    """Any other failure of the USB stack."""

    WHAT = "A USB transfer to the microphone array failed"
    FIX = "Unplug it for a moment; use another port or cable, and no hub"


class DaemonAway(DeviceError):
    """Nothing answers at ``robot.url``, and there is no other way to an array."""

    WHAT = "No microphone array is here, and the robot, which has one, does not answer"
    FIX = "Switch the robot and its daemon on, correct robot.url, or plug an array in here"


class DaemonSilent(DeviceError):
    """The robot's daemon is there, and does not answer in time, or breaks off."""

    WHAT = "The robot's daemon does not answer when it is asked about its microphone array"
    FIX = "If it stays so, restart the robot's daemon"


class NotTheDaemon(DeviceError):
    """What answers at ``robot.url`` gives no array."""

    WHAT = "What answers at robot.url gives no microphone array"
    FIX = "Check robot.url; update the robot's daemon, this was written for reachy-mini 1.13.0"


class RebootFailed(DeviceError):
    """The device did not come back."""

    WHAT = "The microphone array did not come back after its restart"
    FIX = "Unplug it for some seconds, and plug it in again"


class ParameterError(ArrayError):
    """A mistake of the caller, found before anything is sent."""

    exit_code = 2


class UnknownParameter(ParameterError):
    """There is no such name on this board."""


class NotReadable(ParameterError):
    """The parameter can only be written."""


class NotWritable(ParameterError):
    """The parameter can only be read."""


class WrongValues(ParameterError):
    """Too many or too few values, or values outside of their range."""


class UnknownPreset(ParameterError):
    """There is no such preset."""


TRANSIENT = (ArrayBusy, ArrayStalled, ArraySilent, WrongAnswer)
"""Errors after which the same handle may work again."""
