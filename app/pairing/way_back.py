"""Judges from both sides whether the robot's app reached this server and, if not, why."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from app.pairing.conversation_app import AppSays
from app.pairing.steps import PairError, RobotAddress, in_url, plain
from app.server.callers import Knocks

TURNED_AWAY = 1008
"""Close code of a server that is full."""


@dataclass(frozen=True, slots=True)
class ConnectionEvidence:
    """``before`` and ``now``: connection attempts at the server before the app was configured, and
    now; ``None`` if the server does not say. ``app``: its latest status, if it answers."""

    robot: RobotAddress
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


def arrived(evidence: ConnectionEvidence) -> bool:
    """Whether the app has opened a connection since, which both sides still have."""
    if evidence.app is None or not evidence.app.connected:
        return False
    if evidence.before is None:  # it never reports; a server that is silent only now has ended
        return evidence.settled and evidence.app.points_at(evidence.robot.ours, evidence.port)
    knocks = evidence.since(evidence.robot.address)
    was_open = evidence.before.get(evidence.robot.address, Knocks()).open > 0
    return knocks.open > 0 and (not was_open or knocks.opened > 0)


def turned_down(evidence: ConnectionEvidence) -> bool:
    """Whether the server refused the robot for a reason that will not go away."""
    knocks = evidence.since(evidence.robot.address)
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


def why_not(evidence: ConnectionEvidence, firewall: str) -> PairError:
    """The likeliest reason, and what to do. ``firewall``: how to open the port here."""
    knocks = evidence.since(evidence.robot.address)
    status = knocks.status if knocks.refused else None
    if status is None and evidence.now is None and evidence.app:  # the app may know
        status = next((code for code in _REFUSALS if f"HTTP {code}" in evidence.app.error), None)
    if status is not None:
        why, fix = _REFUSALS.get(status, ("", "See the server's console"))
        what = f"The robot reaches this server, which refuses it ({status})"
        return PairError(what, why=why, fix=fix)
    if knocks.opened:
        return _came_and_went(evidence, knocks)
    if evidence.app is None:
        return PairError(
            "The robot's app stopped answering after it was configured",
            why="it has crashed, or the robot has lost its network",
            fix="Look at the robot's dashboard, start the app, and pair again",
        )
    if evidence.app.waits_for_restart:
        return PairError(
            "The robot's app was not restarted, and cannot use the new address before",
            fix="Pair again, and restart the conversation app in the robot's dashboard meanwhile",
        )
    if not evidence.app.points_at(evidence.robot.ours, evidence.port):
        other = plain(f"{evidence.app.mode or 'unknown'} {evidence.app.host}")
        return PairError(
            "The robot's app did not keep the address of this server",
            why=f"its connection is now: {other}",
            fix=f"In the app: Settings -> Connection -> Local, host {evidence.robot.ours}, "
            f"port {evidence.port}",
        )
    return _never_came(evidence, evidence.app, firewall)


def _came_and_went(evidence: ConnectionEvidence, knocks: Knocks) -> PairError:
    if knocks.closed == TURNED_AWAY:
        return PairError(
            "The robot reached this server, which is full",
            why="the limit of conversations is reached (server.max_sessions)",
            fix="End another conversation, or raise server.max_sessions",
        )
    words = f"the app says: {evidence.app.error}" if evidence.app and evidence.app.error else ""
    return PairError(
        "The robot reached this server, but the conversation did not start",
        why=words or f"the connection was closed ({knocks.closed or 'by the robot'})",
        fix="See the server's console and the app's log, then pair again",
    )


def _never_came(evidence: ConnectionEvidence, app: AppSays, firewall: str) -> PairError:
    ours = f"{in_url(evidence.robot.ours)}:{evidence.port}"
    network = "Are the robot and this machine in the same network, without VPN or guest Wi-Fi?"
    if app.connected:
        return PairError(
            "The robot's app is connected, but not to this server",
            why=f"another machine answers at {ours} for the robot",
            fix=network,
        )
    for address in evidence.now or {}:
        knocks = evidence.since(address)
        if knocks.refused and knocks.status == 401:
            return PairError(
                f"A client connected from {address} and was refused",
                why=f"no client came from {evidence.robot.address}; with Wi-Fi and cable a robot "
                "has two addresses",
                fix=f"If that is the robot: reachy-voice pair {address}",
            )
    return PairError(
        f"The robot cannot reach this machine at {ours}",
        why=f"the app says: {app.error}" if app.error else "nothing arrived here",
        fix=f"{firewall}. Else: {network}",
    )


def firewall_advice(
    robot: RobotAddress, port: int, which: Callable[[str], str | None] = shutil.which
) -> str:
    """How to open ``port`` on this machine to the robot."""
    commands = {
        "ufw": f"sudo ufw allow from {robot.address} to any port {port} proto tcp",
        "firewall-cmd": f"sudo firewall-cmd --add-port={port}/tcp (and again with --permanent)",
    }
    advice = [command for program, command in commands.items() if which(program)]
    if not advice:
        return f"Open TCP port {port} in this machine's firewall"
    return f"Open the port: {'; or '.join(advice)}"
