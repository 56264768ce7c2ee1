"""Encryption: the owner's certificate, or one that is generated here and renewed in time."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.settings.model import TlsFiles
from pipeline.errors import ConfigError

DAY_S = 86_400
RETRY_S = 60
"""Wait after a failed reload: a renewal writes two files, and the next try finds both."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """What a server needs for TLS. ``files`` are read again once a day."""

    context: ssl.SSLContext
    files: Callable[[], tuple[Path, Path]]
    """Return the files of certificate and key, after making new ones if needed."""
    fingerprint: str
    """SHA-256 of the certificate, as openssl and browsers show it."""
    certificate: Path
    """The certificate that a client can be set to trust."""

    async def keep_fresh(self, every_s: float = DAY_S) -> None:
        """Load a renewed certificate; open connections keep theirs. Never returns."""
        wait_s, reported = every_s, ""
        while True:
            await asyncio.sleep(wait_s)
            wait_s = every_s
            try:
                files = await asyncio.to_thread(self.files)
                # A mismatched pair would leave the live context without any key.
                await asyncio.to_thread(_load, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files)
                _load(self.context, files)
                reported = ""
            except (ConfigError, OSError, ValueError) as error:
                wait_s = min(every_s, RETRY_S)
                if str(error) != reported:
                    reported = str(error)
                    logger.error(
                        "The certificate was not renewed; the old one stays in use: %s", reported
                    )


def tls_from_files(files: TlsFiles) -> ServerTls:
    """Raises ``ConfigError``."""
    paths = (files.certificate.expanduser(), files.key.expanduser())
    return _server_tls(lambda: paths, paths[0])


def tls_generated(
    directory: Path, names: Sequence[str], now: Callable[[], float] = time.time
) -> ServerTls:
    """A certificate for ``names`` (host names and addresses), kept in ``directory``.

    An existing certificate is used if it has these names and a month left. Raises ``ConfigError``.
    """
    from app.server import own_certificate

    both = directory / own_certificate.SERVER

    def files() -> tuple[Path, Path]:
        try:
            if not own_certificate.is_good(directory, names, now()):
                own_certificate.make(directory, names, now())
        except OSError as error:
            fix = "Make the cache directory writable (paths.cache_dir)"
            raise ConfigError(
                "The certificate cannot be written", why=str(error), fix=fix
            ) from error
        return both, both

    return _server_tls(files, directory / own_certificate.TRUSTED)


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
        raise ConfigError(f"TLS cannot use {pair[0]} with {pair[1]}", why=why, fix=fix) from error
    return ServerTls(context, files, fingerprint, certificate)


def _load(context: ssl.SSLContext, pair: tuple[Path, Path]) -> None:
    """Raises ``OSError`` or ``ValueError``."""
    context.load_cert_chain(*pair, password=_no_password)


def _no_password() -> str:
    """Fail instead of asking at the terminal."""
    raise ValueError("the key is protected by a password")


def _fingerprint(pem: str) -> str:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index(begin) : pem.index(end) + len(end)])
    return hashlib.sha256(der).digest().hex(":").upper()
