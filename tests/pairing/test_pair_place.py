"""Where the robot is: what people type, names, several, none."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from app.pairing import place
from app.pairing.place import (
    Typed,
    look_up,
    parse_place,
    robot_at,
    robots_around,
    source_address,
    the_only,
)
from app.pairing.steps import Robot, WhichRobot
from app.server.discovery import Found
from tests.support.fake_robot import ADDRESS, fake_robot, free_port
from tests.support.pair_scene import PATIENT

HOW = "Is it on, and in this network?"


def browse(*found: Found) -> Callable[[], Awaitable[list[Found]]]:
    async def answer() -> list[Found]:
        return list(found)

    return answer


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("192.168.1.7", "192.168.1.7", 7860),
        ("192.168.1.7:7861", "192.168.1.7", 7861),
        ("fd00::7", "fd00::7", 7860),
        ("[fd00::7]:7861", "fd00::7", 7861),
        ("[fd00::7]", "fd00::7", 7860),
        ("reachy-mini.local", "reachy-mini.local", 7860),
        (" Kitchen ", "kitchen", 7860),
        ("http://192.168.1.7:7860/", "192.168.1.7", 7860),
        ("http://192.168.1.7:8000/#apps", "192.168.1.7", 7860),
        ("Living Room (2)", "Living Room (2)", 7860),
    ],
)
def test_what_people_type(text: str, host: str, port: int) -> None:
    assert parse_place(text) == Typed(host, port)


@pytest.mark.parametrize(
    "text",
    ["", "a b:80", "a\nb c", "http://a b/", "host:nine", "[fd00::7", "me@host", "host:99999"],
)
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(WhichRobot) as error:
        parse_place(text)
    assert error.value.exit_code == 2
    assert error.value.what == f"{text!r} is no name or address of a robot"
    assert "reachy-voice pair 192.168.1.7" in error.value.fix


async def test_an_unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "look_up", _unknown)
    monkeypatch.setattr(place, "addresses_of", _unknown)
    with pytest.raises(WhichRobot) as error:
        await robot_at(Typed("kitchen"), PATIENT, None, browse())
    assert error.value.what == "No robot is called 'kitchen' here"
    assert error.value.why == "no name service and no mDNS knows it"
    assert error.value.fix.startswith(HOW)


async def test_a_name_that_the_robot_gives_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "look_up", _unknown)
    monkeypatch.setattr(place, "addresses_of", _unknown)
    other = Found("reachy_mini", "reachy-mini.local", 8000, ("127.0.0.9",))
    kitchen = Found("Kitchen", "reachy-mini-2.local", 8001, (ADDRESS,), {"robot_name": "Kitchen"})
    robot = await robot_at(Typed("kitchen"), PATIENT, None, browse(other, kitchen))
    assert robot == Robot("Kitchen", ADDRESS, "127.0.0.1", 7860, 8001)
    assert robot.place == f"Kitchen ({ADDRESS})"


async def test_a_silent_name_service_and_mdns_are_asked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asyncio.Event()

    async def silent(host: str, timeout_s: float) -> list[str]:
        await asked.wait()
        return []

    async def mdns(host: str, timeout_s: float) -> list[str]:
        asked.set()
        return [ADDRESS]

    monkeypatch.setattr(place, "look_up", silent)
    monkeypatch.setattr(place, "addresses_of", mdns)
    for name in ("kitchen", "kitchen.local"):
        asked.clear()
        async with asyncio.timeout(20):
            assert (await robot_at(Typed(name), PATIENT, None, browse())).address == ADDRESS


async def test_who_knows_the_name_does_not_wait_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def known(host: str, timeout_s: float) -> list[str]:
        return [ADDRESS]

    async def for_ever(host: str, timeout_s: float) -> list[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(place, "look_up", known)
    monkeypatch.setattr(place, "addresses_of", for_ever)
    async with asyncio.timeout(20):
        assert (await robot_at(Typed("kitchen"), PATIENT, None, browse())).address == ADDRESS


async def test_a_name_that_two_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them may be a machine that only says so."""
    monkeypatch.setattr(place, "look_up", _unknown)
    monkeypatch.setattr(place, "addresses_of", _unknown)
    real = Found("kitchen", "reachy-mini.local", 8000, (ADDRESS,))
    liar = Found("a robot", "x.local", 8000, ("127.0.0.9",), {"robot_name": "kitchen"})
    again = Found("kitchen-2", "x.local", 8000, ("127.0.0.9",), {"robot_name": "kitchen"})
    with pytest.raises(WhichRobot) as error:
        await robot_at(Typed("kitchen"), PATIENT, None, browse(liar, again, real))
    assert error.value.what == "2 robots are called 'kitchen'"
    assert error.value.why == f"they are at 127.0.0.9; {ADDRESS}"


