"""TLS: a generated certificate, one of the owner's, and what a client sees of them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidMessage

from app.server.listening import BoundPort, bind
from app.server.own_certificate import RENEW_DAYS, VALID_DAYS
from app.server.serving import browser_tls_for, tls_for
from app.server.tls import DAY_S, RETRY_S, ServerTls, tls_from_files, tls_generated
from app.settings.load import load_settings
from app.settings.model import TlsFiles
from pipeline.errors import ConfigError
from tests.support.scripted_server import Serve

pytestmark = pytest.mark.machine

NAMES = ["localhost", "127.0.0.1", "::1", "Box", "box.local", "not a name", "fe80::1%eth0"]
NOW = 1_800_000_000.0


@pytest.fixture
def generated(tmp_path: Path) -> ServerTls:
    return tls_generated(tmp_path / "tls", NAMES)


def trusting(certificate: Path) -> ssl.SSLContext:
    """As strict as Python 3.13 is by default."""
    context = ssl.create_default_context(cafile=certificate)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


# --- over a socket -----------------------------------------------------------------------------


async def test_a_client_that_trusts_the_certificate_talks_encrypted(
    serving: Serve, generated: ServerTls
) -> None:
    context = await asyncio.to_thread(trusting, generated.certificate)
    served = await serving(tls=generated.context)
    for host in ("127.0.0.1", "localhost"):
        url = f"wss://{host}:{served.port}/v1/realtime"
        own_page = f"https://{host}:{served.port}"
        async with connect(url, ssl=context, origin=own_page) as client:  # type: ignore[arg-type]
            assert json.loads(await client.recv())["type"] == "session.created"
            seen = client.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert hashlib.sha256(seen).hexdigest().upper() == generated.fingerprint.replace(":", "")
    async with httpx.AsyncClient(verify=context) as client:
        answer = await client.get(f"https://127.0.0.1:{served.port}/ready")
        assert answer.json()["ready"] is True


async def test_untrusting_and_plain_clients_get_nothing(
    serving: Serve, generated: ServerTls
) -> None:
    default = await asyncio.to_thread(ssl.create_default_context)
    served = await serving(tls=generated.context)
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(f"wss://127.0.0.1:{served.port}/v1/realtime", ssl=default)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert not (await reader.read()).startswith(b"HTTP")
    writer.close()


async def test_a_second_port_is_encrypted_beside_the_plain_one(
    serving: Serve, generated: ServerTls
) -> None:
    context = await asyncio.to_thread(trusting, generated.certificate)
    second = BoundPort(bind("127.0.0.1", 0), generated.context)
    port = second.socket.getsockname()[1]
    served = await serving(beside=[second])
    url = f"wss://localhost:{port}/v1/realtime"
    async with connect(url, ssl=context) as safe, served.connect() as plain:
        for client in (safe, plain):
            assert json.loads(await client.recv())["type"] == "session.created"
    with pytest.raises(InvalidMessage):
        await connect(f"ws://localhost:{port}/v1/realtime")


async def test_an_unfinished_tls_handshake_is_cut(serving: Serve, generated: ServerTls) -> None:
    served = await serving(tls=generated.context, handshake_s=0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    assert await reader.read() == b""
    writer.close()


async def test_a_half_done_renewal_keeps_the_old_certificate(
    serving: Serve, generated: ServerTls, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Renewal programs write the certificate first, then the key."""
    loop = asyncio.get_running_loop()
    seen: asyncio.Queue[None] = asyncio.Queue()
    new = await asyncio.to_thread(tls_generated, tmp_path / "new", NAMES)
    old_key = (await asyncio.to_thread(split, generated, tmp_path)).key
    made = await asyncio.to_thread(split, new, tmp_path / "new")
    half, whole = (made.certificate, old_key), (made.certificate, made.key)
    pair = half

    def files() -> tuple[Path, Path]:
        loop.call_soon_threadsafe(seen.put_nowait, None)
        return pair

    async def looks(number: int) -> None:
        for _ in range(number):
            await seen.get()

    served = await serving(tls=generated.context)
    url = f"wss://localhost:{served.port}/v1/realtime"
    fresh = asyncio.create_task(replace(generated, files=files).keep_fresh(every_s=0.001))
    await looks(3)
    context = await asyncio.to_thread(trusting, generated.certificate)
    async with connect(url, ssl=context):
        pass
    assert len(caplog.records) == 1  # however often it looked
    pair = whole
    await looks(seen.qsize() + 3)
    fresh.cancel()
    await asyncio.wait({fresh})
    context = await asyncio.to_thread(trusting, new.certificate)
    async with connect(url, ssl=context):
        pass


