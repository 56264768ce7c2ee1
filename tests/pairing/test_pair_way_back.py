"""Why a robot does not arrive: every judgement, from what both sides saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from app.pairing.conversation_app import AppSays
from app.pairing.steps import RobotAddress
from app.pairing.way_back import ConnectionEvidence, arrived, firewall_advice, turned_down, why_not
from app.server.callers import Knocks

pytestmark = pytest.mark.machine

ROBOT = RobotAddress("kitchen", "192.168.1.7", "192.168.1.5")
TOLD = AppSays(False, "connecting", "", "local", "192.168.1.5", 8765)
FIREWALL = "Open the port"
CANNOT = "The robot cannot reach this machine at 192.168.1.5:8765"


def seen(
    app: AppSays | None = TOLD,
    now: Mapping[str, Knocks] | None = None,
    before: Mapping[str, Knocks] | None = None,
) -> ConnectionEvidence:
    return ConnectionEvidence(ROBOT, 8765, app, before or {}, now or {})


def said(evidence: ConnectionEvidence) -> tuple[str, str, str]:
    error = why_not(evidence, FIREWALL)
    assert error.exit_code == 23
    return error.what, error.why, error.fix


def from_robot(**counts: int | None) -> dict[str, Knocks]:
    return {ROBOT.address: Knocks(**counts)}  # type: ignore[arg-type]


CONNECTED = replace(TOLD, connected=True)
COME = from_robot(open=1, opened=1)
THREE = from_robot(open=1, opened=3)


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        # What both sides say counts.
        (seen(CONNECTED, COME), True),
        (seen(TOLD, COME), False),
        (seen(None, COME), False),
        (seen(CONNECTED), False),
        (seen(CONNECTED, from_robot(open=0, opened=1)), False),
        (seen(CONNECTED, {"192.168.1.8": Knocks(1, 1)}), False),
        # The app's old connection stays open for a moment after it was told of another server.
        (seen(CONNECTED, THREE, before=THREE), False),
        (seen(CONNECTED, from_robot(open=2, opened=4), before=THREE), True),
        # A server that began anew counts from zero, and may have counted as far.
        (seen(CONNECTED, COME, before=from_robot(opened=9)), True),
        (seen(CONNECTED, COME, before=from_robot(opened=1)), True),
        # A server that ended; the app has not noticed it yet.
        (ConnectionEvidence(ROBOT, 8765, CONNECTED, before={}, now=None), False),
        # A server that does not say who came: the app's word counts.
        (ConnectionEvidence(ROBOT, 8765, CONNECTED), True),
        (ConnectionEvidence(ROBOT, 8765, CONNECTED, settled=False), False),
        (ConnectionEvidence(ROBOT, 8765, replace(CONNECTED, host="192.168.1.9")), False),
        (ConnectionEvidence(ROBOT, 8765, replace(CONNECTED, mode="deployed")), False),
    ],
)
def test_whether_it_arrived(evidence: ConnectionEvidence, expected: bool) -> None:
    assert arrived(evidence) == expected


@pytest.mark.parametrize(
    ("status", "what", "why"),
    [
        (401, "which refuses it (401)", "another list of allowed addresses"),
        (403, "which refuses it (403)", "a name that the server does not have"),
        (503, "which refuses it (503)", "an engine is not ready"),
        (404, "which refuses it (404)", ""),
    ],
)
def test_refused_at_the_door(status: int, what: str, why: str) -> None:
    evidence = seen(now=from_robot(refused=1, status=status))
    said_what, said_why, fix = said(evidence)
    assert said_what == f"The robot reaches this server, {what}"
    assert why in said_why
    assert fix
    assert turned_down(evidence) == (status in (401, 403))


OLD_REFUSAL = from_robot(refused=2, status=401)
STRANGER = {"192.168.1.8": Knocks(refused=1, status=401)}
FULL = "The robot reached this server, which is full"
ENDED = "The robot reached this server, but the conversation did not start"
RESTART = "The robot's app was not restarted, and cannot use the new address before"
IN_DASHBOARD = "restart the conversation app in the robot's dashboard meanwhile"
NO_ROUTE = "OSError: [Errno 113] No route"
FORBIDDEN = "InvalidStatus: server rejected WebSocket connection: HTTP 403"


@pytest.mark.parametrize(
    ("evidence", "what", "why", "fix"),
    [
        (seen(now=OLD_REFUSAL, before=OLD_REFUSAL), CANNOT, "", FIREWALL),
        (
            ConnectionEvidence(ROBOT, 8765, replace(TOLD, error=FORBIDDEN)),
            "The robot reaches this server, which refuses it (403)",
            "",
            "",
        ),
        (
            seen(now=STRANGER),
            "A client connected from 192.168.1.8 and was refused",
            "no client came from 192.168.1.7; with Wi-Fi and cable a robot has two addresses",
            "If that is the robot: reachy-voice pair 192.168.1.8",
        ),
        # Another robot that knocks all the time does not hide what this one met.
        (seen(now={**STRANGER, **from_robot(opened=1, closed=1008)}), FULL, "max_sessions", ""),
        (
            seen(now=from_robot(opened=1, closed=1011)),
            ENDED,
            "the connection was closed (1011)",
            "",
        ),
        (seen(now=from_robot(opened=1)), ENDED, "the connection was closed (by the robot)", ""),
        (
            seen(replace(TOLD, error="KeyError: x"), from_robot(opened=1)),
            ENDED,
            "the app says: KeyError: x",
            "",
        ),
        (seen(None), "The robot's app stopped answering after it was configured", "", ""),
        (seen(replace(TOLD, state="restart_required")), RESTART, "", IN_DASHBOARD),
        (seen(replace(TOLD, needs_restart=True)), RESTART, "", IN_DASHBOARD),
        (
            seen(replace(TOLD, host="10.0.0.1")),
            "The robot's app did not keep the address of this server",
            "its connection is now: local 10.0.0.1",
            "In the app: Settings -> Connection -> Local, host 192.168.1.5, port 8765",
        ),
        (
            seen(CONNECTED),
            "The robot's app is connected, but not to this server",
            "another machine answers at 192.168.1.5:8765 for the robot",
            "",
        ),
        (
            seen(TOLD),
            CANNOT,
            "nothing arrived here",
            f"{FIREWALL}. Else: Are the robot and this machine in the same network",
        ),
        (seen(replace(TOLD, error=NO_ROUTE)), CANNOT, f"the app says: {NO_ROUTE}", FIREWALL),
    ],
)
def test_why_it_did_not_arrive(evidence: ConnectionEvidence, what: str, why: str, fix: str) -> None:
    said_what, said_why, said_fix = said(evidence)
    assert said_what == what
    assert why in said_why
    assert fix in said_fix


def test_the_apps_text_is_escaped_for_the_terminal() -> None:
    _, why, _ = said(seen(replace(TOLD, mode="\x9b31m", host="\x1b]0;x\x07\ud800")))
    assert why.isprintable()
    assert why.isascii()


# --- the firewall ------------------------------------------------------------------------------

UFW = "sudo ufw allow from 192.168.1.7 to any port 8765 proto tcp"
FIREWALLD = "sudo firewall-cmd --add-port=8765/tcp (and again with --permanent)"


@pytest.mark.parametrize(
    ("programs", "advice"),
    [
        (("ufw",), f"Open the port: {UFW}"),
        (("ufw", "firewall-cmd"), f"Open the port: {UFW}; or {FIREWALLD}"),
        ((), "Open TCP port 8765 in this machine's firewall"),
    ],
)
def test_how_to_open_the_port(programs: tuple[str, ...], advice: str) -> None:
    found = lambda name: name if name in programs else None  # noqa: E731
    assert firewall_advice(ROBOT, 8765, found) == advice
