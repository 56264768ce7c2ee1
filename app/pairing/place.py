"""Where is the robot? By the name or address given, or by mDNS."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from app.pairing.steps import APP_PORT, Robot, Times, WhichRobot, plain
from app.server.discovery import ROBOTS, Found, addresses_of, find
from hardware.daemon_url import DAEMON_PORT

USUAL_NAME = "reachy-mini.local"
"""Of the robot's own computer, as it is delivered."""

DISCARD = 9
"""Some port: a datagram socket that is connected sends nothing."""

_HOW_TO_FIND = (
    "Is it on, and in this network? Its address stands in the robot's dashboard and in the router; "
    "then: reachy-voice pair 192.168.1.7. A Reachy Mini Lite: reachy-voice pair localhost, on the "
    "machine that it is plugged into"
)


@dataclass(frozen=True, slots=True)
class Typed:
    """``port``: of the conversation app."""

    host: str
    port: int = APP_PORT


def parse_place(text: str) -> Typed:
    """``kitchen``, ``192.168.1.7``, ``reachy-mini.local:7860``, ``[fd00::7]:7860``, ``fd00::7``,
    and the address of the app's page. Raises ``WhichRobot``."""
    words = text.strip()
    try:
        if _is_ip(words):
            return Typed(words)
        parts = urlsplit(words if "://" in words else f"//{words}")
        if "//" not in words and " " in words and not parts.port and words.isprintable():
            return Typed(words)  # robots are called as people like
        if parts.hostname and not parts.username and " " not in words:
            # The daemon's page is the one that people have open; the app is beside it.
            port = None if parts.port == DAEMON_PORT else parts.port
            return Typed(parts.hostname, port or APP_PORT)
    except ValueError:
        pass
    fix = "Type its name or address, as in reachy-voice pair 192.168.1.7 or reachy-mini.local"
    raise WhichRobot(f"{text!r} is no name or address of a robot", fix=fix)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


# --- one that was typed ------------------------------------------------------------------------

Browse = Callable[[], Awaitable[list[Found]]]


async def robot_at(
    typed: Typed, times: Times, daemon_port: int | None, browse: Browse | None = None
) -> Robot:
    """The robot of that name or address. Raises ``WhichRobot``."""
    if addresses := await _addresses(typed.host, times):
        ports = (typed.port, daemon_port or DAEMON_PORT)
        return await _best(typed.host, addresses, ports, times)
    if not _is_ip(typed.host):
        found = _the_one_called(typed.host, await (browse or _browser(times))())
        if found is not None:
            return await _announced(found, (typed.port, daemon_port or found.port), times)
    what = f"No robot is called {typed.host!r} here"
    raise WhichRobot(what, why="no name service and no mDNS knows it", fix=_HOW_TO_FIND)


def _the_one_called(name: str, around: Sequence[Found]) -> Found | None:
    """Raises ``WhichRobot`` if several are: any host in the network may take any name."""
    called = [one for one in around if _is_called(one, name)]
    places = dict.fromkeys(", ".join(one.addresses) for one in called)
    if len(places) > 1:
        what = f"{len(places)} robots are called {name!r}"
        fix = "Name the address of the one that you mean, as in reachy-voice pair 192.168.1.7"
        raise WhichRobot(what, why=f"they are at {plain('; '.join(places))}", fix=fix)
    return called[0] if called else None


async def _announced(found: Found, ports: tuple[int, int], times: Times) -> Robot:
    """At the address it announces; where nothing answers there, at its host's name: what a daemon
    announces is as old as the daemon, and its network may be another one by now. Raises
    ``WhichRobot``."""
    robot = None
    if found.addresses:
        robot = await _best(found.name, found.addresses, ports, times)
        (alive,) = await _alive([robot], times)
        if alive:
            return robot
    if found.host.endswith(".local") and (now := await _addresses(found.host, times)):
        return await _best(found.name, now, ports, times)
    if robot is None:
        raise WhichRobot(f"{plain(found.name)} announces no address", fix=_HOW_TO_FIND)
    return robot


async def _addresses(host: str, times: Times) -> list[str]:
    """Of the name itself, else of ``NAME.local`` by name service, else by mDNS. All are asked at
    once: a name service that is silent costs its time only once."""
    asked = [look_up(host, times.connect_s)]
    local = host if host.endswith(".local") else f"{host}.local"
    if local == host or "." not in host:
        if local != host:
            asked.append(look_up(local, times.connect_s))
        asked.append(addresses_of(local, min(times.browse_s, times.connect_s)))
    async with asyncio.TaskGroup() as asking:
        tasks = [asking.create_task(one) for one in asked]
        for task in tasks:
            if found := await task:
                for other in tasks:
                    other.cancel()
                return found
    return []


def _is_called(found: Found, name: str) -> bool:
    wanted = name.lower().removesuffix(".local")
    names = {found.name, found.host.removesuffix(".local"), found.properties.get("robot_name", "")}
    return wanted in {one.lower() for one in names}


