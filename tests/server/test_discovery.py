"""mDNS on the loopback interface: announcements are really found, and a real daemon's records are
understood."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path

import pytest
from wyoming.client import AsyncTcpClient
from wyoming.info import Describe
from zeroconf import DNSOutgoing, DNSPointer, ServiceInfo, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf
from zeroconf.const import _CLASS_IN, _FLAGS_AA, _FLAGS_QR_RESPONSE, _TYPE_PTR

from app.access.policy import is_loopback
from app.server import discovery
from app.server.address_changes import address_changes
from app.server.discovery import (
    addresses_of,
    announce,
    find,
    machine_name,
    own_host,
    stay_announced,
)
from app.server.gate import access_for
from app.settings.load import load_settings
from pipeline.errors import ReachyVoiceError
from tests.support.beside import beside
from tests.support.far_server import free_port
from tests.support.listening import Listening, listening

pytestmark = pytest.mark.machine

HERE = ["127.0.0.1"]
LOOK_S = 20.0
"""Far more than needed: a responder stays silent for a second after an answer (RFC 6762, 6)."""


def _multicast() -> bool:
    """Whether a datagram to the mDNS group arrives on loopback."""
    group = socket.inet_aton("224.0.0.251") + socket.inet_aton("127.0.0.1")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard:
            heard.bind(("", 0))
            heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
            heard.settimeout(1)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaker:
                here = socket.inet_aton("127.0.0.1")
                speaker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, here)
                speaker.sendto(b"?", ("224.0.0.251", heard.getsockname()[1]))
            return heard.recv(1) == b"?"
    except OSError:
        return False


SERVICE = f"_rv{os.getpid()}._tcp"
"""Unique to this run, since real robots and servers may be around."""

MULTICAST = _multicast()
needs_multicast = pytest.mark.skipif(
    not MULTICAST and not os.environ.get("CI"), reason="no multicast on loopback in this sandbox"
)


@pytest.fixture(autouse=True)
def announced_for_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "VOICES", SERVICE)
    for pause in ("_CHECK_TIME", "_REGISTER_TIME", "_UNREGISTER_TIME"):
        monkeypatch.setattr(f"zeroconf._core.{pause}", 20)  # ms


@asynccontextmanager
async def robot(name: str, port: int, **texts: str) -> AsyncIterator[None]:
    """Announces itself as reachy-mini 1.13.0 does: without an address record."""
    zeroconf = AsyncZeroconf(interfaces=HERE)
    info = ServiceInfo(
        f"{SERVICE}.local.",
        f"{name}.{SERVICE}.local.",
        port=port,
        properties={"version": "1.13.0", "robot_name": name, "ws_path": "/ws/sdk", **texts},
        server="reachy-mini.local.",
    )
    try:
        await (await zeroconf.async_register_service(info, allow_name_change=True))
        yield
    finally:
        await zeroconf.async_close()


@needs_multicast
async def test_an_announced_server_is_found() -> None:
    async with announce(8765, "127.0.0.1", interfaces=HERE) as announced:
        (found,) = await find(SERVICE, LOOK_S, HERE, enough=1)
        assert await addresses_of(found.host, LOOK_S, HERE) == HERE
    assert found.name == announced.get_name()
    # The machine's own name is not ours to announce or withdraw.
    assert found.host == own_host()
    assert found.host.startswith("reachy-voice-")
    assert (found.port, found.addresses) == (8765, ("127.0.0.1",))
    own = version("reachy-voice")
    assert found.properties == {"path": "/v1/realtime", "version": own, "tls": "0"}


def test_announced_hosts_are_unique_and_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two machines with one name announce different hosts, and clients may use them."""
    monkeypatch.setattr(socket, "gethostname", lambda: "Raspberry_Pi" + "x" * 60)
    hosts = []
    for card in (0x0242_AC11_0002, 0x0242_AC11_0003):
        monkeypatch.setattr(uuid, "getnode", lambda card=card: card)
        hosts.append(own_host())
        environ = {"XDG_CONFIG_HOME": str(tmp_path)}
        assert (
            own_host() in access_for(load_settings(None, ()).settings, environ, print).rules.hosts
        )
    assert len(set(hosts)) == 2
    for host in hosts:
        assert re.fullmatch(r"reachy-voice-raspberry-pix+-[0-9a-f]{6}\.local", host)
        assert len(host.removesuffix(".local")) == 63


