"""Tells systemd when the server is ready, and throughout that its event loop still runs.

The protocol of ``sd_notify(3)``: datagrams to the socket that ``NOTIFY_SOCKET`` names.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

_DAY_S = 86_400.0
_MORE_TIME = "EXTEND_TIMEOUT_USEC=60000000"
"""Gives the server 60 s from now to start."""


async def notify_systemd(ready: asyncio.Event, environ: Mapping[str, str]) -> None:
    """Runs until cancelled; returns at once if systemd did not start this process."""
    name = environ.get("NOTIFY_SOCKET")
    if not name:
        return
    address = f"\0{name[1:]}" if name.startswith("@") else name
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notices:
        notices.setblocking(False)

        def tell(state: str) -> None:
            with suppress(OSError):  # systemd is busy or restarts itself
                notices.sendto(state.encode(), address)

        within_s = _watchdog_s(environ)
        every_s = within_s / 2 if within_s is not None else _DAY_S
        tell("STATUS=the engines are starting")
        async with asyncio.TaskGroup() as group:
            starting = group.create_task(_repeat(_MORE_TIME, tell, every_s))
            await ready.wait()
            starting.cancel()
        tell("READY=1\nSTATUS=serving")
        try:
            await _repeat("WATCHDOG=1", tell, every_s)
        finally:
            tell("STOPPING=1\nSTATUS=ending")


async def _repeat(state: str, tell: Callable[[str], None], every_s: float) -> None:
    while True:
        tell(state)
        await asyncio.sleep(every_s)


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """How long systemd waits for a sign of life; ``None``: it does not wait for one."""
    of_another = environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid())
    time_us = environ.get("WATCHDOG_USEC")
    return None if of_another or not time_us else int(time_us) / 1e6
