"""Who a client seems to be, so that it can be recognised when it comes back."""

from __future__ import annotations

from dataclasses import dataclass

from app.access.policy import Caller, digest


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client seems to be. ``key`` is a SHA-256: the key itself is not kept."""

    key: bytes
    address: str


def identity_of(caller: Caller) -> Identity | None:
    """Who a client seems to be; ``None`` if it cannot be recognised again: it has no key, or it
    comes through a proxy, whose address many clients share."""
    if not caller.keys or caller.address is None or caller.forwarded:
        return None
    # No key contains a zero byte, so the keys cannot run into each other.
    return Identity(digest(b"\0".join(caller.keys)), str(caller.address))
