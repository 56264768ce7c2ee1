"""Client secrets: short-lived keys that a server-side program gets for a browser.

A secret holds its own expiry and session, sealed. So the server stores none, and several servers
with the same key accept each other's. They open WebSockets only.
``app.server.client_secrets_http`` hands them out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.access.api_errors import ApiError
from app.access.seal import Seal

PREFIX = b"ek_"

MAX_CHARS = 7680
"""Longest secret: WebSocket servers take 8 KiB in a header."""


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """One secret. ``expires_at`` is seconds since the epoch."""

    expires_at: int
    session: Mapping[str, Any]
    """Session fields of the GA dialect as its maker gave them; empty: none."""


class ClientSecrets:
    """Makes and recognises secrets. ``key``: shared with other servers; ``None``: a new one.
    ``now`` is the wall clock in seconds."""

    def __init__(self, key: str | None = None, now: Callable[[], float] = time.time) -> None:
        self._seal = Seal(key, "client secret")
        self._now = now

    def issue(self, lasts_s: int, session: Mapping[str, Any]) -> tuple[str, ClientSecret]:
        """A new secret and its value. Raises ``ApiError`` if the session is too large for one."""
        made = ClientSecret(int(self._now()) + lasts_s, session)
        value = PREFIX.decode() + self._seal.close([made.expires_at, session])
        if len(value) > MAX_CHARS:
            raise ApiError(
                400,
                "session_too_large",
                f"A client secret with this session would have {len(value)} characters, and "
                f"headers take {MAX_CHARS}. Shorten the session, or let the client send the rest "
                "in a session.update.",
                "session",
            )
        return value, made

    def find(self, keys: tuple[bytes, ...]) -> ClientSecret | None:
        """The valid secret among ``keys``."""
        for key in keys:
            opened = self._seal.open(key[len(PREFIX) :]) if key.startswith(PREFIX) else None
            if opened is not None and self._now() < opened[0]:
                return ClientSecret(*opened)
        return None
