"""Who may connect: the policy, without sockets and files.

There are three ways in: being this machine, having an address that the owner allowed, or showing a
key (or a client secret, for sessions). Web pages are checked by Origin, and pages that pass their
own name off as this machine (DNS rebinding) by Host.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

OPEN_PATHS = frozenset({"/health"})
"""Any client may check that the server is up."""
CONSOLE, CONSOLE_API = "/console", "/console/api/"
"""The console's pages are open, since they hold no data; the requests that they make are not."""

ORIGIN, HOST = "origin_not_allowed", "host_not_allowed"
"""Error codes of the two refusals that concern web pages."""

KEY_SUBPROTOCOL = b"openai-insecure-api-key."
"""Subprotocol with the key, for browsers, which cannot set headers on a WebSocket."""

_PROXY_HEADER = re.compile(
    rb".*forward.*|(.+-)?via|(.+-)?proxy-.+|.+-ip|(x-)?client-ip.*|.+-clientip|.+-remote-addr"
    rb"|(cdn|cf|cloudfront|akamai|tailscale|ngrok)-.+|x-(url-)?scheme|front-end-https"
    rb"|x-(original|envoy|amzn?|azure|akamai|arr|ingress)-.+|x-nginx-proxy|x-cloud-trace-context",
    re.IGNORECASE,
)
"""A client that sends one of these headers is a proxy."""

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_HOST = re.compile(r"(\[[0-9a-f:.]+(?:%[\w.-]+)?\]|[^\s:/@?#\\\[\]]+)(?::([0-9]{1,5}))?", re.ASCII)
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)", re.ASCII)
_DEFAULT_PORTS = {"http": "80", "https": "443"}


# --- addresses and keys ------------------------------------------------------------------------


def parse_address(text: str) -> Address | None:
    """An IP address in the form used for comparison: no zone, IPv4-mapped IPv6 as IPv4."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    """Whether a server that listens on ``host`` can be reached from this machine only."""
    address = parse_address(host)
    return host == "localhost" if address is None else address.is_loopback


def in_url(host: str) -> str:
    """A host as written in URLs: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def parse_network(text: str) -> Network:
    """``192.168.1.7``, ``192.168.1.0/24``, ``fd00::/8``; host bits are dropped.

    Raises ``ValueError`` with a message for people.
    """
    start, slash, length = text.strip().partition("/")
    start = start.partition("%")[0]
    try:
        network = ipaddress.ip_network(start + slash + length, strict=False)
    except ValueError:
        raise ValueError(
            "must be an IP address (192.168.1.7) or network (192.168.1.0/24)"
        ) from None
    if isinstance(network, ipaddress.IPv6Network) and ipaddress.IPv6Address(start) in _MAPPED:
        if not network.subnet_of(_MAPPED):  # /24 of the IPv6 address would admit others
            raise ValueError(f"must be an IPv4 network: {parse_address(start)}{slash}{length}")
        inner = int(network.network_address) & 0xFFFF_FFFF
        return ipaddress.IPv4Network((inner, network.prefixlen - _MAPPED.prefixlen))
    return network


def block_of(address: Address) -> str:
    """The address, or the /64 of an IPv6 address, since one machine may use all of it."""
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    return str(address)


def is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def shown_network(network: Network) -> str:
    """``network`` in the usual notation: without the ``/32`` of a single address."""
    single = network.prefixlen == network.max_prefixlen
    return str(network.network_address if single else network)


def digest(key: bytes) -> bytes:
    """The stored form of a key: SHA-256 is enough, since keys are long and random."""
    return hashlib.sha256(key).digest()


def matches(keys: Iterable[bytes], digests: Iterable[bytes]) -> list[bool]:
    """For each of ``digests``, whether it is the digest of one of ``keys``. Compares all pairs in
    constant time, so the timing reveals nothing."""
    ours = [digest(key) for key in keys]
    result = []
    for theirs in digests:
        same = False
        for mine in ours:
            same |= hmac.compare_digest(mine, theirs)
        result.append(same)
    return result


# --- what a request says -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request says about its sender. Only ``address`` is known to be true."""

    address: Address | None
    keys: tuple[bytes, ...] = ()
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    secure: bool = False
    """It came over TLS."""
    forwarded: bool = False
    """A proxy sent it for another client, whose address is not known."""
    proxied: bool = False
    """A trusted proxy sent it for the client at ``address``."""
    reached: Address | None = None
    """The server's address at which it arrived."""

    @property
    def place(self) -> str:
        """The address in the usual notation."""
        return "an unknown address" if self.address is None else str(self.address)

    @property
    def from_here(self) -> bool:
        """Whether the connection comes from this machine. No other host can fake that, but a
        forwarder on this machine may make it for a client elsewhere."""
        if self.address is None or self.proxied:
            return False
        return self.address.is_loopback or self.address == self.reached


