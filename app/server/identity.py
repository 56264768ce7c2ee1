"""Who a client seems to be, so that it can be recognised when it comes back."""

from __future__ import annotations

import json
from dataclasses import dataclass

from app.access.client_secrets import ClientSecret
from app.access.policy import Caller, digest


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client seems to be. ``key`` is a SHA-256: the key itself is not kept."""

    key: bytes
    address: str


def identity_of(caller: Caller, secret: ClientSecret | None = None) -> Identity | None:
    """Who a client seems to be; ``None`` if it cannot be recognised again: it has no key, or it
    comes through a proxy, whose address many clients share. All client ``secret``s that one key
    makes for the same session name the same client, since each is short-lived."""
    if not caller.keys or caller.address is None or caller.forwarded:
        return None
    # No key contains a zero byte, so joined keys cannot be confused with others, or with a maker.
    key = b"\0".join(caller.keys)
    if secret is not None and secret.maker:
        key = f"\0{secret.maker}\0{json.dumps(secret.session, sort_keys=True)}".encode()
    return Identity(digest(key), str(caller.address))


def maker_of(caller: Caller) -> str:
    """Names the key, or else the address, of a client that asks for a client secret."""
    return digest(b"\0".join(caller.keys) or caller.place.encode()).hex()[:32]
