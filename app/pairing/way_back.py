"""Judge from both sides whether the robot's app reached this server and, if not, why."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from app.pairing.robot_programs import AppSays
from app.pairing.steps import PairError, Robot, in_url, plain
from app.server.callers import Knocks

TURNED_AWAY = 1008
"""Close code of a server that is full."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """``before`` and ``now``: connection attempts at the server before the app was configured, and
    now; ``None`` if the server does not say. ``app``: its latest status, if it answers."""

    robot: Robot
    port: int
    app: AppSays | None
    before: Mapping[str, Knocks] | None = None
    now: Mapping[str, Knocks] | None = None
    settled: bool = True
    """The app no longer has the connection that it had before."""

    def since(self, address: str) -> Knocks:
        """The new attempts from one address."""
        before = (self.before or {}).get(address, Knocks())
        now = (self.now or {}).get(address, Knocks())
        # A restarted server counts from zero.
        opened = now.opened - before.opened if now.opened >= before.opened else now.opened
        refused = now.refused - before.refused if now.refused >= before.refused else now.refused
        return replace(now, opened=opened, refused=refused)


def arrived(seen: Evidence) -> bool:
    """Whether the app has opened a connection since, which both sides still have."""
    if seen.app is None or not seen.app.connected:
        return False
    if seen.before is None:  # it never reports; a server that is silent only now has ended
        return seen.settled and seen.app.points_at(seen.robot.ours, seen.port)
    knocks = seen.since(seen.robot.address)
    was_open = seen.before.get(seen.robot.address, Knocks()).open > 0
    return knocks.open > 0 and (not was_open or knocks.opened > 0)


def turned_down(seen: Evidence) -> bool:
    """Whether the server refused the robot for a reason that will not go away."""
    knocks = seen.since(seen.robot.address)
    return knocks.refused > 0 and knocks.open == 0 and knocks.status in (401, 403)


_REFUSALS = {
    401: (
        "the server uses another list of allowed addresses than this command",
        "Give pair the --config and --set with which the server was started",
    ),
    403: (
        "it uses a name that the server does not have, perhaps through a proxy",
        "See the server's console, and access.hosts in docs/security.md",
    ),
    503: (
        "an engine is not ready",
        "Look at the server's console; pair again when it says Ready",
    ),
}


def why_not(seen: Evidence, firewall: str) -> PairError:
    """The likeliest reason, and what to do. ``firewall``: how to open the port here."""
    for judge in (_at_the_door, _came_and_went, _by_another_address, _not_told):
        if (error := judge(seen)) is not None:
            return error
    return _never_came(seen, firewall)


def _at_the_door(seen: Evidence) -> PairError | None:
    """The robot reaches the server, but is refused."""
    knocks = seen.since(seen.robot.address)
    heard = seen.app.error if seen.app else ""
    status = knocks.status if knocks.refused else None
    if status is None and seen.now is None:  # the server does not say; the app may
        status = next((code for code in (401, 403, 503) if f"HTTP {code}" in heard), None)
    if status is None:
        return None
    why, fix = _REFUSALS.get(status, ("", "See the server's console"))
    return PairError(
        f"The robot reaches this server, which refuses it ({status})", why=why, fix=fix
    )


def _by_another_address(seen: Evidence) -> PairError | None:
    for address in seen.now or {}:
        knocks = seen.since(address)
        if address == seen.robot.address or not knocks.refused or knocks.status != 401:
            continue
        return PairError(
            f"A client connected from {address} and was refused",
            why=f"no client came from {seen.robot.address}; with Wi-Fi and cable a robot has two "
            "addresses",
            fix=f"If that is the robot: reachy-voice pair {address}",
        )
    return None


def _came_and_went(seen: Evidence) -> PairError | None:
    knocks = seen.since(seen.robot.address)
    if not knocks.opened:
        return None
    if knocks.closed == TURNED_AWAY:
        return PairError(
            "The robot reached this server, which is full",
            why="the limit of conversations is reached (server.max_sessions)",
            fix="End another conversation, or raise server.max_sessions",
        )
    said = f"the app says: {seen.app.error}" if seen.app and seen.app.error else ""
    if knocks.open:
        said = said or "its app does not report a connection"
    return PairError(
        "The robot reached this server, but the conversation did not start",
        why=said or f"the connection was closed ({knocks.closed or 'by the robot'})",
        fix="See the server's console and the app's log, then pair again",
    )


def _not_told(seen: Evidence) -> PairError | None:
    """The app is gone, waits for a restart, or uses another server."""
    if seen.app is None:
        return PairError(
            "The robot's app stopped answering after it was configured",
            why="it has crashed, or the robot has lost its network",
            fix="Look at the robot's dashboard, start the app, and pair again",
        )
    if seen.app.waits_for_restart:
        return PairError(
            "The robot's app accepted the address, but must be restarted to use it",
            fix="Restart the conversation app in the robot's dashboard",
        )
    if not seen.app.points_at(seen.robot.ours, seen.port):
        other = plain(f"{seen.app.mode or 'unknown'} {seen.app.host}")
        return PairError(
            "The robot's app did not keep the address of this server",
            why=f"its connection is now: {other}",
            fix=f"In the app: Settings -> Connection -> Local, host {seen.robot.ours}, "
            f"port {seen.port}",
        )
    return None


# Words in the app's error, why the robot cannot connect, and what to do: Python's own messages and,
# because asyncio says "Connect call failed" instead, the errno of Linux and macOS.
_ONE_NETWORK = "Are the robot and this machine in the same network, without VPN or guest Wi-Fi?"
_SAME_NETWORK = (
    "Put both into the same network, not a guest Wi-Fi; on the robot, try: ping {robot.ours}"
)
_CAUSES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("http ",), "another machine answers there for the robot", _ONE_NETWORK),
    (
        ("ssl", "tls", "certificate"),
        "something in between requires TLS, which the app does not speak",
        "Pair without a proxy between them",
    ),
    (
        ("refused", "errno 111]", "errno 61]"),
        "its connection is refused, by a firewall or by another machine",
        "{firewall}",
    ),
    (  # also the answer of a firewall that rejects, such as firewalld
        ("no route", "errno 113]", "errno 65]"),
        "a firewall rejects it, or its network has no route to here",
        f"{{firewall}}. Else: {_SAME_NETWORK}",
    ),
    (
        ("unreachable", "errno 101]", "errno 51]", "name or service", "nodename", "getaddrinfo"),
        "its network has no route to that address",
        _SAME_NETWORK,
    ),
    (
        ("timed out", "timeout", "cancellederror", "errno 110]", "errno 60]"),
        "nothing arrived here, so a firewall drops it",
        "{firewall}",
    ),
)


def _never_came(seen: Evidence, firewall: str) -> PairError:
    assert seen.app is not None
    ours = f"{in_url(seen.robot.ours)}:{seen.port}"
    if seen.app.connected:
        return PairError(
            "The robot's app is connected, but not to this server",
            why=f"another machine answers at {ours} for the robot",
            fix=_ONE_NETWORK,
        )
    what = f"The robot cannot reach this machine at {ours}"
    error = seen.app.error
    if not error:
        return PairError(what, why="nothing arrived here, so a firewall drops it", fix=firewall)
    for words, why, fix in _CAUSES:
        if any(word in error.lower() for word in words):
            why = f"{why}; the app says: {error}"
            return PairError(what, why=why, fix=fix.format(firewall=firewall, robot=seen.robot))
    return PairError(
        "The robot's app could not connect", why=f"it says: {error}", fix=f"If in doubt: {firewall}"
    )


def firewall_advice(
    robot: Robot,
    port: int,
    system: str = sys.platform,
    release: str = platform.release(),
    found: Callable[[str], str | None] = shutil.which,
) -> str:
    """How to open ``port`` on this machine to the robot."""
    if system == "darwin":
        return (
            "Open it: System Settings -> Network -> Firewall -> Options, then allow incoming "
            "connections for Python"
        )
    if "microsoft" in release.lower():
        return (
            "Open it, in Windows' PowerShell as administrator: New-NetFirewallRule -DisplayName "
            f"reachy-voice -Direction Inbound -Protocol TCP -LocalPort {port} -Action Allow; and "
            "WSL needs networkingMode=mirrored in .wslconfig"
        )
    commands = {
        "ufw": f"sudo ufw allow from {robot.address} to any port {port} proto tcp",
        "firewall-cmd": f"sudo firewall-cmd --add-port={port}/tcp (and again with --permanent)",
    }
    known = [command for program, command in commands.items() if found(program)]
    if not known:
        return f"Open TCP port {port} in this machine's firewall, or: {commands['ufw']}"
    return f"Open it: {'; or '.join(known)}"
