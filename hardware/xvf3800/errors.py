"""What can go wrong with the array, each with a name, a reason and a next step."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from hardware.xvf3800.udev import INSTALL, RULES, SECOND_STEP
from pipeline.errors import ReachyVoiceError


class ArrayError(ReachyVoiceError):
    """The XVF3800's control interface cannot be used. Its sound may work all the same."""

    exit_code = 21


class DeviceError(ArrayError):
    """Something with the device; only ``why`` differs from case to case."""

    WHAT: ClassVar[str] = "The microphone array cannot be controlled"
    FIX: ClassVar[str] = ""

    def __init__(self, why: str) -> None:
        super().__init__(self.WHAT, why=why, fix=self.FIX)

    def __reduce__(self) -> tuple[Callable[..., ReachyVoiceError], tuple[object, ...]]:
        return type(self), (self.why,)


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


class NoPermission(DeviceError):
    """The operating system lets this user hear the array, but not control it."""

    WHAT = "This user may not control the microphone array; its sound works all the same"
    FIX = f"Run: {INSTALL}\nIt installs this udev rule:\n{RULES}\n{SECOND_STEP}"


class NoDriver(DeviceError):
    """The system has no driver through which libusb reaches the device (Windows)."""

    WHAT = "The microphone array cannot be controlled through this system's driver"
    FIX = "On Windows, give the array's control interface the driver WinUSB, for example with Zadig"


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


class DaemonUnavailable(DeviceError):
    """The robot's daemon does not answer, or has no array."""

    WHAT = "The robot's daemon cannot reach its microphone array"
    FIX = "Start the robot's daemon, and check robot.url"


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