async def test_a_robot_that_announces_only_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had no network when its daemon began."""

    async def known(host: str, timeout_s: float) -> list[str]:
        return [ADDRESS] if host == "reachy-mini.local" else []

    monkeypatch.setattr(place, "look_up", known)
    monkeypatch.setattr(place, "addresses_of", _unknown)
    only = Found("Kitchen", "reachy-mini.local", 8000)
    assert (await robot_at(Typed("kitchen"), PATIENT, None, browse(only))).address == ADDRESS
    async with fake_robot(app=False) as there:
        only = replace(only, port=there.daemon_port)
        (robot,) = await robots_around(PATIENT, None, browse(only), ())
    assert (robot.name, robot.address) == ("Kitchen", ADDRESS)


async def test_a_robot_whose_address_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its daemon goes on announcing the one that it had when it began."""

    async def known(host: str, timeout_s: float) -> list[str]:
        return [ADDRESS] if host == "reachy-mini.local" else []

    monkeypatch.setattr(place, "look_up", known)
    monkeypatch.setattr(place, "addresses_of", _unknown)
    async with fake_robot(app=False) as there:
        old = Found("Kitchen", "reachy-mini.local", there.daemon_port, ("127.0.0.9",))
        named = await robot_at(Typed("kitchen"), PATIENT, None, browse(old))
        (around,) = await robots_around(PATIENT, None, browse(old), ())
    assert named == around == Robot("Kitchen", ADDRESS, "127.0.0.1", 7860, there.daemon_port)


async def test_a_name_that_no_dns_can_have() -> None:
    """As people type it, to a resolver that has a limit."""
    with pytest.raises(WhichRobot):
        await robot_at(Typed("x" * 70), PATIENT, None, browse())


async def test_a_name_is_shown_on_one_line() -> None:
    name = "evil\x1b]0;x\x07\n\x9b31m" + "x" * 200
    async with fake_robot() as there:
        found = Found(name, "x.local", there.daemon_port, (ADDRESS,))
        (robot,) = await robots_around(PATIENT, None, browse(found), ())
    assert robot.name.startswith("evil\\x1b]0;x")
    assert robot.place.isprintable()
    assert len(robot.name) == 80


async def test_a_local_name_that_only_mdns_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def mdns(host: str, timeout_s: float) -> list[str]:
        return [ADDRESS] if host == "reachy-mini.local" else []

    monkeypatch.setattr(place, "look_up", _unknown)
    monkeypatch.setattr(place, "addresses_of", mdns)
    for typed in ("reachy-mini.local", "reachy-mini"):
        assert (await robot_at(Typed(typed), PATIENT, None)).address == ADDRESS


async def test_no_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "source_address", lambda address: None)
    with pytest.raises(WhichRobot) as error:
        await robot_at(Typed("192.168.1.7"), PATIENT, None)
    assert error.value.what == "192.168.1.7 cannot be reached"
    assert error.value.why == "this machine has no way to 192.168.1.7"


async def test_this_machine_by_any_of_its_addresses_is_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The daemon of a Reachy Mini Lite announces the network's address, and listens on none."""
    monkeypatch.setattr(place, "source_address", lambda address: address)
    robot = await robot_at(Typed("192.168.1.5"), PATIENT, None)
    assert (robot.address, robot.ours, robot.here) == ("127.0.0.1", "127.0.0.1", True)