async def test_a_failed_renewal_is_tried_again_in_a_minute(
    generated: ServerTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)
        if len(slept) == 3:
            raise asyncio.CancelledError

    def files() -> tuple[Path, Path]:
        if len(slept) == 1:
            raise ConfigError("not yet")
        return generated.files()

    monkeypatch.setattr("app.server.tls.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await replace(generated, files=files).keep_fresh()
    assert slept == [DAY_S, RETRY_S, DAY_S]


# --- the certificate ---------------------------------------------------------------------------


def test_it_is_readable_by_the_owner_only_and_reused(tmp_path: Path) -> None:
    first = tls_generated(tmp_path / "tls", NAMES)
    assert (tmp_path / "tls" / "server.pem").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "tls").stat().st_mode & 0o777 == 0o700
    assert "PRIVATE" not in first.certificate.read_text()
    assert (tmp_path / "tls" / "authority.pem").stat().st_mode & 0o777 == 0o600
    files = sorted(path.name for path in (tmp_path / "tls").iterdir())
    assert files == ["authority.pem", "certificate.pem", "server.pem"]
    assert tls_generated(tmp_path / "tls", NAMES[:2]).fingerprint == first.fingerprint
    assert tls_generated(tmp_path / "tls", [*NAMES, "10.0.0.5"]).fingerprint != first.fingerprint


def test_it_is_renewed_a_month_before_it_expires(tmp_path: Path) -> None:
    def fingerprint(days: float) -> str:
        return tls_generated(tmp_path, NAMES, lambda: NOW + days * DAY_S).fingerprint

    first = fingerprint(0)
    assert fingerprint(VALID_DAYS - RENEW_DAYS) == first
    assert fingerprint(VALID_DAYS - RENEW_DAYS + 0.1) != first


@pytest.mark.parametrize("text", ["", "nonsense", "# reachy-voice; expires 9; names a\n", "\xff"])
def test_a_damaged_file_is_made_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.pem").write_text(text, encoding="latin-1")
    assert tls_generated(tmp_path, NAMES).fingerprint


def test_it_is_valid_for_this_server_only(generated: ServerTls) -> None:
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-text", "-in", str(generated.files()[0])],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "CA:FALSE" in shown
    assert "TLS Web Server Authentication" in shown
    for name in ("DNS:localhost", "IP Address:127.0.0.1", "DNS:box", "DNS:box.local"):
        assert name in shown
    assert "not a name" not in shown
    assert "Public-Key: (256 bit)" in shown


def test_a_trusted_authority_covers_renewals(tmp_path: Path) -> None:
    first = tls_generated(tmp_path, NAMES)
    trusted = first.certificate.read_text()
    again = tls_generated(tmp_path, [*NAMES, "10.0.0.5"])
    assert again.fingerprint != first.fingerprint
    assert first.certificate.read_text() == trusted


def signed(directory: Path, name: str) -> subprocess.CompletedProcess[str]:
    """What openssl says about a certificate for ``name`` signed by the authority."""
    authority, key = directory / "authority.pem", directory / "stolen.key"
    common = f"-addext subjectAltName={name} -addext basicConstraints=critical,CA:FALSE"
    new_key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    make = f"openssl req -x509 {new_key} -subj /CN=x -days 9 {common}"
    out = directory / "stolen.pem"
    signing = f"{make} -CA {authority} -CAkey {authority} -keyout {key} -out {out}"
    subprocess.run(signing.split(), check=True, capture_output=True)
    verify = ["openssl", "verify", "-CAfile", str(directory / "certificate.pem"), str(out)]
    return subprocess.run(verify, capture_output=True, text=True)