@needs_multicast
async def test_a_server_on_another_machine_gets_another_name() -> None:
    """Each machine has its own address, to which the other's conflict reply is sent."""
    one = announce(8765, "127.0.0.1", interfaces=HERE)
    other = announce(8765, "127.0.0.2", tls=True, interfaces=["127.0.0.2"])
    async with one as first, other as second:
        assert second.get_name() == f"{first.get_name()}-2"
        found = await find(SERVICE, LOOK_S, HERE, enough=2)
    assert [one.name for one in found] == [first.get_name(), second.get_name()]
    assert [one.properties["tls"] for one in found] == ["0", "1"]


def test_a_second_server_on_a_machine_gets_another_name() -> None:
    assert discovery._instance("desk", 8765) == "reachy-voice on desk"
    assert discovery._instance("desk", 8766) == "reachy-voice on desk, port 8766"


@needs_multicast
async def test_the_end_is_announced() -> None:
    """Otherwise it would be listed for an hour or more."""
    changes: asyncio.Queue[ServiceStateChange] = asyncio.Queue()

    def changed(
        zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        changes.put_nowait(state_change)

    zeroconf = AsyncZeroconf(interfaces=HERE)
    browser = AsyncServiceBrowser(zeroconf.zeroconf, [f"{SERVICE}.local."], handlers=[changed])
    async with announce(8765, "127.0.0.1", interfaces=HERE):
        assert await changes.get() is ServiceStateChange.Added
    while await changes.get() is not ServiceStateChange.Removed:
        pass
    await browser.async_cancel()
    await zeroconf.async_close()


@needs_multicast
async def test_a_robot_is_found_by_its_text() -> None:
    async with robot("reachy_mini", 8000, address="192.168.1.7", model="Reachy Mini Wireless"):
        (found,) = await find(SERVICE, LOOK_S, HERE, enough=1)
    assert (found.name, found.host, found.port) == ("reachy_mini", "reachy-mini.local", 8000)
    assert found.addresses == ("192.168.1.7",)
    assert found.properties["model"] == "Reachy Mini Wireless"


@needs_multicast
async def test_invalid_addresses_are_ignored() -> None:
    """A robot that started without a network writes 127.0.0.1."""
    texts = ("", "nonsense", "0.0.0.0", "127.0.0.1", "fe80::1%x")
    async with AsyncExitStack() as stack:
        robots = [robot(f"odd-{number}", 8000, address=text) for number, text in enumerate(texts)]
        await asyncio.gather(*map(stack.enter_async_context, robots))
        found = await find(SERVICE, LOOK_S, HERE, enough=len(texts))
    assert [one.addresses for one in found] == [()] * len(texts)


@needs_multicast
async def test_invalid_names_are_skipped() -> None:
    """One such record must not hide all others."""
    kind = f"{SERVICE}.local."
    zeroconf = AsyncZeroconf(interfaces=HERE)
    await zeroconf.zeroconf.async_wait_for_start()
    answer = DNSOutgoing(_FLAGS_QR_RESPONSE | _FLAGS_AA)
    for name in ("evil\x1b[31m.", "new\nline.", "\x00.", f"{'x' * 60}." * 5, "no\x7f.", "."):
        pointer = DNSPointer(kind, _TYPE_PTR, _CLASS_IN, 120, f"{name}{kind}")
        answer.add_answer_at_time(pointer, 0)
    looking = asyncio.create_task(find(SERVICE, LOOK_S, HERE, enough=1))
    try:
        async with robot("reachy_mini", 8000, address="192.168.1.7"):
            while not looking.done():
                zeroconf.zeroconf.async_send(answer)
                await asyncio.wait({looking}, timeout=0.1)
    finally:
        await zeroconf.async_close()
    assert [one.name for one in looking.result()] == ["reachy_mini"]


async def test_a_name_that_mdns_cannot_ask_for() -> None:
    assert await addresses_of(f"{'x' * 70}.local", 5, HERE) == []


async def test_no_interface_has_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container without network."""
    monkeypatch.setattr("ifaddr.get_adapters", list)
    assert await find(SERVICE, 60) == []
    assert await addresses_of("reachy-mini.local", 60) == []
    with pytest.raises(ReachyVoiceError):
        async with announce(8765, "0.0.0.0"):
            pass


async def test_an_empty_network() -> None:
    assert await find("_nobody-here._tcp", 0.1, HERE) == []


async def test_a_search_ends_with_its_caller() -> None:
    looking = asyncio.create_task(find(SERVICE, 3600, HERE))
    await asyncio.sleep(0.1)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking


# --- the server's side -------------------------------------------------------------------------


async def _no_network(interfaces: discovery.Interfaces) -> AsyncZeroconf:
    raise OSError("Network is unreachable")


async def test_loopback_only_opens_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(interfaces: discovery.Interfaces) -> AsyncZeroconf:
        raise AssertionError("mDNS was touched")

    monkeypatch.setattr(discovery, "_open", never)
    for host in ("127.0.0.1", "localhost", "::1"):
        await stay_announced(8765, host, tls=False)


async def test_a_failed_announcement_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(discovery, "_open", _no_network)
    with pytest.raises(ReachyVoiceError):
        async with announce(8765, "0.0.0.0"):
            pass
    tries = asyncio.Queue[str]()

    async def again(interfaces: discovery.Interfaces) -> AsyncZeroconf:
        tries.put_nowait("another one")
        return await _no_network(interfaces)

    changed = asyncio.Event()
    monkeypatch.setattr(discovery, "_open", again)
    monkeypatch.setattr(discovery, "address_changes", lambda: nullcontext(changed))
    with caplog.at_level(logging.WARNING):
        async with beside(stay_announced(8765, "0.0.0.0", tls=False)):
            await tries.get()
            changed.set()  # a network comes
            await tries.get()
    warning = (
        "This server is not announced by mDNS: Network is unreachable. Robots still reach it by "
        "its address; server.announce: false stops trying"
    )
    assert caplog.messages[0] == warning


@needs_multicast
async def test_a_new_address_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of Wi-Fi the old announcement would lead nowhere."""
    addresses, changed, really_open = ["192.168.1.5"], asyncio.Event(), discovery._open

    async def until_found_at(address: str) -> None:
        while [found.addresses for found in await find(SERVICE, LOOK_S, HERE, enough=1)] != [
            (address,)
        ]:
            pass

    monkeypatch.setattr(discovery, "_open", lambda interfaces: really_open(HERE))
    monkeypatch.setattr(discovery, "_listening", lambda host: list(addresses))
    monkeypatch.setattr(discovery, "address_changes", lambda: nullcontext(changed))
    async with beside(stay_announced(8765, "0.0.0.0", tls=False)):
        await until_found_at("192.168.1.5")
        addresses[:] = ["10.0.0.5"]
        changed.set()
        await until_found_at("10.0.0.5")


@needs_multicast
async def test_home_assistant_finds_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "is_loopback", lambda host: False)
    port = free_port()
    async with listening(Listening(host="127.0.0.1", wyoming_port=port)):
        while port not in {one.port for one in await find("_wyoming._tcp", LOOK_S, HERE, enough=1)}:
            pass  # another test's
        async with AsyncTcpClient("127.0.0.1", port) as client:
            await client.write_event(Describe().event())
            info = await client.read_event()
    assert info is not None
    assert info.type == "info"