async def test_of_several_addresses_the_one_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def two(host: str, timeout_s: float) -> list[str]:
        return ["127.0.0.9", ADDRESS]

    monkeypatch.setattr(place, "look_up", two)
    async with fake_robot(daemon=False) as there:
        typed = Typed("kitchen", there.app_port)
        robot = await robot_at(typed, PATIENT, free_port(ADDRESS))
    assert robot.address == ADDRESS


# --- looking around ----------------------------------------------------------------------------


async def test_robots_that_answer_are_found_once() -> None:
    """By mDNS and by name the same one; one that is announced and gone is none."""
    async with fake_robot() as there:
        port = there.daemon_port
        known = Found("kitchen", "reachy-mini.local", port, (ADDRESS,))
        again = Found("kitchen too", "reachy-mini.local", port, (ADDRESS,))
        gone = Found("attic", "attic.local", free_port("127.0.0.9"), ("127.0.0.9",))
        nameless = Found("nowhere", "nowhere.local", 8000, ())
        around = await robots_around(PATIENT, None, browse(known, again, gone, nameless), ())
    assert [(robot.name, robot.address) for robot in around] == [("kitchen", ADDRESS)]
    assert the_only(around).daemon_port == port


async def test_a_robot_with_two_addresses_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It announces that of its cable, and its usual name is that of its Wi-Fi."""

    async def wifi(host: str, timeout_s: float) -> list[str]:
        return ["127.0.0.3"]

    monkeypatch.setattr(place, "look_up", wifi)
    monkeypatch.setattr(place, "_listens", _always)
    found = Found("kitchen", "reachy-mini.local", 8000, (ADDRESS,))
    around = await robots_around(PATIENT, None, browse(found), ("reachy-mini.local",))
    assert [(robot.name, robot.address) for robot in around] == [("kitchen", ADDRESS)]


async def test_robots_that_do_not_answer_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in turn, somebody who announces hundreds would hold everybody up for as many minutes."""
    asked = asyncio.Event()
    waiting = 0

    async def listens(address: str, port: int, timeout_s: float) -> bool:
        nonlocal waiting
        waiting += 1
        if waiting == 40:  # two addresses of ten robots, two ports each
            asked.set()
        await asked.wait()
        return False

    monkeypatch.setattr(place, "_listens", listens)
    many = [Found(f"{n}", f"{n}.local", 8000, (f"127.0.1.{n}", f"127.0.2.{n}")) for n in range(10)]
    async with asyncio.timeout(20):
        assert await robots_around(PATIENT, None, browse(*many), ()) == []


async def test_a_robot_on_this_machine_is_found_by_itself() -> None:
    async with fake_robot(address="127.0.0.1") as there:
        (robot,) = await robots_around(PATIENT, there.daemon_port, browse(), ("localhost",))
    assert robot.here


def test_none_and_several() -> None:
    with pytest.raises(WhichRobot) as none:
        the_only([])
    assert none.value.what == "No robot was found"
    assert none.value.fix.startswith(HOW)
    kitchen = Robot("kitchen", "192.168.1.7", "192.168.1.5")
    with pytest.raises(WhichRobot) as several:
        the_only([kitchen, replace(kitchen, name="attic", address="192.168.1.8")])
    assert several.value.what == "There are 2 robots"
    assert several.value.why == "kitchen (192.168.1.7), attic (192.168.1.8)"
    assert several.value.fix == "Name the one that you mean: reachy-voice pair 192.168.1.7"


# --- the edges ---------------------------------------------------------------------------------


def test_our_address_towards_it() -> None:
    assert source_address("127.0.0.1") == "127.0.0.1"
    assert source_address(ADDRESS) == "127.0.0.1"
    assert source_address("not an address") is None


async def test_names_are_looked_up() -> None:
    assert await look_up("127.0.0.1", 5) == ["127.0.0.1"]
    assert "127.0.0.1" in await look_up("localhost", 5)
    assert await look_up("a..b", 5) == []


async def test_a_hanging_name_service_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def hang(*arguments: object, **more: object) -> list[object]:
        release.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    async with asyncio.timeout(20):
        assert await look_up("slow.example", 0.05) == []
    release.set()


async def _unknown(host: str, timeout_s: float) -> list[str]:
    return []


async def _always(address: str, port: int, timeout_s: float) -> bool:
    return True
