"""Makes certificates: an authority, which a phone or browser is set to trust once, and the server's
own, which the authority signs and which is renewed every year.

The authority may sign for this machine's names and for private addresses only (name constraints,
RFC 5280, 4.2.1.10): trusting it means trusting no other site. Its key stays in ``authority.pem``.

Imported only where a certificate is made.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from app.server.tls import DAY_S

Pair = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]

VALID_DAYS = 397
"""Browsers refuse longer lifetimes (CA/Browser Forum, Apple: 398 days)."""
RENEW_DAYS = 30
"""How long before expiry to renew; a running server checks once a day."""
AUTHORITY_DAYS = 3650

SERVER, AUTHORITY, TRUSTED = "server.pem", "authority.pem", "certificate.pem"
"""Files: the server's key and certificates, the authority's (both 0600), and the one clients
trust."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
_ALWAYS = ("local", "localhost")
_PRIVATE = (
    *("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.168.0.0/16", "::1/128", "fc00::/7", "fe80::/10"),
)


def is_good(directory: Path, names: Sequence[str], now: float) -> bool:
    """Whether the server's certificate has these names and a month left, and is signed by the
    present authority."""
    authority = _read_authority(directory)
    try:
        certificate = x509.load_pem_x509_certificate((directory / SERVER).read_bytes())
        listed = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if authority is None or not (directory / TRUSTED).is_file():
            return False
        certificate.verify_directly_issued_by(authority[1])
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound, InvalidSignature):
        return False
    if certificate.not_valid_after_utc.timestamp() - now < RENEW_DAYS * DAY_S:
        return False
    return set(_alternative_names(names)) <= set(listed)


def make(directory: Path, names: Sequence[str], now: float) -> None:
    """Make a certificate for the server, and a new authority if the present one cannot sign it.
    Raises ``OSError``."""
    authority = _read_authority(directory)
    if authority is None or not _may_sign(authority[1], names, now):
        key = ec.generate_private_key(ec.SECP256R1())
        authority = (key, _sign_authority(key, names, now))
    key = ec.generate_private_key(ec.SECP256R1())
    trusted = authority[1].public_bytes(serialization.Encoding.PEM)
    server = _sign_server(key, names, now, authority).public_bytes(serialization.Encoding.PEM)
    made = {
        TRUSTED: trusted,
        AUTHORITY: _key_pem(authority[0]) + trusted,
        SERVER: _key_pem(key) + server + trusted,
    }
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as work:  # mode 0700
        for name, text in made.items():
            path = Path(work, name)
            path.touch(mode=0o600)
            path.write_bytes(text)
            path.chmod(0o644 if name == TRUSTED else 0o600)
        for name in made:
            os.replace(Path(work, name), directory / name)


# --- the authority -----------------------------------------------------------------------------


def _read_authority(directory: Path) -> Pair | None:
    try:
        text = (directory / AUTHORITY).read_bytes()
        key = serialization.load_pem_private_key(text, None)
        certificate = x509.load_pem_x509_certificate(text)
    except (OSError, ValueError, TypeError):
        return None
    return (key, certificate) if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _may_sign(authority: x509.Certificate, names: Sequence[str], now: float) -> bool:
    if authority.not_valid_after_utc.timestamp() - now < VALID_DAYS * DAY_S:
        return False
    try:
        constraints = authority.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return False
    permitted = [tree.value for tree in constraints.permitted_subtrees or ()]
    return all(_permits(permitted, name.value) for name in _alternative_names(names))


def _permits(permitted: Sequence[object], name: object) -> bool:
    if isinstance(name, str):
        return any(f".{name}".endswith(f".{tree}") for tree in permitted if isinstance(tree, str))
    nets = (tree for tree in permitted if not isinstance(tree, str))
    return any(name in net for net in nets)  # type: ignore[operator]


def _permitted_trees(names: Sequence[str]) -> Iterator[x509.GeneralName]:
    nets = [ipaddress.ip_network(net) for net in _PRIVATE]
    found = [name.value for name in _alternative_names(names)]
    for name in dict.fromkeys([*_ALWAYS, *(name for name in found if isinstance(name, str))]):
        yield x509.DNSName(name)
    own = [address for address in found if not isinstance(address, str)]
    nets += [ipaddress.ip_network(at) for at in own if not _permits(nets, at)]
    for net in nets:
        yield x509.IPAddress(net)


def _sign_authority(
    key: ec.EllipticCurvePrivateKey, names: Sequence[str], now: float
) -> x509.Certificate:
    public = key.public_key()
    own = (name for name in map(str, names) if _NAME.fullmatch(name) and not name[0].isdigit())
    where = next((name for name in own if name not in _ALWAYS), "this machine")
    subject = _subject(f"reachy-voice on {where}")
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    constraints = x509.NameConstraints(list(_permitted_trees(names)), None)
    return (
        _builder(subject, subject, public, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)  # signs certificates, and lists of revoked ones
        .add_extension(constraints, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )


# --- the server's ------------------------------------------------------------------------------


def _sign_server(
    key: ec.EllipticCurvePrivateKey, names: Sequence[str], now: float, authority: Pair
) -> x509.Certificate:
    signer, issuer = authority
    public = key.public_key()
    usage = x509.KeyUsage(True, *[False] * 8)  # digital_signature alone
    for_servers = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return (
        _builder(_subject("reachy-voice"), issuer.subject, public, now, VALID_DAYS)
        .add_extension(x509.SubjectAlternativeName(_alternative_names(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(for_servers, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(signed_by, critical=False)
        .sign(signer, hashes.SHA256())
    )


def _alternative_names(names: Sequence[str]) -> list[x509.DNSName | x509.IPAddress]:
    """Names that a certificate can contain, without duplicates."""
    found: dict[x509.DNSName | x509.IPAddress, None] = {}
    for name in map(str.lower, names):
        try:
            if "%" not in name:
                found[x509.IPAddress(ipaddress.ip_address(name))] = None
        except ValueError:
            if len(name) <= 253 and _NAME.fullmatch(name):
                found[x509.DNSName(name)] = None
    return list(found)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    now: float,
    days: int,
) -> x509.CertificateBuilder:
    begin = datetime.fromtimestamp(int(now), UTC)
    return (
        x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
