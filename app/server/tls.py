"""Encryption: a certificate of the owner's, or one that is made here and renewed in time.

Our own signs itself: clients either trust that very file or compare its fingerprint.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import os
import re
import ssl
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from app.settings.model import TlsFiles
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

VALID_DAYS = 397
"""Longer ones are refused by browsers (CA/Browser Forum, Apple: 398 days)."""

RENEW_DAYS = 30
"""Before the end; a server that runs looks once a day."""

DAY_S = 86_400
RETRY_S = 60
"""After a renewal that failed: who renews writes two files, and the next look finds both."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")

logger = logging.getLogger(__name__)


class TlsError(ConfigError):
    """There is no certificate that can be used."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """What a server needs for TLS. ``files`` are read again once a day."""

    context: ssl.SSLContext
    files: Callable[[], tuple[Path, Path]]
    """The files of certificate and key; makes new ones first if it must."""
    fingerprint: str
    """SHA-256 of the certificate, as openssl and browsers show it."""
    certificate: Path
    """What a client may be told to trust."""

    async def keep_fresh(self, every_s: float = DAY_S) -> None:
        """Take up a renewed certificate; connections that are open keep theirs. Never returns."""
        wait_s, told = every_s, ""
        while True:
            await asyncio.sleep(wait_s)
            wait_s = every_s
            try:
                files = await asyncio.to_thread(self.files)
                # A pair that does not match would leave the live context without any key.
                await asyncio.to_thread(_load, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files)
                _load(self.context, files)
                told = ""
            except (TlsError, OSError, ValueError) as error:
                wait_s = min(every_s, RETRY_S)
                if str(error) != told:
                    told = str(error)
                    logger.error("The certificate was not renewed, the old one goes on: %s", told)


def tls_from_files(files: TlsFiles) -> ServerTls:
    """Raises ``TlsError``."""
    paths = (files.certificate.expanduser(), files.key.expanduser())
    return _server_tls(lambda: paths, paths[0])


def tls_generated(
    directory: Path, names: Sequence[str], now: Callable[[], float] = time.time
) -> ServerTls:
    """A certificate for ``names`` (host names and addresses), kept in ``directory``.

    What is there is used if it has these names and a month to go. Raises ``TlsError``.
    """
    both, certificate = directory / "server.pem", directory / "certificate.pem"

    def files() -> tuple[Path, Path]:
        if not _good(both, names, now()):
            _make(directory, names, now())
        return both, both

    return _server_tls(files, certificate)


def _server_tls(files: Callable[[], tuple[Path, Path]], certificate: Path) -> ServerTls:
    pair = files()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    fix = "Set server.tls to {certificate: FILE, key: FILE} in PEM format, the key without password"
    try:
        _load(context, pair)
        fingerprint = _fingerprint(pair[0].read_text(encoding="ascii", errors="replace"))
    except (OSError, ValueError) as error:  # SSLError is an OSError
        why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise TlsError(f"TLS cannot use {pair[0]} with {pair[1]}", why=why, fix=fix) from error
    return ServerTls(context, files, fingerprint, certificate)


def _load(context: ssl.SSLContext, pair: tuple[Path, Path]) -> None:
    """Raises ``OSError`` or ``ValueError``."""
    context.load_cert_chain(*pair, password=_no_password)


def _no_password() -> str:
    """Instead of asking at the terminal."""
    raise ValueError("the key is protected by a password")


def _fingerprint(pem: str) -> str:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index(begin) : pem.index(end) + len(end)])
    return hashlib.sha256(der).digest().hex(":").upper()


# --- our own certificate -----------------------------------------------------------------------


def _good(both: Path, names: Sequence[str], now: float) -> bool:
    """Whether the certificate that is there still does."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(both.read_bytes())
        listed = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    if certificate.not_valid_after_utc.timestamp() - now < RENEW_DAYS * DAY_S:
        return False
    return set(_alternative_names(names)) <= set(listed)


def _alternative_names(names: Sequence[str]) -> list[x509.GeneralName]:
    """Those that can stand in a certificate, each once."""
    from cryptography import x509

    found: dict[x509.GeneralName, None] = {}
    for name in map(str.lower, names):
        try:
            if "%" not in name:
                found[x509.IPAddress(ipaddress.ip_address(name))] = None
        except ValueError:
            if len(name) <= 253 and _NAME.fullmatch(name):
                found[x509.DNSName(name)] = None
    return list(found)


def _make(directory: Path, names: Sequence[str], now: float) -> None:
    """Write ``server.pem`` (key and certificate, 0600) and ``certificate.pem`` (0644)."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    pem = _certificate(key, names, now).public_bytes(serialization.Encoding.PEM)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as work:  # mode 0700
            both, certificate = Path(work, "server.pem"), Path(work, "certificate.pem")
            both.touch(mode=0o600)
            both.write_bytes(key_pem + pem)
            certificate.write_bytes(pem)
            certificate.chmod(0o644)
            for made in (certificate, both):
                os.replace(made, directory / made.name)
    except OSError as error:
        fix = "Make the cache directory writable (paths.cache_dir)"
        raise TlsError("The certificate cannot be written", why=str(error), fix=fix) from error


def _certificate(
    key: ec.EllipticCurvePrivateKey, names: Sequence[str], now: float
) -> x509.Certificate:
    """No authority: trusting this certificate means trusting this server only."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "reachy-voice")])
    begin = datetime.fromtimestamp(int(now), UTC)
    usage = x509.KeyUsage(True, *[False] * 8)  # digital_signature alone
    for_servers = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    public = key.public_key()
    return (
        x509.CertificateBuilder(subject, subject, public, x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(_alternative_names(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(for_servers, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
