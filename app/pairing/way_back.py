"""Judges from both sides whether the robot's app reached this server and, if not, why."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from app.access.policy import in_url
from app.pairing.conversation_app import AppSays
from app.pairing.steps import PairError, RobotAddress, plain
from app.server.callers import Knocks

REFUSALS = {
    401: (
        "the server uses another list of allowed addresses than this command",
        "Give pair the --config and --set with which the server was started",
    ),
    403: (
        "it uses a name that the server does not have, perhaps through a proxy",
        "See the server's console, and access.hosts in docs/security.md",
    ),
    503: (
        "an engine is not ready, or the server is full (server.max_sessions)",
        "Look at the server's console; pair again when it says Ready, or a conversation has ended",
    ),
}


@dataclass(frozen=True, slots=True)
class ConnectionEvidence:
    """What followed the app's new setting."""

    robot: RobotAddress
    port: int
    app: AppSays | None
    """Its latest status, if it answers."""
    before: Knocks
    """The robot's connection attempts before the setting."""
    now: Knocks
    """The attempts by now."""

    @property
    def opened(self) -> bool:
        return self.now.opened > self.before.opened

    @property
    def arrived(self) -> bool:
        """Whether the app has since opened a connection that is still open on both sides."""
        connected = self.app is not None and self.app.connected
        return connected and self.opened and self.now.open > 0

    @property
    def refusal(self) -> int | None:
        """The HTTP status with which the server refuses the robot."""
        return self.now.status if self.now.refused > self.before.refused else None


def why_not(evidence: ConnectionEvidence, firewall: str) -> PairError:
    """The likeliest reason, and what to do. ``firewall``: how to open the port here."""
    app = evidence.app
    if evidence.refusal is not None:
        why, fix = REFUSALS.get(evidence.refusal, ("", "See the server's console"))
        what = f"The robot reaches this server, which refuses it ({evidence.refusal})"
        return PairError(what, why=why, fix=fix)
    if app is None:
        why = "the app stopped answering after it was configured"
    elif app.error:
        why = f"the app says: {app.error}"
    elif not app.points_at(evidence.robot.ours, evidence.port):
        why = "the app's connection is now: " + plain(f"{app.mode or 'unknown'} {app.host}")
    else:
        why = ""
    if evidence.opened:
        return PairError(
            "The robot reached this server, but the conversation did not start",
            why=why,
            fix="See the server's console and the app's log, then pair again",
        )
    if app is not None and app.waits_for_restart:
        return PairError(
            "The robot's app was not restarted, and cannot use the new address before",
            fix="Pair again, and restart the conversation app in the robot's dashboard meanwhile",
        )
    ours = f"{in_url(evidence.robot.ours)}:{evidence.port}"
    return PairError(
        f"The robot's app did not connect to this machine at {ours}",
        why=why or "nothing arrived here from " + evidence.robot.address,
        fix=f"{firewall}. Else: Are the robot and this machine in the same network, without VPN or "
        "guest Wi-Fi? With Wi-Fi and cable a robot has two addresses: pair with the other one",
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
