"""Finding and being found by mDNS (RFC 6762) and DNS-SD (RFC 6763): robots, and this server.

``zeroconf`` is imported only when needed: a server on loopback opens no mDNS socket.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import ipaddress
import logging
import re
import socket
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from app.access.policy import is_loopback
from app.server.address_changes import address_changes
from app.setup.place import USUAL_PORT
from pipeline.errors import ReachyVoiceError, text_of

if TYPE_CHECKING:
    from zeroconf import ServiceInfo, ServiceStateChange, Zeroconf
    from zeroconf.asyncio import AsyncZeroconf

log = logging.getLogger("reachy_voice.discovery")

ROBOTS = "_reachy-mini._tcp"
"""Service announced by a Reachy Mini's daemon (reachy-mini 1.13.0, ``utils/discovery.py``)."""

VOICES = "_reachy-voice._tcp"
"""Service announced by this server."""

PATH = "/v1/realtime"
MAX_FOUND = 256
"""Most services of one kind; no honest network has more."""

RESOLVE_S = 1.5
"""Time-out for one service's port, address and texts; a local network answers in milliseconds."""

LONGEST_LABEL_BYTES = 63
"""RFC 1035, 2.3.4."""

DISCARD = 9
"""Any port will do: connecting a datagram socket sends nothing."""

Interfaces = Sequence[str]
"""Addresses of interfaces; empty: all."""


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    host: str
    port: int
    addresses: tuple[str, ...] = ()
    """Likeliest first, in the form that a socket takes."""
    properties: Mapping[str, str] = field(default_factory=dict)


# --- looking -----------------------------------------------------------------------------------


async def find(
    service: str, timeout_s: float, interfaces: Interfaces = (), *, enough: int | None = None
) -> list[Service]:
    """The machines that announce ``service`` (as ``_reachy-mini._tcp``) within ``timeout_s``, by
    name. With ``enough``, returns as soon as that many are found.

    Returns an empty list if the network allows no multicast; network errors are not raised.
    """
    try:
        zeroconf = await _open(interfaces)
    except OSError as error:
        log.debug("no mDNS here: %s", error)
        return []
    try:
        return await _browse(zeroconf, f"{service}.local.", timeout_s, enough)
    finally:
        await zeroconf.async_close()


async def _browse(
    zeroconf: AsyncZeroconf, kind: str, timeout_s: float, enough: int | None
) -> list[Service]:
    from zeroconf import ServiceStateChange
    from zeroconf.asyncio import AsyncServiceBrowser

    found: dict[str, Service] = {}
    asked: set[str] = set()
    complete = asyncio.Event()
    async with asyncio.TaskGroup() as asking:

        async def ask(name: str) -> None:
            one = await _resolve(zeroconf, kind, name)
            if one is None:
                asked.discard(name)  # it may announce itself again
                return
            found[name] = one
            if enough is not None and len(found) >= enough:
                complete.set()

        def changed(
            zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
        ) -> None:
            if state_change is ServiceStateChange.Removed:
                found.pop(name, None)
                asked.discard(name)
            elif name not in asked and len(asked) < MAX_FOUND:
                asked.add(name)
                asking.create_task(ask(name))

        browser = AsyncServiceBrowser(zeroconf.zeroconf, [kind], handlers=[changed])
        try:
            async with asyncio.timeout(timeout_s):
                await complete.wait()  # mDNS never says that an answer is the last
        except TimeoutError:
            pass
        finally:
            await browser.async_cancel()
    return sorted(found.values(), key=lambda one: one.name)


async def _resolve(zeroconf: AsyncZeroconf, kind: str, name: str) -> Service | None:
    from zeroconf import Error
    from zeroconf.asyncio import AsyncServiceInfo

    # The robot's daemon sends no address record, only texts (seen: 1.13.0): the request
    # then fails, although port and texts arrived.
    try:
        info = AsyncServiceInfo(kind, name)
        await info.async_request(zeroconf.zeroconf, RESOLVE_S * 1000)
    except Error as error:  # a service can have any name
        log.debug("%r cannot be resolved: %s", name, type(error).__name__)
        return None
    if info.port is None:
        return None
    texts = {
        key.decode("utf-8", "replace"): (value or b"").decode("utf-8", "replace")
        for key, value in info.properties.items()
    }
    own = [texts["address"]] if _is_elsewhere(texts.get("address", "")) else []
    addresses = dict.fromkeys([*own, *info.parsed_scoped_addresses()])
    host = (info.server or "").removesuffix(".")
    return Service(
        name.removesuffix(f".{kind}"),
        host,
        info.port,
        tuple(sorted(addresses, key=_likelihood)),
        texts,
    )


