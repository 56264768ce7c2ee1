"""Finding the robot: typed addresses, names, several robots, no robot."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from app.pairing import place
from app.pairing.place import (
    parse_place,
    robot_at,
    robots_around,
    the_only,
)
from app.pairing.steps import RobotAddress, Times, WhichRobot
from app.server.discovery import Service, source_address
from tests.support.fake_robot import ADDRESS, fake_robot
from tests.support.far_server import free_port
from tests.support.pair_scene import PATIENT

pytestmark = pytest.mark.machine

HOW = "Is it on, and in this network?"
AddressInfo = tuple[int, int, int, str, tuple[str, int]]
NOTHING: Mapping[str, list[str]] = {}
OTHER = "127.0.0.9"


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``announced``: by mDNS; ``named``: by a name service; ``local``: names that only mDNS
    knows."""

    def make(
        *announced: Service,
        named: Mapping[str, list[str]] = NOTHING,
        local: Mapping[str, list[str]] = NOTHING,
        usual: Sequence[str] = (),
    ) -> None:
        async def browse(service: str, timeout_s: float) -> list[Service]:
            return list(announced)

        def by_name_service(host: str, port: int | str | None, *how: int) -> list[AddressInfo]:
            if host not in named and not host[:1].isdigit():
                raise socket.gaierror
            each = named.get(host, [host])
            return [(socket.AF_INET, how[1], 0, "", (one, int(port or 0))) for one in each]

        async def by_mdns(host: str, timeout_s: float) -> list[str]:
            return local.get(host, [])

        monkeypatch.setattr(place, "find", browse)
        monkeypatch.setattr(socket, "getaddrinfo", by_name_service)
        monkeypatch.setattr(place, "addresses_of", by_mdns)
        monkeypatch.setattr(place, "USUAL_NAMES", usual)

    return make


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
def test_typed_addresses(text: str, host: str, port: int) -> None:
    assert parse_place(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    ["", "a b:80", "a\nb c", "http://a b/", "host:nine", "[fd00::7", "me@host", "host:99999"],
)
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(WhichRobot) as error:
        parse_place(text)
    assert error.value.exit_code == 2
    assert error.value.what == f"{text!r} is not a name or address of a robot"
    assert "reachy-voice pair 192.168.1.7" in error.value.fix


# --- by name -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kitchen", "x" * 70])
async def test_an_unknown_name(network: Callable[..., None], name: str) -> None:
    network()
    with pytest.raises(WhichRobot) as error:
        await robot_at(name, PATIENT)
    assert error.value.what == f"No robot is called {name!r} here"
    assert error.value.why == "neither a name service nor mDNS knows it"
    assert error.value.fix.startswith(HOW)


async def test_a_robot_is_found_by_its_own_name(network: Callable[..., None]) -> None:
    network(
        Service("reachy_mini", "reachy-mini.local", 8000, (OTHER,)),
        Service("Kitchen", "reachy-mini-2.local", 8001, (ADDRESS,), {"robot_name": "Kitchen"}),
    )
    robot = await robot_at("kitchen", PATIENT)
    assert robot == RobotAddress("Kitchen", ADDRESS, "127.0.0.1", 7860)
    assert robot.place == f"Kitchen ({ADDRESS})"


@pytest.mark.parametrize("typed", ["reachy-mini.local", "reachy-mini"])
async def test_a_local_name_that_only_mdns_knows(network: Callable[..., None], typed: str) -> None:
    network(local={"reachy-mini.local": [ADDRESS]})
    assert (await robot_at(typed, PATIENT)).address == ADDRESS


async def test_an_ambiguous_name_is_an_error(network: Callable[..., None]) -> None:
    """One of them may only claim to be it."""
    network(
        Service("a robot", "x.local", 8000, (OTHER,), {"robot_name": "kitchen"}),
        Service("kitchen-2", "x.local", 8000, (OTHER,), {"robot_name": "kitchen"}),
        Service("kitchen", "reachy-mini.local", 8000, (ADDRESS,)),
    )
    with pytest.raises(WhichRobot) as error:
        await robot_at("kitchen", PATIENT)
    assert error.value.what == "2 robots are called 'kitchen'"
    assert error.value.why == f"they are at {OTHER}; {ADDRESS}"


# --- by address --------------------------------------------------------------------------------


async def test_names_are_looked_up() -> None:
    assert (await robot_at("localhost", PATIENT)).address == "127.0.0.1"