def test_its_authority_vouches_for_this_machine_and_private_addresses_only(tmp_path: Path) -> None:
    tls_generated(tmp_path, NAMES)
    for name in ("DNS:localhost", "DNS:other.local", "IP:192.168.7.7", "IP:fd00::1"):
        assert signed(tmp_path, name).returncode == 0, name
    for name in ("DNS:bank.example", "IP:203.0.113.9", "IP:2001:db8::1"):
        told = signed(tmp_path, name)
        assert "permitted subtree violation" in told.stderr, name


def test_an_authority_not_valid_for_a_new_name_is_replaced(tmp_path: Path) -> None:
    first = tls_generated(tmp_path, NAMES).certificate.read_text()
    named = tls_generated(tmp_path, [*NAMES, "voice.example", "203.0.113.9"])
    assert named.certificate.read_text() != first
    for name in ("DNS:voice.example", "IP:203.0.113.9"):
        assert signed(tmp_path, name).returncode == 0, name


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        tls_generated(tmp_path / "file" / "tls", NAMES)


# --- the owner's own ---------------------------------------------------------------------------


def split(generated: ServerTls, directory: Path) -> TlsFiles:
    both = (generated.certificate.parent / "server.pem").read_text()
    key, certificate = directory / "key.pem", directory / "chain.pem"
    border = both.index("-----BEGIN CERTIFICATE")
    key.write_text(both[:border])
    certificate.write_text(both[border:])
    return TlsFiles(certificate=certificate, key=key)


def test_files_of_the_owner(generated: ServerTls, tmp_path: Path) -> None:
    assert tls_from_files(split(generated, tmp_path)).fingerprint == generated.fingerprint


def test_files_that_cannot_be_used_say_why(generated: ServerTls, tmp_path: Path) -> None:
    good = split(generated, tmp_path)
    other = split(tls_generated(tmp_path / "other", NAMES), tmp_path / "other")
    locked = tmp_path / "locked.pem"
    subprocess.run(
        f"openssl pkey -aes128 -passout pass:x -in {good.key} -out {locked}".split(),
        check=True,
        capture_output=True,
    )
    wrong = {
        "No such file": TlsFiles(certificate=tmp_path / "absent.pem", key=good.key),
        "password": TlsFiles(certificate=good.certificate, key=locked),
        "mismatch": TlsFiles(certificate=good.certificate, key=other.key),
    }
    for why, files in wrong.items():
        with pytest.raises(ConfigError) as error:
            tls_from_files(files)
        assert why.lower() in error.value.why.lower(), error.value.why
        assert "server.tls" in error.value.fix


def test_settings_choose_the_certificates(generated: ServerTls, tmp_path: Path) -> None:
    """For the server's port and for the browser port."""

    def of(*sets: str) -> tuple[ServerTls | None, ServerTls | None]:
        given = [*sets, f"paths.cache_dir={tmp_path / 'cache'}"]
        settings = load_settings(None, given, {}).settings
        tls = tls_for(settings, {})
        return tls, browser_tls_for(settings, {}, tls)

    assert of() == (None, None)
    none, made = of("server.browser_port=8766")
    assert none is None
    assert made is not None
    own, same = of("server.browser_port=8766", "server.tls=generate", "server.host=0.0.0.0")
    assert own is not None
    assert same is own
    assert own.certificate == tmp_path / "cache" / "tls" / "certificate.pem"
    files = split(generated, tmp_path)
    theirs, _ = of(f"server.tls={{certificate: {files.certificate}, key: {files.key}}}")
    assert theirs is not None
    assert theirs.fingerprint == generated.fingerprint