async def _best(name: str, addresses: Sequence[str], ports: tuple[int, int], times: Times) -> Robot:
    """The first address at which anything of a robot answers; else the first that has a way."""
    name = plain(name, 80)  # it is shown, and any host may have chosen it
    robots = []
    for address in addresses:
        ours = await _ours_towards(address)
        if ours is None:
            continue
        # What listens on this machine may listen on loopback only.
        robot = Robot(name, address, ours, *ports)
        if robot.here and not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            robot = Robot(name, "127.0.0.1", "127.0.0.1", *ports)
        robots.append(robot)
    if not robots:
        why = f"this machine has no way to {', '.join(addresses)}"
        raise WhichRobot(f"{name} cannot be reached", why=why, fix=_HOW_TO_FIND)
    if len(robots) > 1:
        for robot, alive in zip(robots, await _alive(robots, times), strict=True):
            if alive:
                return robot
    return robots[0]


async def _ours_towards(address: str) -> str | None:
    """The address of this machine that a robot there would use; ``None``: there is no way.

    A link-local IPv6 address is not enough: only with the name of an interface of the robot's own
    would it mean anything there.
    """
    return await asyncio.to_thread(source_address, address)


def source_address(address: str) -> str | None:
    """From which address of ours a packet to ``address`` would go. Sends none."""
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
    parsed = ipaddress.ip_address(ours.partition("%")[0])
    return None if parsed.version == 6 and parsed.is_link_local else ours


# --- looking around ----------------------------------------------------------------------------


def _browser(times: Times) -> Browse:
    return lambda: find(ROBOTS, times.browse_s)


async def robots_around(
    times: Times,
    daemon_port: int | None = None,
    browse: Browse | None = None,
    usual: Sequence[str] = (USUAL_NAME, "localhost"),
) -> list[Robot]:
    """Robots that answer: by mDNS, by their usual name, and on this machine. Each once."""
    async with asyncio.TaskGroup() as looking:
        browsing = looking.create_task(_collect(browse or _browser(times)))
        usuals = [looking.create_task(look_up(name, times.connect_s)) for name in usual]
    named = zip(usual, (looked.result() for looked in usuals), strict=True)
    everybody = [
        *browsing.result(),
        *(Found(name, name, DAEMON_PORT, tuple(known)) for name, known in named if known),
    ]
    async with asyncio.TaskGroup() as looking:  # each may take its time
        tasks = [looking.create_task(_around(one, times, daemon_port)) for one in everybody]
    robots: dict[str, Robot] = {}
    hosts = set()
    for found, task in zip(everybody, tasks, strict=True):
        # The usual name of one that was found already may lead to another address of it.
        if (robot := task.result()) is not None and not (found.name == found.host in hosts):
            robots.setdefault(robot.address, robot)
            hosts.add(found.host)
    return list(robots.values())


async def _around(found: Found, times: Times, daemon_port: int | None) -> Robot | None:
    """``None``: nothing of a robot answers there."""
    try:
        robot = await _announced(found, (APP_PORT, daemon_port or found.port), times)
    except WhichRobot:
        return None
    (alive,) = await _alive([robot], times)
    return robot if alive else None


async def _collect(browse: Browse) -> list[Found]:
    return await browse()


def the_only(robots: Sequence[Robot]) -> Robot:
    """Raises ``WhichRobot`` unless there is one."""
    if not robots:
        raise WhichRobot("No robot was found", why="none answers to mDNS", fix=_HOW_TO_FIND)
    if len(robots) > 1:
        listed = ", ".join(robot.place for robot in robots)
        fix = f"Name the one that you mean: reachy-voice pair {robots[0].address}"
        raise WhichRobot(f"There are {len(robots)} robots", why=listed, fix=fix)
    return robots[0]


async def _alive(robots: Sequence[Robot], times: Times) -> list[bool]:
    """Whether an app or a daemon listens there."""
    async with asyncio.TaskGroup() as knocking:
        tasks = [
            [
                knocking.create_task(_listens(robot.address, port, times.connect_s))
                for port in (robot.app_port, robot.daemon_port)
            ]
            for robot in robots
        ]
    return [any(task.result() for task in pair) for pair in tasks]


async def _listens(address: str, port: int, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(address, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def look_up(host: str, timeout_s: float) -> list[str]:
    """The addresses of a name, IPv4 first; empty if it is not known in time.

    A thread of its own that is never joined: a name service may take half a minute, and a thread
    of the loop's pool would hold up the end of the program.
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
        try:
            loop.call_soon_threadsafe(give, infos)
        except RuntimeError:  # the loop has ended meanwhile
            return

    threading.Thread(target=ask, name="look-up", daemon=True).start()
    try:
        async with asyncio.timeout(timeout_s):
            infos = await answer
    except TimeoutError:
        return []
    ordered = sorted(infos, key=lambda info: info[0] != socket.AF_INET)
    return list(dict.fromkeys(_scoped(info[4]) for info in ordered))


def _scoped(place: Any) -> str:
    """A link-local IPv6 address with its zone, which it means nothing without."""
    address = str(place[0])
    zone = place[3] if len(place) > 3 else 0
    return f"{address}%{zone}" if zone and "%" not in address else address