async def test_a_hanging_name_service_hides_no_robot(monkeypatch: pytest.MonkeyPatch) -> None:
    async def mdns(host: str, timeout_s: float) -> list[str]:
        return [ADDRESS]

    async def hang(*arguments: object, **more: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(place, "addresses_of", mdns)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", hang)
    assert (await robot_at("kitchen", Times(connect_s=0.05))).address == ADDRESS


async def test_no_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "source_address", lambda address: None)
    with pytest.raises(WhichRobot) as error:
        await robot_at("192.168.1.7", PATIENT)
    assert error.value.what == "192.168.1.7 cannot be reached"
    assert error.value.why == "this machine has no route to 192.168.1.7"


async def test_this_machine_by_any_of_its_addresses_is_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The daemon of a Reachy Mini Lite announces a network address but does not listen on it."""
    monkeypatch.setattr(place, "source_address", lambda address: address)
    robot = await robot_at("192.168.1.5", PATIENT)
    assert (robot.address, robot.ours, robot.here) == ("127.0.0.1", "127.0.0.1", True)


async def test_the_answering_one_of_several_addresses_is_used(network: Callable[..., None]) -> None:
    network(named={"kitchen": [OTHER, ADDRESS]})
    async with fake_robot(daemon=False) as there:
        robot = await robot_at(f"kitchen:{there.app_port}", PATIENT)
    assert robot.address == ADDRESS


def test_our_address_towards_it() -> None:
    assert source_address("127.0.0.1") == "127.0.0.1"
    assert source_address(ADDRESS) == "127.0.0.1"
    assert source_address("not an address") is None


# --- looking around ----------------------------------------------------------------------------


async def test_robots_that_answer_are_found_once(network: Callable[..., None]) -> None:
    """Found by mDNS and by name, one robot counts once; one announced but gone does not count."""
    async with fake_robot() as there:
        port = there.daemon_port
        network(
            Service("kitchen", "reachy-mini.local", port, (ADDRESS,)),
            Service("kitchen too", "reachy-mini.local", port, (ADDRESS,)),
            Service("attic", "attic.local", free_port(OTHER), (OTHER,)),
            Service("nowhere", "nowhere.local", 8000, ()),
        )
        around = await robots_around(PATIENT)
    assert [(robot.name, robot.address) for robot in around] == [("kitchen", ADDRESS)]


async def test_a_robot_with_two_addresses_is_one(
    network: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It announces its cable's address, and its usual name leads to that of its Wi-Fi."""

    async def always(address: str, port: int, timeout_s: float) -> bool:
        return True

    usual = "mini.local"
    network(
        Service("kitchen", usual, 8000, (ADDRESS,)), named={usual: ["127.0.0.3"]}, usual=[usual]
    )
    monkeypatch.setattr(place, "listens", always)
    around = await robots_around(PATIENT)
    assert [(robot.name, robot.address) for robot in around] == [("kitchen", ADDRESS)]


async def test_robots_that_do_not_answer_are_asked_at_once(
    network: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, a device that announces hundreds would take as many minutes."""
    asked = asyncio.Event()
    waiting = 0

    async def listens(address: str, port: int, timeout_s: float) -> bool:
        nonlocal waiting
        waiting += 1
        if waiting == 40:  # two addresses of ten robots, two ports each
            asked.set()
        await asked.wait()
        return False

    network(*(Service(f"{n}", "x", 8000, (f"127.0.1.{n}", f"127.0.2.{n}")) for n in range(10)))
    monkeypatch.setattr(place, "listens", listens)
    async with asyncio.timeout(20):
        assert await robots_around(PATIENT) == []


async def test_a_robot_on_this_machine_is_found(
    network: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    network(named={"localhost": ["127.0.0.1"]}, usual=["localhost"])
    async with fake_robot(address="127.0.0.1") as there:
        monkeypatch.setattr(place, "DAEMON_PORT", there.daemon_port)
        (robot,) = await robots_around(PATIENT)
    assert robot.here


async def test_a_name_is_shown_on_one_line(network: Callable[..., None]) -> None:
    name = "evil\x1b]0;x\x07\n\x9b31m" + "x" * 200
    async with fake_robot() as there:
        network(Service(name, "x.local", there.daemon_port, (ADDRESS,)))
        (robot,) = await robots_around(PATIENT)
    assert robot.name.startswith("evil\\x1b]0;x")
    assert robot.place.isprintable()
    assert len(robot.name) == 80


def test_no_robot_and_several() -> None:
    with pytest.raises(WhichRobot) as none:
        the_only([])
    assert none.value.what == "No robot was found"
    assert none.value.fix.startswith(HOW)
    kitchen = RobotAddress("kitchen", "192.168.1.7", "192.168.1.5")
    with pytest.raises(WhichRobot) as several:
        the_only([kitchen, replace(kitchen, name="attic", address="192.168.1.8")])
    assert several.value.what == "There are 2 robots"
    assert several.value.why == "kitchen (192.168.1.7), attic (192.168.1.8)"
    assert several.value.fix == "Choose one: reachy-voice pair 192.168.1.7"