@pytest.mark.skipif(not hasattr(socket, "AF_NETLINK"), reason="only Linux tells")
async def test_a_new_address_is_noticed() -> None:
    """In a private network, as root in a user namespace."""
    script = (
        "import asyncio, subprocess\n"
        "from app.server.address_changes import address_changes\n"
        "async def main():\n"
        "    async with address_changes() as changed:\n"
        "        subprocess.run(['ip', 'addr', 'add', '10.9.9.9/32', 'dev', 'lo'], check=True)\n"
        "        await asyncio.wait_for(changed.wait(), 20)\n"
        "asyncio.run(main())\n"
    )
    command = ["unshare", "--net", "--map-root-user", sys.executable, "-c", script]
    try:
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    _, said = await process.communicate()
    if b"unshare" in said or b"No such file" in said:
        pytest.skip("no network namespaces here")
    assert process.returncode == 0, said.decode()


async def test_each_message_of_the_system_is_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    monkeypatch.setattr("app.server.address_changes._listener", lambda: ours)
    with kernel:
        async with address_changes() as changed:
            for _ in range(2):
                kernel.send(b"an address")
                await changed.wait()
                changed.clear()
    assert ours.fileno() == -1


async def test_without_address_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_NETLINK", raising=False)
    async with address_changes() as changed:
        assert not changed.is_set()


@pytest.mark.parametrize(
    ("host", "only_here"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("", False)],
)
def test_loopback_hosts_are_recognised(host: str, only_here: bool) -> None:
    assert is_loopback(host) == only_here


@pytest.mark.parametrize(
    ("hostname", "label"),
    [
        ("desk", "desk"),
        ("desk.fritz.box", "desk"),
        ("Kurt's PC", "Kurt-s-PC"),
        ("äöü", "reachy-voice"),
        ("x" * 80, "x" * 63),
    ],
)
def test_a_host_name_becomes_a_label(hostname: str, label: str) -> None:
    assert machine_name(hostname) == label
    assert len(discovery._instance(label, 65535).encode()) <= 60
