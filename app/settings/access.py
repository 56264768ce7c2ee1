"""Check the values of the ``access`` section; each key becomes a digest as it is read.

No settings object, error message or listing ever holds a key.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, SecretStr

from app.access.policy import canonical_origin, digest, split_host

SHORTEST_KEY = 16
"""Characters. Guessing a random key of this length takes years at 100 attempts a second."""

SHORTEST_SHARED_KEY = 32
"""Characters."""

_HASHED = "sha256:"
_REFUSED = "(hidden)"


def _digests(given: object) -> object:
    """Keys as ``sha256:HEX``; a single key counts as a list, so that an environment
    variable can hold one."""
    if isinstance(given, str) and given:
        given = [given]
    if not isinstance(given, list):
        return (_REFUSED,)
    if not all(isinstance(key, str) and len(key) >= SHORTEST_KEY for key in given):
        return (_REFUSED,)
    return tuple(_HASHED + digest(key.encode()).hex() for key in given)


def _usable(digests: tuple[str, ...]) -> tuple[str, ...]:
    if _REFUSED in digests:
        raise ValueError(
            f"must be a list of strings of at least {SHORTEST_KEY} characters each; put "
            "quotes around keys of digits only"
        )
    return digests


def _hidden(digests: tuple[str, ...]) -> list[str]:
    return [_REFUSED] * len(digests)


def _shared_key(given: object) -> object:
    if not isinstance(given, SecretStr | str) or len(given) < SHORTEST_SHARED_KEY:
        raise ValueError(
            f"must be a text of at least {SHORTEST_SHARED_KEY} characters; put quotes around one "
            "of digits only"
        )
    return given


def _origin(text: str) -> str:
    origin = canonical_origin(text)
    if origin is None:
        raise ValueError("must be the origin of a web page, as in http://localhost:3000")
    return origin


def _host(text: str) -> str:
    place = split_host(text)
    if place is None or place[1]:
        raise ValueError("must be a host name without a port, as in reachy.example.org")
    return place[0]


OriginText = Annotated[str, AfterValidator(_origin)]
HostText = Annotated[str, AfterValidator(_host)]

KeyDigests = Annotated[
    tuple[str, ...],
    AfterValidator(_usable),
    BeforeValidator(_digests, json_schema_input_type=list[str]),
    PlainSerializer(_hidden),
    Field(repr=False),
]
"""Users write keys; only digests are kept, and neither is ever shown."""

SharedKey = Annotated[
    SecretStr, BeforeValidator(_shared_key), Field(min_length=SHORTEST_SHARED_KEY)
]


def key_bytes(digests: Any) -> tuple[bytes, ...]:
    """The digests as ``app.access.policy.Rules`` compares them."""
    return tuple(bytes.fromhex(text.removeprefix(_HASHED)) for text in digests)
