"""The direction of speech at the served robot: its array measures it, its daemon passes it on
(``robot.url``), and the sessions of that robot's clients get it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from app.access.policy import parse_address
from app.compose import Assistant
from hardware.xvf3800.control import ArrayControl
from hardware.xvf3800.opening import open_array
from hardware.xvf3800.watch import ArrayFound, ArrayLost, ArrayNotice, ArrayReading, ArrayWatch
from pipeline.commands import NoteDirection

log = logging.getLogger("reachy_voice.server")


@dataclass(slots=True)
class ArraySeen:
    """The array's present state."""

    url: str
    problem: str | None = "not found yet"
    """Why it does not report."""
    azimuth_deg: float | None = None
    """Of the last speech (see ``Direction``)."""
    speech: bool = False


async def robot_directions(
    assistant: Assistant, seen: ArraySeen, open_control: Callable[[], ArrayControl] | None = None
) -> None:
    """Runs until cancelled. While the robot is away, it is looked for now and then.

    ``seen``: kept up to date. ``open_control``: opens the array; ``None``: by ``array`` and
    ``robot.url``."""
    array, url = assistant.settings.array, seen.url
    await assistant.ready.wait()
    host = urlsplit(url).hostname or ""
    places: frozenset[str] = frozenset()

    def opened() -> ArrayControl:
        nonlocal places
        control = open_control() if open_control else open_array(array, url)
        # Resolve each time: a robot that was off has no address yet, and may return with another.
        places = places_of(host)
        return control

    def on_notice(notice: ArrayNotice) -> None:
        match notice:
            case ArrayReading():
                seen.speech = notice.direction.speech
                if seen.speech:
                    seen.azimuth_deg = notice.direction.azimuth_deg
                for session, place in assistant.sessions.items():
                    if place in places:
                        session.offer(NoteDirection(notice.direction))
            case ArrayFound():
                seen.problem = None
                log.info("the robot's array reports the direction of speech")
            case ArrayLost():
                seen.problem = str(notice.error)
                log.warning("the direction of speech is not known: %s", notice.error)

    await ArrayWatch(opened, on_notice).run()


def places_of(host: str) -> frozenset[str]:
    """The addresses from which the robot of that name connects. Blocking."""
    try:
        known = {parse_address(str(entry[4][0])) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        log.warning("the address of the robot %s is not known", host)
        return frozenset()
    places = {str(address) for address in known if address is not None}
    if any(address is not None and address.is_loopback for address in known):
        places |= {"127.0.0.1", "::1"}
    return frozenset(places)
