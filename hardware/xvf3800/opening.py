"""Chooses how to reach an array: over USB, or through the daemon that holds it."""

from __future__ import annotations

from typing import Any

from hardware.daemon_url import is_local
from hardware.settings import Array
from hardware.xvf3800.control import ArrayControl
from hardware.xvf3800.daemon_parameters import DaemonArray
from hardware.xvf3800.device import UsbArray, find_device, usb_backend
from hardware.xvf3800.errors import ArrayError, array_error

_USB_CLOSED = ("not found", "no permission", "no usb library", "busy")
"""After these problems over USB, the daemon may still give access."""


def open_array(settings: Array, robot_url: str | None, backend: Any = None) -> ArrayControl:
    """Find an array and open it. Blocks for a few seconds at most.

    A Reachy Mini's array whose daemon runs on this machine is reached through that daemon, because
    two programs on the device would disturb each other. Any other array is opened over USB, or
    through the daemon if USB has no array or refuses access.

    ``backend``: pyusb's, for tests; None is libusb. Raises ``ArrayError``.
    """
    if settings.control == "never":
        raise array_error("not found", "array.control is never")
    through_daemon: ArrayError | None = None
    try:
        backend = backend or usb_backend()
        _, board = find_device(backend)
        if board == "reachy" and robot_url and is_local(robot_url):
            try:
                return DaemonArray(robot_url)
            except ArrayError as error:
                through_daemon = error
                if error.problem not in ("daemon away", "not the daemon", "not found"):
                    raise  # the daemon is running and holds the device
        return UsbArray(backend)
    except ArrayError as over_usb:
        if robot_url is None or through_daemon is not None or over_usb.problem not in _USB_CLOSED:
            raise
        return _through_daemon(robot_url, over_usb)


def _through_daemon(url: str, over_usb: ArrayError) -> ArrayControl:
    try:
        return DaemonArray(url)
    except ArrayError as error:
        # If an array is here, its own error matters more than the absent robot's.
        if over_usb.problem != "not found":
            raise over_usb from error
        raise
