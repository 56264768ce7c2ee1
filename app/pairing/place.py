"""Where is the robot? By the name or address given, or by mDNS."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from app.access.policy import is_loopback
from app.pairing.steps import APP_PORT, RobotAddress, Times, WhichRobot, plain
from app.server.discovery import ROBOTS, Service, addresses_of, find, source_address
from hardware.daemon_url import DAEMON_PORT

USUAL_NAMES = ("reachy-mini.local", "localhost")
"""Default host names of a Reachy Mini and of a Reachy Mini Lite."""

_HOW_TO_FIND = (
    "Is it on, and in this network? The robot's dashboard and the router show its address; then: "
    "reachy-voice pair 192.168.1.7. For a Reachy Mini Lite: reachy-voice pair localhost, on the "
    "machine that it is plugged into"
)


def parse_place(text: str) -> tuple[str, int]:
    """Parse host and port of the conversation app, from ``kitchen``, ``192.168.1.7``,
    ``reachy-mini.local:7860``, ``[fd00::7]:7860``, ``fd00::7``, or the URL of the app's page.
    Raises ``WhichRobot``."""
    words = text.strip()
    with suppress(ValueError):
        ipaddress.ip_address(words)
        return words, APP_PORT
    with suppress(ValueError):
        parts = urlsplit(words if "://" in words else f"//{words}")
        if "//" not in words and " " in words and not parts.port and words.isprintable():
            return words, APP_PORT  # a robot's name may have spaces
        if parts.hostname and not parts.username and " " not in words:
            # People may paste the daemon's page; the app has its own port.
            port = None if parts.port == DAEMON_PORT else parts.port
            return parts.hostname, port or APP_PORT
    fix = "Type its name or address, as in reachy-voice pair 192.168.1.7 or reachy-mini.local"
    raise WhichRobot(f"{text!r} is not a name or address of a robot", fix=fix)


async def robot_at(text: str, times: Times) -> RobotAddress:
    """The robot with this name or address. Raises ``WhichRobot``."""
    host, app_port = parse_place(text)
    service = await _service_of(host, times)
    if not service.addresses:
        service = _the_one_called(host, await find(ROBOTS, times.browse_s))
    robot, _ = await _reach(service, times, app_port)
    if robot is None:
        why = f"this machine has no route to {', '.join(service.addresses) or 'it'}"
        raise WhichRobot(f"{plain(host, 80)} cannot be reached", why=why, fix=_HOW_TO_FIND)
    return robot


async def robots_around(times: Times) -> list[RobotAddress]:
    """Robots that answer, by mDNS, by default name and on this machine, without duplicates."""
    announced, usual = await asyncio.gather(
        find(ROBOTS, times.browse_s),
        asyncio.gather(*(_service_of(name, times) for name in USUAL_NAMES)),
    )
    services = [*announced, *usual]
    replies = await asyncio.gather(*(_reach(one, times) for one in services))
    robots: dict[str, RobotAddress] = {}
    hosts = set()
    for one, (robot, answers) in zip(services, replies, strict=True):
        # A robot's default name may lead to another address of a robot found already.
        if robot is not None and answers and not (one.name == one.host in hosts):
            robots.setdefault(robot.address, robot)
            hosts.add(one.host)
    return list(robots.values())


def the_only(robots: Sequence[RobotAddress]) -> RobotAddress:
    """Raises ``WhichRobot`` unless there is exactly one."""
    if not robots:
        raise WhichRobot("No robot was found", why="no robot answers to mDNS", fix=_HOW_TO_FIND)
    if len(robots) > 1:
        places = ", ".join(robot.place for robot in robots)
        fix = f"Choose one: reachy-voice pair {robots[0].address}"
        raise WhichRobot(f"There are {len(robots)} robots", why=places, fix=fix)
    return robots[0]


async def _service_of(name: str, times: Times) -> Service:
    return Service(name, name, DAEMON_PORT, tuple(await _addresses(name, times)))


def _the_one_called(name: str, around: Sequence[Service]) -> Service:
    """Raises ``WhichRobot`` unless one robot has the name: any host may announce any name."""
    matches = [one for one in around if _is_called(one, name)]
    places = dict.fromkeys(", ".join(one.addresses) for one in matches)
    if not matches:
        what = f"No robot is called {name!r} here"
        raise WhichRobot(what, why="neither a name service nor mDNS knows it", fix=_HOW_TO_FIND)
    if len(places) > 1:
        what = f"{len(places)} robots are called {name!r}"
        fix = "Give the address of one of them, as in reachy-voice pair 192.168.1.7"
        raise WhichRobot(what, why=f"they are at {plain('; '.join(places))}", fix=fix)
    return matches[0]


def _is_called(one: Service, name: str) -> bool:
    short = name.lower().removesuffix(".local")
    names = {one.name, one.host.removesuffix(".local"), one.properties.get("robot_name", "")}
    return short in {each.lower() for each in names}


async def _reach(
    one: Service, times: Times, app_port: int = APP_PORT
) -> tuple[RobotAddress | None, bool]:
    """The robot at the first address at which an app or a daemon listens, and ``True``; else at
    the first address to which there is a route."""
    name = plain(one.name, 80)  # any host may have chosen this name, and we print it
    robots = []
    for address in one.addresses:
        ours = await asyncio.to_thread(source_address, address)
        if ours == address and not is_loopback(address):
            address = ours = "127.0.0.1"  # a local program may listen there only
        if ours is not None:
            robots.append(RobotAddress(name, address, ours, app_port))
    asked = [(robot, port) for robot in robots for port in (app_port, one.port)]
    answers = await asyncio.gather(
        *(listens(robot.address, port, times.connect_s) for robot, port in asked)
    )
    for (robot, _), is_open in zip(asked, answers, strict=True):
        if is_open:
            return robot, True
    return (robots[0] if robots else None), False


async def listens(address: str, port: int, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(address, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _addresses(host: str, times: Times) -> Sequence[str]:
    """Addresses of the name by name service, IPv4 first, else of ``NAME.local`` by mDNS."""
    try:
        async with asyncio.timeout(times.connect_s):
            loop = asyncio.get_running_loop()
            infos = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        infos.sort(key=lambda info: info[0] != socket.AF_INET)
        return list(dict.fromkeys(str(info[4][0]) for info in infos))
    except (OSError, UnicodeError, TimeoutError):
        local = host if "." in host else f"{host}.local"
        return await addresses_of(local, times.connect_s) if local.endswith(".local") else ()