def _is_address(text: str) -> bool:
    try:
        return not ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return False


def _is_elsewhere(text: str) -> bool:
    """Whether an address is valid on this machine. A robot that has no network yet announces
    127.0.0.1; its interface names mean nothing here."""
    return _is_address(text) and "%" not in text and not ipaddress.ip_address(text).is_loopback


def _likelihood(address: str) -> tuple[bool, bool]:
    """Sort key: IPv4 first, because servers listen on 0.0.0.0; link-local, which needs a zone,
    last."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return parsed.version == 6, parsed.is_link_local


async def addresses_of(host: str, timeout_s: float, interfaces: Interfaces = ()) -> list[str]:
    """Resolve a ``.local`` name by mDNS, for machines whose resolver does not."""
    try:
        zeroconf = await _open(interfaces)
    except OSError:
        return []
    from zeroconf import AddressResolver, Error  # type: ignore[attr-defined]

    try:
        resolver = AddressResolver(f"{host.rstrip('.')}.")
        await resolver.async_request(zeroconf.zeroconf, timeout_s * 1000)
        return sorted(resolver.parsed_scoped_addresses(), key=_likelihood)
    except Error as error:  # a user can type any name
        log.debug("%r cannot be looked up: %s", host, type(error).__name__)
        return []
    finally:
        await zeroconf.async_close()


def source_address(address: str) -> str | None:
    """Our source address for packets to ``address``; ``None``: there is no route. Sends nothing.

    A link-local IPv6 address does not count, because the robot could use it only with the name of
    one of its own interfaces.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, DISCARD))
            ours = str(probe.getsockname()[0])
    except OSError:
        return None
    ip = ipaddress.ip_address(ours.partition("%")[0])
    return None if ip.version == 6 and ip.is_link_local else ours


# --- being found -------------------------------------------------------------------------------


@asynccontextmanager
async def announce(
    port: int,
    host: str,
    tls: bool = False,
    *,
    service: str = "",
    interfaces: Interfaces = (),
) -> AsyncIterator[ServiceInfo]:
    """Announce ``service``, this server's own by default, while the context is open.

    ``host`` is the address that the server listens on. A name already taken by another machine gets
    a number. Says goodbye at the end. Raises ``ReachyVoiceError``.
    """
    try:
        addresses = await asyncio.to_thread(_listening, host)
        zeroconf = await _open(interfaces or ([host] if _is_address(host) else []))
    except OSError as error:
        raise _cannot(error) from error
    from zeroconf import Error

    try:
        info = await asyncio.to_thread(_info, port, addresses, tls, service)
        try:
            await (await zeroconf.async_register_service(info, allow_name_change=True))
        except (OSError, Error) as error:
            raise _cannot(error) from error
        yield info
    finally:
        await zeroconf.async_close()  # which says goodbye


async def stay_announced(port: int, host: str, tls: bool, service: str = "") -> None:
    """Announce until cancelled, following changes of network. A server on loopback is never
    announced; if announcing fails, the reason is logged and the server works on."""
    if is_loopback(host):
        return
    async with address_changes() as changed:
        while True:
            try:
                async with announce(port, host, tls, service=service) as info:
                    addresses = info.parsed_addresses()
                    where = ", ".join(addresses) or "no address"
                    log.info("found by mDNS as %r (%s) at %s", info.get_name(), info.type, where)
                    while set(addresses) == set(await asyncio.to_thread(_listening, host)):
                        await changed.wait()
                        changed.clear()
            except (ReachyVoiceError, OSError) as error:
                log.warning("%s", error)
                await changed.wait()  # with another address it may work
                changed.clear()