def caller_of(scope: Mapping[str, Any], proxies: Sequence[Network] = ()) -> Caller:
    """Read an ASGI scope of type ``http`` or ``websocket``. ``proxies`` are trusted to name the
    client whose request they forward."""
    headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
    peer = _end(scope.get("client"))
    address = _first_untrusted(peer, _values(headers, b"x-forwarded-for"), proxies)
    proxied = address is not peer
    schemes = _values(headers, b"x-forwarded-proto") if proxied else ()
    hosts, reached = _values(headers, b"host"), _end(scope.get("server"))
    says_so = any(_PROXY_HEADER.fullmatch(name) for name, _ in headers)
    return Caller(
        address=address,
        keys=_keys(headers),
        origins=_values(headers, b"origin"),
        hosts=hosts,
        secure=(schemes[-1] if schemes else scope.get("scheme")) in ("https", "wss"),
        forwarded=not proxied and (says_so or _was_for_elsewhere(hosts, peer, reached)),
        proxied=proxied,
        reached=reached,
    )


def _was_for_elsewhere(hosts: Sequence[str], peer: Address | None, reached: Address | None) -> bool:
    """Whether the Host of a local connection's request is another address: then a forwarder brought
    it here, since a local client would have reached that address itself."""
    place = split_host(hosts[0]) if len(hosts) == 1 else None
    aim = parse_address(place[0]) if place else None
    if aim is None or peer is None or reached is None:
        return False
    here = aim.is_loopback or aim.is_unspecified or aim == reached
    local = peer == reached or (peer.is_loopback and reached.is_loopback)
    return local and not here


def _first_untrusted(
    peer: Address | None, forwarded_for: Sequence[str], proxies: Sequence[Network]
) -> Address | None:
    """The client of the outermost trusted proxy. Each proxy appends the address that its request
    came from, so entries further left may be forged."""
    address, hops = peer, [hop for line in forwarded_for for hop in line.split(",")]
    while hops and address is not None and is_in(address, proxies):
        hop = hops.pop().strip()
        place = split_host(hop)  # some proxies add the port
        address = parse_address(place[0] if place else hop)
    return address


def _end(place: Sequence[Any] | None) -> Address | None:
    """The address of one end of a connection; a Unix socket has none."""
    return parse_address(str(place[0])) if place else None


