"""Client secrets: short-lived keys that a server-side program gets for a browser.

They live in memory only and open WebSockets only. ``app.server.client_secrets_http`` hands them
out.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.access.api_errors import ApiError
from app.access.policy import digest, matches

MAX_SECRETS = 256
"""Most secrets at a time. Each attempt to connect is compared with all of them."""

MAX_OF_ONE = 32
"""Most secrets per address, so that no client takes all of them."""

PREFIX = "ek_"


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """One secret. ``expires_at`` is seconds since the epoch."""

    digest: bytes
    maker: str
    """The address of the client that made it."""
    expires_at: int
    session: Mapping[str, Any]
    """Session fields of the GA dialect as its maker gave them; empty: none."""


class ClientSecrets:
    """All unexpired secrets. ``now`` is the wall clock in seconds."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._open: list[ClientSecret] = []

    def issue(
        self, lasts_s: int, session: Mapping[str, Any], maker: str
    ) -> tuple[str, ClientSecret]:
        """A new secret and its value, which is not stored. Raises ``ApiError``. ``maker``: the
        address of the client that requests it."""
        self._drop_expired()
        own = [secret for secret in self._open if secret.maker == maker]
        if len(own) >= MAX_OF_ONE:
            raise self._too_many(own, "of your address ")
        if len(self._open) >= MAX_SECRETS:
            raise self._too_many(self._open, "")
        value = PREFIX + secrets.token_urlsafe(32)
        made = ClientSecret(digest(value.encode()), maker, int(self._now()) + lasts_s, session)
        self._open.append(made)
        return value, made

    def _too_many(self, they: list[ClientSecret], whose: str) -> ApiError:
        wait_s = min(secret.expires_at for secret in they) - int(self._now())
        return ApiError(
            429,
            "rate_limit_exceeded",
            f"{len(they)} client secrets {whose}are open. The next one expires in {wait_s} s; "
            "set expires_after.seconds for shorter ones.",
            headers={"Retry-After": str(wait_s)},
        )

    def find(self, keys: tuple[bytes, ...]) -> ClientSecret | None:
        """The secret that one of ``keys`` matches."""
        self._drop_expired()
        found = matches(keys, (secret.digest for secret in self._open))
        return next((s for s, same in zip(self._open, found, strict=True) if same), None)

    def __len__(self) -> int:
        return len(self._open)

    def _drop_expired(self) -> None:
        now = self._now()
        self._open = [secret for secret in self._open if now < secret.expires_at]
