"""Encryption: a certificate of the owner's, or one that is made here and renewed in time.

The certificate is made by the ``openssl`` program, so that no Python package is needed for it. It
signs itself: clients either trust that very file or compare its fingerprint.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import os
import re
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.settings.model import TlsFiles
from pipeline.errors import ConfigError

VALID_DAYS = 397
"""Longer ones are refused by browsers (CA/Browser Forum, Apple: 398 days)."""

RENEW_DAYS = 30
"""Before the end; a server that runs looks once a day."""

DAY_S = 86_400
RETRY_S = 60
"""After a renewal that failed: who renews writes two files, and the next look finds both."""

_OPENSSL_TIMEOUT_S = 60
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
_HEAD = "# reachy-voice; expires {expires}; names {names}\n"
_HEAD_READ = re.compile(r"# reachy-voice; expires (\d+); names (\S*)\n")
_REQUEST = """\
[req]
distinguished_name = subject
x509_extensions = extensions
prompt = no
[subject]
CN = reachy-voice
[extensions]
subjectAltName = {names}
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
"""
"""No authority: who trusts this certificate trusts this server and nobody else."""


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
    try:
        head = _HEAD_READ.match(both.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False
    if head is None or int(head[1]) - now < RENEW_DAYS * DAY_S:
        return False
    return set(_usable(names)) <= set(head[2].split(","))


def _usable(names: Sequence[str]) -> list[str]:
    """What can stand in a certificate, each once."""
    return list(dict.fromkeys(n for n in map(str.lower, names) if _is_address(n) or _is_name(n)))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return "%" not in name


def _is_name(name: str) -> bool:
    return len(name) <= 253 and _NAME.fullmatch(name) is not None


def _make(directory: Path, names: Sequence[str], now: float) -> None:
    """Write ``server.pem`` (key and certificate, 0600) and ``certificate.pem`` (0644)."""
    usable = _usable(names)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as name:  # mode 0700
            work = Path(name)
            _openssl(work, usable)
            certificate = (work / "certificate").read_text(encoding="ascii")
            key = (work / "key").read_text(encoding="ascii")
            expires = int(now) + VALID_DAYS * DAY_S
            head = _HEAD.format(expires=expires, names=",".join(usable))
            both = work / "server.pem"
            both.touch(mode=0o600)
            both.write_text(head + key + certificate, encoding="ascii")
            (work / "certificate").chmod(0o644)
            os.replace(work / "certificate", directory / "certificate.pem")
            os.replace(both, directory / "server.pem")
    except OSError as error:
        fix = "Make the cache directory writable (paths.cache_dir)"
        raise TlsError("The certificate cannot be written", why=str(error), fix=fix) from error


def _openssl(work: Path, names: Sequence[str]) -> None:
    """A P-256 key and its certificate, as files ``key`` and ``certificate`` in ``work``."""
    program = shutil.which("openssl")
    if program is None:
        raise TlsError(
            "A certificate cannot be made",
            why="the program openssl is not installed",
            fix="sudo apt install openssl, or set server.tls to {certificate: FILE, key: FILE}",
        )
    listed = ", ".join(f"{'IP' if _is_address(name) else 'DNS'}:{name}" for name in names)
    (work / "request").write_text(_REQUEST.format(names=listed), encoding="ascii")
    command = [program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-sha256", "-days", str(VALID_DAYS), "-config", str(work / "request")]
    command += ["-keyout", str(work / "key"), "-out", str(work / "certificate")]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=_OPENSSL_TIMEOUT_S
        )
    except subprocess.SubprocessError as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        fix = "Set server.tls to {certificate: FILE, key: FILE}"
        raise TlsError("openssl made no certificate", why=said[-1], fix=fix) from error
