"""Notices when this machine's addresses change: another Wi-Fi, a cable, a network that comes up
after the server. Linux only (rtnetlink(7)).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

log = logging.getLogger("reachy_voice.discovery")

_IPV4_ADDRESSES, _IPV6_ADDRESSES = 0x10, 0x100
"""``RTMGRP_IPV4_IFADDR`` and ``RTMGRP_IPV6_IFADDR``."""

_MESSAGE_BYTES = 65_536


@asynccontextmanager
async def address_changes() -> AsyncIterator[asyncio.Event]:
    """An event that is set whenever an address appears or disappears; the reader clears it. Never
    set if the system does not report changes."""
    changed = asyncio.Event()
    listener = _listener()
    if listener is None:
        yield changed
        return

    def hear() -> None:
        with contextlib.suppress(OSError):  # an overflow means changes, too
            listener.recv(_MESSAGE_BYTES)
        changed.set()

    loop = asyncio.get_running_loop()
    with listener:
        loop.add_reader(listener, hear)
        try:
            yield changed
        finally:
            loop.remove_reader(listener)


def _listener() -> socket.socket | None:
    if not hasattr(socket, "AF_NETLINK"):
        return None
    listener = None
    try:
        listener = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        listener.setblocking(False)
        listener.bind((0, _IPV4_ADDRESSES | _IPV6_ADDRESSES))
    except OSError as error:  # some containers forbid it
        log.debug("this system does not report changes of addresses: %s", error)
        if listener is not None:
            listener.close()
        return None
    return listener
