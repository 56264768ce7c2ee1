"""Client secrets: short-lived keys that a server-side program gets for a browser.

A secret contains its expiry and session, sealed, so the server stores none, and several servers
with the same key accept each other's. Secrets only open sessions.
``app.server.client_secrets_http`` hands them out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
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
    maker: str = ""
    """Names the key that it was made with; empty: not known."""


class ClientSecrets:
    """Makes and recognises secrets."""

    def __init__(self, key: str | None = None, now: Callable[[], float] = time.time) -> None:
        """``key`` is shared with other servers; ``None`` makes a new one."""
        self._seal = Seal(key, "client secret")
        self._now = now
        """The wall clock in seconds."""

    def issue(
        self, lasts_s: int, session: Mapping[str, Any], maker: str = ""
    ) -> tuple[str, ClientSecret]:
        """A new secret and its value. Raises ``ApiError`` if the session is too large for one."""
        secret = ClientSecret(int(self._now()) + lasts_s, session, maker)
        value = PREFIX.decode() + self._seal.close([secret.expires_at, session, maker])
        if len(value) > MAX_CHARS:
            raise ApiError(
                400,
                "session_too_large",
                f"A client secret with this session would have {len(value)} characters, and "
                f"headers take {MAX_CHARS}. Shorten the session, or let the client send the rest "
                "in a session.update.",
                "session",
            )
        return value, secret

    def find(self, keys: tuple[bytes, ...]) -> ClientSecret | None:
        """The valid secret among ``keys``."""
        now = self._now()
        return next((secret for secret in self._ours(keys) if now < secret.expires_at), None)

    def expired(self, keys: tuple[bytes, ...]) -> bool:
        """Whether ``keys`` holds a secret of ours, and none that is still valid."""
        return self.find(keys) is None and any(True for _ in self._ours(keys))

    def _ours(self, keys: tuple[bytes, ...]) -> Iterator[ClientSecret]:
        for key in keys:
            fields = self._seal.open(key[len(PREFIX) :]) if key.startswith(PREFIX) else None
            if fields is not None:
                yield ClientSecret(*fields)
