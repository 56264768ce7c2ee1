"""Why a robot does not arrive: every judgement, from what both sides saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from app.pairing.conversation_app import AppSays
from app.pairing.steps import Robot
from app.pairing.way_back import Evidence, arrived, firewall_advice, turned_down, why_not
from app.server.callers import Knocks

ROBOT = Robot("kitchen", "192.168.1.7", "192.168.1.5")
TOLD = AppSays(False, "connecting", "", "local", "192.168.1.5", 8765)
FIREWALL = "Open the port"
CANNOT = "The robot cannot reach this machine at 192.168.1.5:8765"


def seen(
    app: AppSays | None = TOLD,
    now: Mapping[str, Knocks] | None = None,
    before: Mapping[str, Knocks] | None = None,
) -> Evidence:
    return Evidence(ROBOT, 8765, app, before or {}, now or {})


def said(evidence: Evidence) -> tuple[str, str, str]:
    error = why_not(evidence, FIREWALL)
    assert error.exit_code == 23
    return error.what, error.why, error.fix


def from_robot(**counts: int | None) -> dict[str, Knocks]:
    return {ROBOT.address: Knocks(**counts)}  # type: ignore[arg-type]


def test_arrived_is_what_both_sides_say() -> None:
    connected = replace(TOLD, connected=True)
    come = from_robot(open=1, opened=1)
    assert arrived(seen(connected, come))
    assert not arrived(seen(TOLD, come))
    assert not arrived(seen(None, come))
    assert not arrived(seen(connected))
    assert not arrived(seen(connected, from_robot(open=0, opened=1)))
    assert not arrived(seen(connected, {"192.168.1.8": Knocks(1, 1)}))


def test_a_connection_from_before_is_none() -> None:
    """The app's old connection is still open for a moment after it was told of another server."""
    connected = replace(TOLD, connected=True)
    old = from_robot(open=1, opened=3)
    assert not arrived(seen(connected, old, before=old))
    assert arrived(seen(connected, from_robot(open=2, opened=4), before=old))


def test_a_server_that_began_anew_counts_from_zero() -> None:
    connected = replace(TOLD, connected=True)
    assert arrived(seen(connected, from_robot(open=1, opened=1), before=from_robot(opened=9)))


def test_a_server_that_began_anew_may_have_counted_as_far() -> None:
    connected = replace(TOLD, connected=True)
    before = from_robot(opened=1)
    assert arrived(seen(connected, from_robot(open=1, opened=1), before=before))


def test_a_server_that_says_no_more_has_ended() -> None:
    """The app has not noticed it yet."""
    connected = replace(TOLD, connected=True)
    assert not arrived(Evidence(ROBOT, 8765, connected, before={}, now=None))


def test_without_the_server_s_word_the_app_s_counts() -> None:
    connected = replace(TOLD, connected=True)
    assert arrived(Evidence(ROBOT, 8765, connected))
    assert not arrived(Evidence(ROBOT, 8765, connected, settled=False))
    assert not arrived(Evidence(ROBOT, 8765, replace(connected, host="192.168.1.9")))
    assert not arrived(Evidence(ROBOT, 8765, replace(connected, mode="deployed")))


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


def test_a_refusal_from_before_is_no_reason() -> None:
    old = from_robot(refused=2, status=401)
    what, _, _ = said(seen(now=old, before=old))
    assert what == CANNOT


def test_the_app_s_own_words_of_a_refusal() -> None:
    app = replace(TOLD, error="InvalidStatus: server rejected WebSocket connection: HTTP 403")
    what, _, _ = said(Evidence(ROBOT, 8765, app))
    assert what == "The robot reaches this server, which refuses it (403)"


def test_another_address_of_the_robot() -> None:
    now = {"192.168.1.8": Knocks(refused=1, status=401)}
    assert said(seen(now=now)) == (
        "A client connected from 192.168.1.8 and was refused",
        "no client came from 192.168.1.7; with Wi-Fi and cable a robot has two addresses",
        "If that is the robot: reachy-voice pair 192.168.1.8",
    )


def test_a_stranger_does_not_hide_what_the_robot_met() -> None:
    """Another robot that knocks all the time."""
    now = {"192.168.1.8": Knocks(refused=1, status=401), **from_robot(opened=1, closed=1008)}
    what, _, _ = said(seen(now=now))
    assert what == "The robot reached this server, which is full"


def test_all_places_are_taken() -> None:
    what, why, _ = said(seen(now=from_robot(opened=1, closed=1008)))
    assert what == "The robot reached this server, which is full"
    assert "server.max_sessions" in why


@pytest.mark.parametrize(
    ("app", "knocks", "why"),
    [
        (TOLD, {"opened": 1, "closed": 1011}, "the connection was closed (1011)"),
        (TOLD, {"opened": 1}, "the connection was closed (by the robot)"),
        (replace(TOLD, error="KeyError: x"), {"opened": 1}, "the app says: KeyError: x"),
    ],
)
def test_it_came_and_went(app: AppSays, knocks: dict[str, int], why: str) -> None:
    what, because, _ = said(seen(app, from_robot(**knocks)))
    assert what == "The robot reached this server, but the conversation did not start"
    assert because == why


def test_the_app_is_gone() -> None:
    what, _, _ = said(seen(None))
    assert what == "The robot's app stopped answering after it was configured"


@pytest.mark.parametrize(
    "app", [replace(TOLD, state="restart_required"), replace(TOLD, needs_restart=True)]
)
def test_the_app_waits_for_a_restart(app: AppSays) -> None:
    what, _, fix = said(seen(app))
    assert what == "The robot's app was not restarted, and cannot use the new address before"
    assert fix.endswith("restart the conversation app in the robot's dashboard meanwhile")


def test_the_app_goes_elsewhere() -> None:
    what, why, fix = said(seen(replace(TOLD, host="10.0.0.1")))
    assert what == "The robot's app did not keep the address of this server"
    assert why == "its connection is now: local 10.0.0.1"
    assert fix == "In the app: Settings -> Connection -> Local, host 192.168.1.5, port 8765"


def test_the_apps_text_is_escaped_for_the_terminal() -> None:
    _, why, _ = said(seen(replace(TOLD, mode="\x9b31m", host="\x1b]0;x\x07\ud800")))
    assert why.isprintable()
    assert why.isascii()


def test_connected_to_another_server_at_our_address() -> None:
    what, why, _ = said(seen(replace(TOLD, connected=True)))
    assert what == "The robot's app is connected, but not to this server"
    assert why == "another machine answers at 192.168.1.5:8765 for the robot"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("", "nothing arrived here"),
        ("OSError: [Errno 113] No route", "the app says: OSError: [Errno 113] No route"),
    ],
)
def test_nothing_came(error: str, why: str) -> None:
    what, because, fix = said(seen(replace(TOLD, error=error)))
    assert (what, because) == (CANNOT, why)
    assert fix.startswith(f"{FIREWALL}. Else: Are the robot and this machine in the same network")


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