def _cannot(error: Exception) -> ReachyVoiceError:
    return ReachyVoiceError(
        "This server is not announced by mDNS",
        why=text_of(error),
        fix="Robots still reach it by its address; server.announce: false stops trying",
    )


def _info(port: int, addresses: Sequence[str], tls: bool, service: str) -> ServiceInfo:
    from zeroconf import ServiceInfo

    kind = f"{service or VOICES}.local."
    machine = machine_name(socket.gethostname())
    return ServiceInfo(
        kind,
        f"{_instance(machine, port)}.{kind}",
        port=port,
        parsed_addresses=list(addresses),
        properties={"path": PATH, "version": version("reachy-voice"), "tls": "1" if tls else "0"},
        server=f"{own_host()}.",
    )


def own_host() -> str:
    """The ``.local`` name that this server announces for its addresses, fixed for this process.

    Not the machine's own name: its system announces that, with the right address on each network.
    If we did too, clients could get a container bridge's address, and none after our goodbye. Two
    machines may share a name (``raspberrypi``), but not a network card.
    """
    card = hashlib.sha256(uuid.getnode().to_bytes(6, "big")).hexdigest()[:6]
    before = "reachy-voice-"
    machine = machine_name(socket.gethostname())[: LONGEST_LABEL_BYTES - len(f"{before}-{card}")]
    return f"{before}{machine}-{card}.local".lower()


def machine_name(hostname: str) -> str:
    """The first label of a host name, made valid for ``.local``."""
    label = re.sub(r"[^A-Za-z0-9-]+", "-", hostname.partition(".")[0]).strip("-")
    return label[:LONGEST_LABEL_BYTES] or "reachy-voice"


def _instance(machine: str, port: int) -> str:
    """The name to announce. Two servers on one machine do not see each other's conflicts (a packet
    to the shared port 5353 reaches one of them), so their names differ from the start."""
    before, after = "reachy-voice on ", "" if port == USUAL_PORT else f", port {port}"
    room = LONGEST_LABEL_BYTES - len(before + after + "-99")  # the number that a conflict adds
    return before + machine[:room] + after


def _listening(host: str) -> list[str]:
    """This machine's addresses at which a server on ``host`` can be reached; raises ``OSError``."""
    import ifaddr

    if _is_address(host):
        return [host]
    every = [ip for adapter in ifaddr.get_adapters() for ip in adapter.ips]
    found = [str(ip.ip) for ip in every if ip.is_IPv4]
    if host != "0.0.0.0":
        found += [str(ip.ip[0]) for ip in every if not ip.is_IPv4]
    parsed = map(ipaddress.ip_address, found)
    # A link-local IPv6 address is useless without the name of the other side's interface.
    usable = [ip for ip in parsed if not (ip.is_loopback or (ip.version == 6 and ip.is_link_local))]
    return sorted(map(str, dict.fromkeys(usable)), key=_likelihood)


async def _open(interfaces: Interfaces) -> AsyncZeroconf:
    """Returns only once its sockets are open: cancelling earlier would leak them. Raises
    ``OSError``."""
    await asyncio.to_thread(importlib.import_module, "zeroconf.asyncio")  # reads many files
    # Its warnings are tracebacks about interfaces that come and go; we log what matters.
    logging.getLogger("zeroconf").setLevel(logging.CRITICAL)
    import ifaddr
    from zeroconf import InterfaceChoice, NotRunningException
    from zeroconf.asyncio import AsyncZeroconf

    if not interfaces and not any(
        ip.is_IPv4 for adapter in ifaddr.get_adapters() for ip in adapter.ips
    ):
        raise OSError("no interface has an IPv4 address")  # zeroconf would leak a socket first
    zeroconf = AsyncZeroconf(interfaces=list(interfaces) or InterfaceChoice.All)
    starting = asyncio.create_task(zeroconf.zeroconf.async_wait_for_start())
    try:
        await asyncio.shield(starting)
    except BaseException as error:
        await asyncio.wait({starting})
        await zeroconf.async_close()
        if isinstance(error, NotRunningException):
            raise OSError("mDNS could not be started") from error
        raise
    return zeroconf
