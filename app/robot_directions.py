"""From where somebody speaks to the robot whose app is served: its array tells, its daemon passes
it on (``robot.url``), and the sessions of that robot's clients hear of it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from app.compose import Assistant
from hardware.xvf3800.control import ArrayControl
from hardware.xvf3800.opening import open_array
from hardware.xvf3800.watch import ArrayFound, ArrayLost, ArrayNotice, ArrayReading, ArrayWatch
from pipeline.commands import NoteDirection

log = logging.getLogger("reachy_voice.server")


async def robot_directions(
    assistant: Assistant, open_control: Callable[[], ArrayControl] | None = None
) -> None:
    """Until cancelled. A robot that is not there costs a look now and then.

    ``open_control``: opens the array; ``None``: as ``array`` and ``robot.url`` say."""
    array, url = assistant.settings.array, assistant.settings.robot.url
    if array.control == "never" or url is None:
        return
    await assistant.ready.wait()
    places = await asyncio.to_thread(places_of, urlsplit(url).hostname or "")

    def says(notice: ArrayNotice) -> None:
        match notice:
            case ArrayReading():
                for session, place in assistant.sessions.items():
                    if place in places:
                        session.offer(NoteDirection(notice.direction))
            case ArrayFound():
                log.info("the robot's array tells from where somebody speaks")
            case ArrayLost():
                log.warning("nobody tells from where somebody speaks: %s", notice.error)

    await ArrayWatch(open_control or (lambda: open_array(array, url)), says).run()


def places_of(host: str) -> frozenset[str]:
    """The addresses from which a robot of that name connects. Blocking."""
    try:
        found = {str(known[4][0]) for known in socket.getaddrinfo(host, None)}
    except OSError:
        log.warning("the address of the robot %s is not known", host)
        return frozenset()
    if any(ipaddress.ip_address(address).is_loopback for address in found):
        found |= {"127.0.0.1", "::1"}
    return frozenset(found)
