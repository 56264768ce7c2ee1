"""A small JSON file that belongs to the owner of this machine: commands write it, a running server
reads it again. Mode 0600, replaced in one step."""

from __future__ import annotations

import logging
import re
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from app.file_lock import locked
from app.write_whole import write_whole
from pipeline.errors import ConfigError

ContentT = TypeVar("ContentT", bound=BaseModel)

logger = logging.getLogger(__name__)

OTHERS_MAY_WRITE, OTHERS_MAY_READ = 0o022, 0o044


def plain_name(name: str) -> str:
    """The name, however its accents and spaces were typed."""
    return re.sub(" +", " ", unicodedata.normalize("NFKC", name)).strip()


def same_name(one: str, other: str) -> bool:
    """Whether they are one name, however its accents, spaces and capitals were typed."""
    return plain_name(one).casefold() == plain_name(other).casefold()


class OwnerFile(Generic[ContentT]):
    """Reads and writes on the caller's thread: do not call it on the event loop."""

    def __init__(
        self, path: Path, empty: ContentT, name: str, repair: str, forbidden: int = OTHERS_MAY_WRITE
    ) -> None:
        """``empty``: the content if there is no file. ``name`` and ``repair`` are for errors: "The
        list of who may connect", and how to make the file again. ``forbidden``: permissions with
        which the file is not used."""
        self.path = path
        self._empty = empty
        self._name = name
        self._repair = repair
        self._forbidden = forbidden
        self._signature: tuple[int, ...] | None = None
        self._last = empty
        self._reading = threading.Lock()

    def read(self) -> ContentT:
        """Raises ``ConfigError``."""
        try:
            state = self.path.stat()
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return self._empty
        except (OSError, UnicodeDecodeError) as error:
            raise self._error("cannot be read", str(error), f"Look at {self.path}") from error
        if state.st_mode & self._forbidden:
            verb = "write to" if state.st_mode & OTHERS_MAY_WRITE else "read"
            fix = f"If every line of it is yours: chmod 600 {self.path}"
            raise self._error("is not used", f"other users of this machine can {verb} it", fix)
        try:
            return type(self._empty).model_validate_json(text)
        except ValidationError as errors:
            first = errors.errors(include_url=False, include_input=False)[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".lstrip(": ")
            fix = f"Repair {self.path}, or delete it and {self._repair}"
            raise self._error("cannot be understood", why, fix) from None

    def current(self) -> ContentT:
        """Like ``read``, but only if the file has changed; a bad file is logged and counts as
        empty."""
        with self._reading:  # otherwise a slow thread could store an old list with a new signature
            signature = self._sign()
            if signature != self._signature:
                try:
                    self._last = self.read()
                except ConfigError as error:
                    logger.error("%s", error)
                    self._last = self._empty
                self._signature = signature
            return self._last

    def change(self, edit: Callable[[ContentT], ContentT]) -> ContentT:
        """Replace the content with what ``edit`` returns, under a lock.

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

    def _write(self, new: ContentT) -> None:
        text = new.model_dump_json(indent=2, exclude_defaults=True)
        write_whole(self.path, text + "\n", 0o600)

    def _sign(self) -> tuple[int, ...]:
        try:
            state = self.path.stat()
        except OSError:
            return ()
        return (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)

    def _error(self, what: str, why: str, fix: str) -> ConfigError:
        return ConfigError(f"{self._name} {what}", why=why, fix=fix)
