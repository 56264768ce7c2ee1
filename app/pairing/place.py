"""Where is the robot? By the name or address given, or by mDNS."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from app.pairing.steps import APP_PORT, RobotAddress, Times, WhichRobot, plain
from app.server.discovery import ROBOTS, Service, addresses_of, find
from hardware.daemon_url import DAEMON_PORT

USUAL_NAMES = ("reachy-mini.local", "localhost")
"""Default host names of a Reachy Mini and of a Reachy Mini Lite."""

DISCARD = 9
"""Any port will do: connecting a datagram socket sends nothing."""

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
    if addresses := await _addresses(host, times):
        robot, _ = await _reach(host, addresses, (app_port, DAEMON_PORT), times)
    else:
        service = _the_one_called(host, await find(ROBOTS, times.browse_s))
        robot, _ = await _reach_service(service, app_port, times)
    if robot is None:
        why = f"this machine has no route to {', '.join(addresses) or 'it'}"
        raise WhichRobot(f"{plain(host, 80)} cannot be reached", why=why, fix=_HOW_TO_FIND)
    return robot


async def robots_around(times: Times) -> list[RobotAddress]:
    """Robots that answer, by mDNS, by default name and on this machine, without duplicates."""
    by_mdns, usual = await asyncio.gather(
        find(ROBOTS, times.browse_s),
        asyncio.gather(*(_service_of(name, times) for name in USUAL_NAMES)),
    )
    services = [*by_mdns, *(one for one in usual if one.addresses)]
    replies = await asyncio.gather(*(_reach_service(one, APP_PORT, times) for one in services))
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
    return Service(name, name, DAEMON_PORT, tuple(await look_up(name, times.connect_s)))


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


async def _reach_service(
    one: Service, app_port: int, times: Times
) -> tuple[RobotAddress | None, bool]:
    """As ``_reach``, at its announced addresses or, if nothing answers there, at its host name: a
    daemon announces the address that it had when it started."""
    ports = (app_port, one.port)
    robot, answers = await _reach(one.name, one.addresses, ports, times)
    if not answers and one.host.endswith(".local"):
        now, answers = await _reach(one.name, await _addresses(one.host, times), ports, times)
        robot = now or robot
    return robot, answers


async def _reach(
    name: str, addresses: Sequence[str], ports: tuple[int, int], times: Times
) -> tuple[RobotAddress | None, bool]:
    """The robot at the first address at which an app or a daemon listens, and ``True``; else at
    the first address to which there is a route."""
    name = plain(name, 80)  # any host may have chosen this name, and we print it
    robots = []
    for address in addresses:
        ours = await asyncio.to_thread(source_address, address)
        if ours == address:  # a local program may listen on loopback only
            ip = ipaddress.ip_address(address.partition("%")[0])
            address = ours = address if ip.is_loopback else "127.0.0.1"
        if ours is not None:
            robots.append(RobotAddress(name, address, ours, ports[0]))
    listening = await asyncio.gather(
        *(_listens(robot.address, port, times.connect_s) for robot in robots for port in ports)
    )
    for number, robot in enumerate(robots):
        if any(listening[2 * number : 2 * number + 2]):
            return robot, True
    return (robots[0] if robots else None), False


async def _listens(address: str, port: int, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(address, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


# --- names and addresses -----------------------------------------------------------------------


async def _addresses(host: str, times: Times) -> list[str]:
    """Addresses of the name, else of ``NAME.local`` by name service, else by mDNS. All three run
    at once, so that a silent name service costs its timeout only once."""
    look_ups = [look_up(host, times.connect_s)]
    local = host if host.endswith(".local") else f"{host}.local"
    if local == host or "." not in host:
        if local != host:
            look_ups.append(look_up(local, times.connect_s))
        look_ups.append(addresses_of(local, min(times.browse_s, times.connect_s)))
    async with asyncio.TaskGroup() as asking:
        tasks = [asking.create_task(one) for one in look_ups]
        for task in tasks:
            if addresses := await task:
                for other in tasks:
                    other.cancel()
                return addresses
    return []


async def look_up(host: str, timeout_s: float) -> list[str]:
    """The addresses of a name, IPv4 first; empty after a timeout.

    Runs in a daemon thread: a name service may take half a minute, and a thread of the loop's pool
    would delay the end of the program.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Any]] = loop.create_future()

    def give(infos: list[Any]) -> None:
        if not answer.done():
            answer.set_result(infos)

    def ask() -> None:
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            infos = []
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(give, infos)

    threading.Thread(target=ask, name="look-up", daemon=True).start()
    try:
        async with asyncio.timeout(timeout_s):
            infos = await answer
    except TimeoutError:
        return []
    ipv4_first = sorted(infos, key=lambda info: info[0] != socket.AF_INET)
    return list(dict.fromkeys(_with_zone(info[4]) for info in ipv4_first))


def _with_zone(place: Any) -> str:
    """The address; a link-local IPv6 address gets its zone, without which it is useless."""
    address = str(place[0])
    zone = place[3] if len(place) > 3 else 0
    return f"{address}%{zone}" if zone and "%" not in address else address


def source_address(address: str) -> str | None:
    """Our source address for packets to ``address``; ``None``: there is no route. Sends nothing.

    A link-local IPv6 address does not count, because the robot could use it only with the name of
    one of its own interfaces.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        place = socket.getaddrinfo(
            address, DISCARD, family, socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
        )[0][4]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)
            ours = str(probe.getsockname()[0])
    except OSError:
        return None
    ip = ipaddress.ip_address(ours.partition("%")[0])
    return None if ip.version == 6 and ip.is_link_local else ours