def _values(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> tuple[str, ...]:
    return tuple(value.decode("latin-1") for key, value in headers if key.lower() == name)


def _keys(headers: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, ...]:
    """At most one key for each of the three ways to send it."""
    keys: dict[bytes, bytes] = {}
    for name, value in headers:
        name = name.lower()
        if name == b"authorization":
            scheme, _, key = value.strip().partition(b" ")
            if scheme.lower() == b"bearer" and key.strip():
                keys.setdefault(name, key.strip())
        elif name == b"api-key" and value.strip():
            keys.setdefault(name, value.strip())
        elif name == b"sec-websocket-protocol":
            for offer in map(bytes.strip, value.split(b",")):
                if offer.startswith(KEY_SUBPROTOCOL) and offer != KEY_SUBPROTOCOL:
                    keys.setdefault(name, offer.removeprefix(KEY_SUBPROTOCOL))
    return tuple(keys.values())


# --- hosts and origins -------------------------------------------------------------------------


def split_host(text: str) -> tuple[str, str] | None:
    """``(name, port)`` of a Host header, lower case; the port may be empty. ``None``: malformed."""
    match = _HOST.fullmatch(text.strip().lower())
    if match is None:
        return None
    return match[1].strip("[]").removesuffix("."), match[2] or ""


def canonical_origin(text: str) -> str | None:
    """``http://host:80`` for ``ws://HOST/``, so that origins can be compared. ``None``:
    malformed."""
    match = _ORIGIN.fullmatch(text.strip().lower().removesuffix("/"))
    place = split_host(match[2]) if match else None
    if match is None or place is None:
        return None
    scheme = {"ws": "http", "wss": "https"}.get(match[1], match[1])
    return f"{scheme}://{place[0]}:{place[1] or _DEFAULT_PORTS.get(scheme, '')}"


# --- the decision ------------------------------------------------------------------------------


WAY = "reachy_voice.way"
"""Key of the ASGI scope: the ``Way`` in which the client was admitted."""


class Way(StrEnum):
    """How a client was admitted."""

    LOOPBACK = "loopback"
    ADDRESS = "address"
    KEY = "key"
    ADMIN = "admin"
    SECRET = "secret"

    @property
    def is_owner(self) -> bool:
        """Whether the client may see and change what only the owner may. Where a forwarder may
        stand in front, an address does not prove that the client runs on this machine."""
        return self in (Way.LOOPBACK, Way.ADMIN)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a client is refused."""

    status: int
    code: str
    message: str
    subject: str
    """The address, origin or host concerned."""


@dataclass(frozen=True, slots=True)
class Rules:
    loopback: bool = True
    addresses: tuple[Network, ...] = ()
    keys: tuple[bytes, ...] = ()
    """Digests."""
    admins: tuple[bytes, ...] = ()
    """Digests of keys that also open the console, from anywhere."""
    origins: frozenset[str] = frozenset()
    """Canonical."""
    hosts: frozenset[str] = frozenset({"localhost"})
    """Names of this machine, in lower case."""
    proxies: tuple[Network, ...] = ()
    """Trusted to name the client whose request they forward."""

    def extended(
        self, addresses: Iterable[Network], keys: Iterable[bytes], admins: Iterable[bytes] = ()
    ) -> Rules:
        """These rules with more addresses and keys."""
        return replace(
            self,
            addresses=(*self.addresses, *addresses),
            keys=(*self.keys, *keys),
            admins=(*self.admins, *admins),
        )

    def decide(self, caller: Caller, *, has_secret: bool = False) -> Way | Refusal:
        """Admit or refuse ``caller``. ``has_secret``: it sent a valid client secret. A page of
        another origin needs such a secret, made for it by a client with access; a key is not
        enough, because long-lived keys do not belong in web pages."""
        if caller.origins and not self._page_may_ask(caller, has_secret):
            return _foreign_page(caller)
        if has_secret:
            return Way.SECRET
        if any(matches(caller.keys, self.admins)):
            return Way.ADMIN
        if any(matches(caller.keys, self.keys)):
            return Way.KEY
        way = self._without_key(caller)
        if way is None:
            return _unknown(caller)
        # After DNS rebinding, a browser sends the wrong name as Host, and often no Origin.
        if not self._own(caller.hosts):
            return _foreign_name(caller)
        return way

    def _without_key(self, caller: Caller) -> Way | None:
        """The way in that the address alone opens; a proxy's says nothing about its client."""
        if caller.address is None or caller.forwarded:
            return None
        if self.loopback and caller.from_here:
            return Way.LOOPBACK
        if is_in(caller.address, self.addresses):
            return Way.ADDRESS
        return None

    def _own(self, hosts: Sequence[str]) -> bool:
        """Whether a Host header means this machine: an IP address, or one of its names."""
        place = split_host(hosts[0]) if len(hosts) == 1 else None
        if place is None:
            return False
        return place[0] in self.hosts or parse_address(place[0]) is not None

    def _page_may_ask(self, caller: Caller, has_secret: bool) -> bool:
        """Whether the page in the browser is ours, or has been allowed."""
        origin = canonical_origin(caller.origins[0]) if len(caller.origins) == 1 else None
        if origin is None:  # malformed, or the "null" of files and sandboxes
            return False
        if has_secret or origin in self.origins:
            return True
        scheme = "https" if caller.secure else "http"
        own = self._own(caller.hosts)
        return own and origin == canonical_origin(f"{scheme}://{caller.hosts[0]}")


def _foreign_page(caller: Caller) -> Refusal:
    origin = ", ".join(caller.origins)
    return Refusal(
        403,
        ORIGIN,
        f"Web pages from {origin!a} may not use this server. Its owner can add the origin to "
        "access.origins, or the page can use a client secret.",
        origin,
    )


def _foreign_name(caller: Caller) -> Refusal:
    host = ", ".join(caller.hosts)
    return Refusal(
        403,
        HOST,
        f"This server is not known as {host!a}. Use its IP address, add the name to access.hosts, "
        "or send an API key.",
        host,
    )


def _unknown(caller: Caller) -> Refusal:
    what = "The API key is not known" if caller.keys else "An API key is needed"
    fix = "Send a key made on the server with `reachy-voice key new NAME`, as 'Bearer KEY'."
    if caller.address and not (caller.from_here or caller.forwarded):
        fix = f"On the server, run `reachy-voice allow {caller.place}`. Or: {fix}"
    code = "invalid_api_key" if caller.keys else "missing_api_key"
    who = "a proxy" if caller.forwarded else caller.place
    message = f"{what}, and {who} is not allowed without one. {fix}"
    return Refusal(401, code, message, caller.place)


def expired_secret(refusal: Refusal) -> Refusal:
    """``refusal`` of a client whose client secret was valid once."""
    message = "The client secret has expired. Get a new one, and connect again."
    return replace(refusal, code="expired_client_secret", message=message)
