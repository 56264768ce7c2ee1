"""Who counts as this machine: forwarders, containers, and the key for local programs."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.access.policy import Rules, Way, caller_of, digest, parse_network
from app.server.gate import Access
from app.server.local_key import key_for, local_key
from app.server.server import build_app
from app.server.serving import lan_addresses
from app.settings import model
from app.settings.container import in_container
from app.settings.load import load_settings
from tests.support.relay import pump
from tests.support.scripted_server import ScriptedAssistant, running

pytestmark = pytest.mark.machine

OWN_ADDRESSES = ["127.0.0.1", *lan_addresses()[:1]]
PROTECTED = ["/v1/models", "/ready", "/metrics", "/callers", "/console/api/turns"]


@contextlib.asynccontextmanager
async def forwarded(address: str, access: Access) -> AsyncIterator[int]:
    """A server at ``address`` behind a forwarder that connects from the same address. Yields the
    forwarder's port."""
    app = build_app(ScriptedAssistant(), max_sessions=1, access=access)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, on = await asyncio.open_connection(address, port, local_addr=(address, 0))
        await asyncio.gather(pump(reader, on), pump(back, writer))

    async with running(app, address) as (port, _):
        forwarder = await asyncio.start_server(forward, "127.0.0.1", 0)
        async with forwarder:
            yield forwarder.sockets[0].getsockname()[1]


async def statuses(port: int, host: str, **headers: str) -> set[int]:
    """Statuses of everything that an unknown caller must not reach."""
    sent = {"Host": host, **headers}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=sent) as client:
        found = {(await client.get(path)).status_code for path in PROTECTED}
        found.add((await client.post("/v1/realtime/client_secrets")).status_code)
    with contextlib.suppress(InvalidStatus):
        uri = f"ws://{host}/v1/realtime"
        async with connect(uri, host="127.0.0.1", port=port, additional_headers=headers):
            return {*found, 101}
    return found


@pytest.mark.parametrize("address", OWN_ADDRESSES)
async def test_without_a_local_address_a_forwarder_opens_nothing(address: str) -> None:
    async with forwarded(address, Access(Rules(loopback=False))) as port:
        for host in ("localhost", "127.0.0.1", address, "192.0.2.7:8765"):
            assert await statuses(port, host) == {401}


async def test_a_forwarder_is_detected_by_the_address_its_client_used() -> None:
    async with forwarded("127.0.0.1", Access(Rules())) as port:
        assert await statuses(port, "192.0.2.7:8765") == {401}
        assert await statuses(port, "[2001:db8::7]") == {401}
        assert 101 in await statuses(port, "localhost:9000"), "as through ssh -L"


KEY = "the key of a robot or an admin"
KNOWN = (digest(KEY.encode()),)


@pytest.mark.parametrize(
    ("rules", "sent", "status"),
    [
        (Rules(), "", 200),
        (Rules(loopback=False, addresses=(parse_network("127.0.0.0/8"),)), "", 403),
        (Rules(loopback=False, keys=KNOWN), KEY, 403),
        (Rules(loopback=False, admins=KNOWN), KEY, 200),
        (Rules(loopback=False, admins=KNOWN), "another", 401),
    ],
)
async def test_only_the_owner_sees_the_callers(rules: Rules, sent: str, status: int) -> None:
    headers = {"Host": "localhost", "Api-Key": sent}
    access = Access(rules)
    async with forwarded("127.0.0.1", access) as port, httpx.AsyncClient(headers=headers) as client:
        response = await client.get(f"http://127.0.0.1:{port}/callers")
        assert response.status_code == status


async def test_the_proxy_protocol_is_not_spoken() -> None:
    async with forwarded("127.0.0.1", Access(Rules())) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PROXY TCP4 192.0.2.7 127.0.0.1 5 8765\r\nGET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        writer.close()


@pytest.mark.parametrize(
    ("peer", "reached", "host", "here"),
    [
        ("127.0.0.1", "127.0.0.1", "localhost:8765", True),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1:9000", True),
        ("127.0.0.2", "127.0.0.2", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", "0.0.0.0:8765", True),
        ("::1", "::1", "[::1]:8765", True),
        ("::1", "::1", "[::]:8765", True),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", "127.0.0.1", True),
        ("192.168.1.2", "192.168.1.2", "192.168.1.2:8765", True),
        ("127.0.0.1", "127.0.0.1", "192.168.1.2:8765", False),
        ("127.0.0.1", "127.0.0.1", "203.0.113.9", False),
        ("127.0.0.2", "127.0.0.1", "192.168.1.2", False),
        ("::1", "::1", "[2001:db8::7]:8765", False),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", "192.168.1.2", False),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", "[::ffff:192.168.1.2]", False),
        ("192.168.1.2", "192.168.1.2", "localhost:9000", True),
        ("192.168.1.2", "192.168.1.2", "203.0.113.9:8765", False),
        ("2001:db8::7", "2001:db8::7", "[2001:db8::8]", False),
        ("192.168.1.3", "192.168.1.2", "192.168.1.2", False),
        ("fe80::2%eth0", "fe80::1%eth0", "[fe80::1]", False),
        ("fe80::1%eth0", "fe80::1%eth0", "[fe80::1%eth0]:8765", True),
        ("fe80::1%eth0", "fe80::1%eth0", "[fe80::1%25eth0]:8765", True),
    ],
)
def test_callers_on_this_machine_are_recognised(
    peer: str, reached: str, host: str, here: bool
) -> None:
    scope = {
        "client": (peer, 5),
        "server": (reached, 8765),
        "headers": [(b"host", host.encode())],
    }
    assert (Rules().decide(caller_of(scope)) == Way.LOOPBACK) is here
    assert Rules(loopback=False).decide(caller_of(scope)) != Way.LOOPBACK


