"""The owner's own list of addresses and keys: ``reachy-voice allow`` and ``key`` write it, a
running server reads it again whenever it has changed.

JSON, mode 0600. Keys are stored as SHA-256 digests.
"""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from app.access.policy import Network, digest, parse_network
from app.file_lock import locked
from pipeline.errors import ConfigError, ReachyVoiceError

KEY_PREFIX = "rv_"
KEY_BYTES = 32
"""Bytes of randomness in a key: too many to recover it from its digest."""

_OTHERS_MAY_WRITE = 0o022

logger = logging.getLogger(__name__)


class WrongAccess(ReachyVoiceError):
    """A mistake in what a person asked for."""

    exit_code = 2


def _network_text(text: str) -> str:
    return str(parse_network(text))


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class AllowedAddress(_Entry):
    """``network`` in CIDR; ``added`` is a date in ISO 8601."""

    network: Annotated[str, AfterValidator(_network_text)]
    note: str = ""
    added: str = ""


class StoredKey(_Entry):
    """``sha256`` is the digest of the key in hex. ``admin``: it also opens the console."""

    name: Annotated[str, Field(min_length=1)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    created: str = ""
    admin: bool = False


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
        """Replaces an entry with the same network; ``note`` ``None`` keeps the old note."""
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


# --- the file ----------------------------------------------------------------------------------


class AccessFile:
    """Reads and writes on the caller's thread: do not call it on the event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._signature: tuple[int, ...] | None = None
        self._last = AccessList()
        self._reading = threading.Lock()

    def read(self) -> AccessList:
        """The list in the file; empty if there is no file. Raises ``ConfigError``."""
        try:
            state = self.path.stat()
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return AccessList()
        except (OSError, UnicodeDecodeError) as error:
            raise self._error("cannot be read", str(error), f"Look at {self.path}") from error
        if state.st_mode & _OTHERS_MAY_WRITE:
            fix = f"If every line of it is yours: chmod 600 {self.path}"
            raise self._error("is not used", "other users of this machine can write to it", fix)
        try:
            return AccessList.model_validate_json(text)
        except ValidationError as errors:
            first = errors.errors(include_url=False, include_input=False)[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".lstrip(": ")
            fix = f"Repair {self.path}, or delete it and `reachy-voice allow` each robot again"
            raise self._error("cannot be understood", why, fix) from None

    def current(self) -> AccessList:
        """Like ``read``, but only if the file has changed; a bad file is logged and admits no
        client."""
        with self._reading:  # otherwise a slow thread could store an old list with a new signature
            signature = self._sign()
            if signature != self._signature:
                try:
                    self._last = self.read()
                except ConfigError as error:
                    logger.error("%s", error)
                    self._last = AccessList()
                self._signature = signature
            return self._last

    def change(self, edit: Callable[[AccessList], AccessList]) -> AccessList:
        """Replace the list with what ``edit`` returns, under a lock.

        Raises ``ConfigError``, and what ``edit`` raises; the file is then unchanged.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(self.path.with_suffix(".lock")):
                before = self.read()
                after = edit(before)
                if after != before:
                    self._write(after)
                return after
        except OSError as error:
            fix = f"Make {self.path.parent} writable for you"
            raise self._error("cannot be written", str(error), fix) from error

    def _write(self, new: AccessList) -> None:
        """Write atomically, and never readable by others meanwhile."""
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".access-")  # mode 0600
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(new.model_dump_json(indent=2, exclude_defaults=True) + "\n")
                file.flush()
                os.fsync(handle)
            os.replace(name, self.path)
        except BaseException:
            os.unlink(name)
            raise

    def _sign(self) -> tuple[int, ...]:
        try:
            state = self.path.stat()
        except OSError:
            return ()
        return (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)

    def _error(self, what: str, why: str, fix: str) -> ConfigError:
        return ConfigError(f"The list of who may connect {what}", why=why, fix=fix)
