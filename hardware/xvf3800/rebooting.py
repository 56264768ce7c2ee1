"""Restart the chip, and wait until it is back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from hardware.xvf3800.control import ArrayControl
from hardware.xvf3800.errors import (
    ArrayError,
    ArrayGone,
    ArrayRefused,
    ArraySilent,
    ArrayStalled,
    RebootFailed,
    TransferFailed,
)
from hardware.xvf3800.threads import InThread, in_thread

SETTLE_S = 3.0
"""The device leaves the bus, starts and is enumerated again in 3 to 5 s."""
LOOK_EVERY_S = 0.5
GIVE_UP_S = 15.0


def restart(control: ArrayControl) -> None:
    """Send the order; blocking. The device may leave before it has said so.

    It leaves the bus with its sound, and forgets every parameter that was not saved. Raises
    ``ArrayError`` where the order did not reach it.
    """
    left: tuple[type[ArrayError], ...] = (ArrayGone, ArraySilent, ArrayStalled, TransferFailed)
    if control.via == "daemon":
        # It says "not applied" when the device left before the transfer had ended.
        left = (*left, ArrayRefused)
    with contextlib.suppress(*left):
        control.write("REBOOT", 1)


async def reboot(
    control: ArrayControl, open: Callable[[], ArrayControl], call: InThread = in_thread
) -> ArrayControl:
    """Restart ``control`` and close it; give the array that comes back, opened by ``open``.

    Where an ``ArrayWatch`` has the array, use its ``restart``. Raises ``RebootFailed`` after 15 s.
    """

    def restart_and_close() -> None:
        try:
            restart(control)
        finally:
            control.close()

    await call(restart_and_close)
    loop = asyncio.get_running_loop()
    give_up = loop.time() + GIVE_UP_S
    await asyncio.sleep(SETTLE_S)
    while True:
        try:
            return await _opened(open, call)
        except ArrayError as error:
            if loop.time() + LOOK_EVERY_S > give_up:
                raise RebootFailed(str(error)) from error
        await asyncio.sleep(LOOK_EVERY_S)


async def _opened(open: Callable[[], ArrayControl], call: InThread) -> ArrayControl:
    """Closes what a thread opened for a caller that was cancelled."""
    opened: list[ArrayControl] = []
    try:
        await call(lambda: opened.append(open()))
    except BaseException:
        for control in opened:
            await call(control.close)
        raise
    return opened[0]
