"""Restart the chip, and wait until it is back. Blocking."""

from __future__ import annotations

import time
from collections.abc import Callable

from hardware.xvf3800.control import ArrayControl
from hardware.xvf3800.errors import ArrayError, array_error

SETTLE_S = 3.0
"""The device leaves the bus, starts and is enumerated again in 3 to 5 s."""
LOOK_EVERY_S = 0.5
GIVE_UP_S = 15.0


def restart(control: ArrayControl) -> None:
    """Send the command. The device may leave the bus before it acknowledges.

    Its sound goes with it, and every unsaved parameter is lost. Raises ``ArrayError`` if the
    command did not reach it.
    """
    try:
        control.write("REBOOT", 1)
    except ArrayError as error:
        # The daemon says "not applied" when the device left before the transfer had ended.
        is_gone = error.problem in ("gone", "silent", "stalled", "transfer failed")
        if not is_gone and (error.problem, control.via) != ("refused", "daemon"):
            raise


def reboot(control: ArrayControl, open: Callable[[], ArrayControl]) -> ArrayControl:
    """Restart ``control`` and close it; return the array that comes back, opened by ``open``.

    If an ``ArrayWatch`` has the array, use its ``restart``. Raises ``ArrayError`` after 15 s.
    """
    try:
        restart(control)
    finally:
        control.close()
    give_up = time.monotonic() + GIVE_UP_S
    time.sleep(SETTLE_S)
    while True:
        try:
            return open()
        except ArrayError as error:
            if time.monotonic() + LOOK_EVERY_S > give_up:
                raise array_error("not back", str(error)) from error
        time.sleep(LOOK_EVERY_S)
