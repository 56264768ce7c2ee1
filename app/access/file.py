"""The owner's own list of addresses and keys: ``reachy-voice allow`` and ``key`` write it, a
running server reads it again whenever it has changed.

JSON, mode 0600. Keys are stored as SHA-256 digests.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.access.policy import Network, digest, parse_network
from app.owner_file import OwnerFile
from pipeline.errors import ReachyVoiceError

KEY_PREFIX = "rv_"
KEY_BYTES = 32
"""Bytes of randomness in a key: too many to recover it from its digest."""


class WrongAccess(ReachyVoiceError):
    """A mistake in what a person asked for."""

    exit_code = 2


NetworkText = Annotated[str, AfterValidator(lambda text: str(parse_network(text)))]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class AllowedAddress(_Entry):
    network: NetworkText
    """In CIDR."""
    note: str = ""
    added: str = ""
    """A date in ISO 8601."""


class StoredKey(_Entry):
    name: Annotated[str, Field(min_length=1)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """The digest of the key, in hex."""
    created: str = ""
    admin: bool = False
    """Whether it also opens the console."""


class AccessList(_Entry):
    """The whole file. ``version`` is raised when older servers must not read it."""

    version: Annotated[int, Field(ge=1, le=1)] = 1
    addresses: tuple[AllowedAddress, ...] = ()
    keys: tuple[StoredKey, ...] = ()

    def networks(self) -> list[Network]:
        return [parse_network(entry.network) for entry in self.addresses]

    def digests(self, *, admin: bool = False) -> list[bytes]:
        """Digests of the ordinary keys, or of the admins'."""
        return [bytes.fromhex(key.sha256) for key in self.keys if key.admin is admin]

    # --- changes: each returns a new list --------------------------------------------------------

    def with_address(self, network: Network, note: str | None) -> AccessList:
        """Replaces an entry with the same network; if ``note`` is ``None``, the old note stays."""
        if note is None:
            notes = (entry.note for entry in self.addresses if entry.network == str(network))
            note = next(notes, "")
        entry = AllowedAddress(network=str(network), note=note, added=_today())
        return self.model_copy(
            update={"addresses": (*self.without_address(network).addresses, entry)}
        )

    def without_address(self, network: Network) -> AccessList:
        others = tuple(entry for entry in self.addresses if entry.network != str(network))
        return self.model_copy(update={"addresses": others})

    def with_key(self, name: str, key: str, *, admin: bool = False) -> AccessList:
        """Raises ``WrongAccess`` if the name is taken."""
        if name in {key.name for key in self.keys}:
            fix = f"Choose another name, or remove it first: reachy-voice key rm {quote(name)}"
            raise WrongAccess(f"There is a key called {name!r} already", fix=fix)
        sha256 = digest(key.encode()).hex()
        entry = StoredKey(name=name, sha256=sha256, created=_today(), admin=admin)
        return self.model_copy(update={"keys": (*self.keys, entry)})

    def without_key(self, name: str) -> AccessList:
        """Raises ``WrongAccess`` if there is no such key."""
        others = tuple(key for key in self.keys if key.name != name)
        if len(others) == len(self.keys):
            fix = "reachy-voice key list shows which there are"
            raise WrongAccess(f"There is no key called {name!r}", fix=fix)
        return self.model_copy(update={"keys": others})


def new_key(name: str) -> str:
    """A key that cannot be guessed. Raises ``WrongAccess`` if it cannot be called ``name``."""
    if not name.isprintable() or not name.strip() or name.startswith("-"):
        why = "it must be one line of text that is not blank and does not begin with a dash"
        fix = "For example: reachy-voice key new laptop"
        raise WrongAccess(f"A key cannot be called {name!r}", why=why, fix=fix)
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


class AccessFile(OwnerFile[AccessList]):
    def __init__(self, path: Path) -> None:
        repair = "`reachy-voice allow` each robot again"
        super().__init__(path, AccessList(), "The list of who may connect", repair)