@pytest.mark.parametrize(
    "name",
    [
        *("X-Forwarded-Proto", "X-Forwarded-Server", "X-Client-IP", "X-Envoy-External-Address"),
        *("CF-Connecting-IP", "True-Client-IP", "X-Original-Host", "CDN-Loop", "CF-Ray"),
        *("Proxy-Connection", "X-Remote-Addr", "X-Amzn-Trace-Id", "X-Scheme", "Forwarded-For"),
        *("X-Forwarded-For", "forwarded", "x-real-ip", "VIA", "X-Forward-For", "X-BlueCoat-Via"),
        *("Fly-Client-IP", "X-Azure-ClientIP", "WL-Proxy-Client-IP", "X-Originating-IP"),
        *("X-AppEngine-Remote-Addr", "CloudFront-Viewer-Address", "X-Amz-Cf-Id", "X-ARR-SSL"),
        *("Tailscale-User-Login", "X-Ingress-Path", "X-Url-Scheme", "Front-End-Https"),
    ],
)
def test_every_proxy_header_reveals_a_proxy(name: str) -> None:
    headers = [(b"host", b"localhost"), (name.encode(), b"x")]
    scope = {"client": ("127.0.0.1", 5), "server": ("127.0.0.1", 8765), "headers": headers}
    assert not isinstance(Rules().decide(caller_of(scope)), Way)


# --- containers --------------------------------------------------------------------------------

_SNAPSHOT = "overlay rw,lowerdir=/home/me/.local/share/containerd/snapshots/1/fs"
_NERDCTL = f"70 60 0:55 / / rw - overlay {_SNAPSHOT}\n71 70 0:5 / /proc rw - proc proc rw\n"
_DOCKER_HOST = (
    f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n99 22 0:55 / /run/1 rw - overlay {_SNAPSHOT}\n"
)


@pytest.mark.parametrize(
    ("file", "text", "environ", "found"),
    [
        ("proc/1/cgroup", "0::/init.scope\n", {}, False),
        ("proc/1/cgroup", "0::/\n", {}, False),
        (".dockerenv", "", {}, True),
        ("run/.containerenv", "", {}, True),
        ("run/systemd/container", "lxc", {}, True),
        ("proc/1/cgroup", "4:cpu:/docker/0123\n", {}, True),
        ("proc/1/cgroup", "0::/kubepods.slice/pod1\n", {}, True),
        ("proc/1/cgroup", "0::/machine.slice/libpod-12.scope\n", {}, True),
        ("proc/self/mountinfo", _NERDCTL, {}, True),
        ("proc/self/mountinfo", "1 0 0:9 /docker/btrfs/1 / rw - btrfs /dev/sda rw\n", {}, True),
        ("proc/self/mountinfo", "1 0 0:9 / / rw - zfs tank/docker/1 rw,xattr\n", {}, True),
        ("proc/self/mountinfo", _DOCKER_HOST, {}, False),
        ("proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/mapper/garden--vg rw\n", {}, False),
        ("proc/self/mountinfo", "1 0 8:1 / / rw - xfs /dev/docker/root rw\n", {}, False),
        ("proc/self/mountinfo", "1 0 0:9 / / rw - zfs docker01/ROOT/1 rw\n", {}, False),
        ("etc/hostname", "", {"container": "podman"}, True),
        ("etc/hostname", "", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, True),
        ("etc/hostname", "", {}, False),
    ],
)
def test_a_container_is_detected(
    tmp_path: Path, file: str, text: str, environ: dict[str, str], found: bool
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    assert in_container(tmp_path, environ) is found


@pytest.mark.parametrize(
    ("loopback", "host", "contained", "trusted"),
    [
        ("null", "127.0.0.1", False, True),
        ("null", "0.0.0.0", False, True),
        ("null", "localhost", True, True),
        ("null", "127.0.0.1", True, True),
        ("null", "0.0.0.0", True, False),
        ("null", "::", True, False),
        ("null", "192.168.1.2", True, False),
        ("true", "0.0.0.0", True, True),
        ("false", "127.0.0.1", False, False),
    ],
)
def test_local_programs_need_a_key_in_a_container_that_listens_on_the_network(
    monkeypatch: pytest.MonkeyPatch, loopback: str, host: str, contained: bool, trusted: bool
) -> None:
    monkeypatch.setattr(model, "in_container", lambda: contained)
    settings = load_settings(None, [f"access.loopback={loopback}", f"server.host={host}"]).settings
    assert settings.trusts_loopback is trusted


# --- the key for local programs ----------------------------------------------------------------


async def test_local_programs_of_the_same_user_have_a_key(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    access = Access(Rules(loopback=False))

    async def found(url: str = "ws://127.0.0.1:8765/v1/realtime") -> str | None:
        return await asyncio.to_thread(key_for, url, environ)

    assert await found() is None
    file = tmp_path / "reachy-voice" / "8765.key"
    file.write_text("of a server that was killed")
    async with local_key(access, 8765, environ):
        key = await found()
        assert key is not None
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        headers = [(b"authorization", b"Bearer " + key.encode())]
        assert access.rules.decide(caller_of({"client": None, "headers": headers})) == Way.ADMIN
        for other in ("ws://192.168.1.2:8765/v1/realtime", "ws://localhost:8766", "ws://localhost"):
            assert await found(other) is None
    assert await found() is None


async def test_no_key_is_made_if_local_programs_need_none() -> None:
    access = Access(Rules())
    async with local_key(access, 8765, {}):
        assert not access.rules.admins
