"""Why a robot does not connect: every verdict, from what both sides saw."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.pairing.conversation_app import AppSays, read_status
from app.pairing.steps import RobotAddress
from app.pairing.way_back import ConnectionEvidence, firewall_advice, why_not
from app.server.callers import Knocks

pytestmark = pytest.mark.machine

ROBOT = RobotAddress("kitchen", "192.168.1.7", "192.168.1.5")
TOLD = AppSays(False, "", "local", "192.168.1.5", 8765)
CONNECTED = replace(TOLD, connected=True)
FIREWALL = "Open the port"
NOBODY, COME = Knocks(), Knocks(open=1, opened=1)
THREE = Knocks(open=1, opened=3)


def seen(
    app: AppSays | None = TOLD, now: Knocks = NOBODY, before: Knocks = NOBODY
) -> ConnectionEvidence:
    return ConnectionEvidence(ROBOT, 8765, app, before, now)


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        # Both sides' reports count.
        (seen(CONNECTED, COME), True),
        (seen(TOLD, COME), False),
        (seen(None, COME), False),
        (seen(CONNECTED), False),
        (seen(CONNECTED, Knocks(open=0, opened=1)), False),
        # The app's old connection stays open for a moment after it gets another server.
        (seen(CONNECTED, THREE, before=THREE), False),
        (seen(CONNECTED, Knocks(open=2, opened=4), before=THREE), True),
    ],
)
def test_arrival_is_judged_from_both_sides(evidence: ConnectionEvidence, expected: bool) -> None:
    assert evidence.arrived == expected


CANNOT = "The robot's app did not connect to this machine at 192.168.1.5:8765"
ENDED = "The robot reached this server, but the conversation did not start"
RESTART = "The robot's app was not restarted, and cannot use the new address before"
IN_DASHBOARD = "restart the conversation app in the robot's dashboard meanwhile"
NO_ROUTE = "OSError: [Errno 113] No route"
REFUSES = "The robot reaches this server, which refuses it"


def refused(status: int) -> ConnectionEvidence:
    return seen(now=Knocks(refused=1, status=status))


@pytest.mark.parametrize(
    ("evidence", "what", "why", "fix"),
    [
        (refused(401), f"{REFUSES} (401)", "another list of allowed addresses", "--config"),
        (refused(403), f"{REFUSES} (403)", "a name that the server does not have", "hosts"),
        (refused(503), f"{REFUSES} (503)", "an engine is not ready", "Ready"),
        (refused(404), f"{REFUSES} (404)", "", "console"),
        # An earlier refusal does not count.
        (seen(now=Knocks(refused=2), before=Knocks(refused=2)), CANNOT, "nothing arrived", ""),
        (seen(now=Knocks(opened=1)), ENDED, "", "console"),
        (seen(replace(TOLD, error="KeyError: x"), COME), ENDED, "the app says: KeyError: x", ""),
        (seen(replace(TOLD, waits_for_restart=True)), RESTART, "", IN_DASHBOARD),
        (seen(None), CANNOT, "the app stopped answering", FIREWALL),
        (seen(replace(TOLD, host="10.0.0.1")), CANNOT, "connection is now: local 10.0.0.1", ""),
        (seen(TOLD), CANNOT, "nothing arrived here from 192.168.1.7", f"{FIREWALL}. Else: Are"),
        (seen(replace(TOLD, error=NO_ROUTE)), CANNOT, f"the app says: {NO_ROUTE}", FIREWALL),
    ],
)
def test_why_it_did_not_arrive(evidence: ConnectionEvidence, what: str, why: str, fix: str) -> None:
    error = why_not(evidence, FIREWALL)
    assert error.exit_code == 23
    assert error.what == what
    assert why in error.why
    assert fix in error.fix


@pytest.mark.parametrize(
    "says", [{"backend_connection_state": "restart_required"}, {"requires_restart": True}]
)
def test_the_app_says_in_two_ways_that_it_waits_for_a_restart(says: dict[str, object]) -> None:
    said = {"backend_connected": False, "backend_error": None, "hf_direct_port": "?", **says}
    assert read_status(said) == AppSays(False, waits_for_restart=True)


def test_the_apps_text_is_escaped_for_the_terminal() -> None:
    why = why_not(seen(replace(TOLD, mode="\x9b31m", host="\x1b]0;x\x07\ud800")), "").why
    assert why.isprintable()
    assert why.isascii()


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
