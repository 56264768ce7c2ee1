"""Fetch one file over HTTP: resume, report, check, and never leave a wrong file behind."""

from __future__ import annotations

import errno
import hashlib
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pipeline.errors import WeightsError

if TYPE_CHECKING:
    import httpx

BLOCK_BYTES = 1 << 20
SPARE_BYTES = 64 << 20
"""Disk space that stays free for logs and temporary files."""
ATTEMPTS = 5
"""Give up after this many consecutive connections without a new byte."""


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` bytes (``None``: unknown) of ``label`` have arrived."""

    label: str
    done: int
    total: int | None


Report = Callable[[Progress], None]


def ignore_progress(_: Progress) -> None:
    """A report for callers without a screen."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file to fetch. ``size`` in bytes and ``sha256`` are checked if known."""

    url: str
    label: str
    size: int | None = None
    sha256: str | None = None
    headers: Mapping[str, str] | None = None
    refusal_fix: str = "Check the address and your credentials"
    """The next step after a refusal (HTTP 401 or 403)."""


class SourceRefusal(WeightsError):
    """The server cannot be reached this way, or refuses; another way may work."""


class WrongContent(WeightsError):
    """A file that is not the one the catalogue promises."""


class Fetcher:
    """An HTTP client that retries. Close it, or use it in a ``with``."""

    def __init__(
        self,
        *,
        timeout_s: float = 30,
        redirects: bool = True,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        import httpx

        self._client = httpx.Client(timeout=timeout_s, follow_redirects=redirects)
        self._sleep = sleep

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def fetch(self, remote: RemoteFile, target: Path, report: Report = ignore_progress) -> Path:
        """Download to ``target``, whose folder exists, resuming from ``target.part``.

        Raises ``WeightsError``. The part is kept after a lost connection and if something else is
        sent, and deleted after a wrong size or hash or a full disk.
        """
        part = target.with_name(target.name + ".part")
        resumed = part.exists()
        with full_disk_is_an_error(part, remote.label):
            try:
                self._fetch_all(remote, part, report)
                check_file(part, remote.label, remote.size, remote.sha256)
            except WrongContent:
                part.unlink(missing_ok=True)
                if not resumed:
                    raise
                # The old part may have been wrong: try once more from the start.
                return self.fetch(remote, target, report)
            return part.replace(target)

    def _fetch_all(self, remote: RemoteFile, part: Path, report: Report) -> None:
        import httpx

        failures, most = 0, _size(part)
        while True:
            try:
                self._fetch_some(remote, part, report)
                return
            except (httpx.HTTPError, httpx.InvalidURL, _TryAgain) as error:
                failures = failures + 1 if _size(part) <= most else 1
                most = max(most, _size(part))
                if failures >= ATTEMPTS:
                    raise _connection_lost(remote, error, _size(part)) from error
                self._sleep(min(8, 2 ** (failures - 2)) * random.uniform(0.8, 1.2))

    def _fetch_some(self, remote: RemoteFile, part: Path, report: Report) -> None:
        """Download from the end of ``part`` until the file or this connection ends."""
        start = _size(part)
        if start and start == remote.size:
            return
        # A compressed transfer would make byte ranges meaningless.
        headers = {**(remote.headers or {}), "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with self._client.stream("GET", remote.url, headers=headers) as response:
            start = _accepted_start(response, remote, start, part)
            total = _total(response, start)
            is_page = response.headers.get("content-type", "").startswith("text/html")
            if is_page or (remote.size and total not in (None, remote.size)):
                raise _other_answer(remote, "a web page" if is_page else f"{total:,} bytes")
            with part.open("r+b" if start else "wb") as file:
                file.seek(start)
                file.truncate()
                _copy(response, file, remote, start, total or remote.size, report)
        if total is None and _size(part) < (remote.size or 0):
            raise _TryAgain("the connection ended early")


class _TryAgain(Exception):
    """The server asks to wait (HTTP 429, 5xx) or to start over (416), or has left off."""


def _accepted_start(response: httpx.Response, remote: RemoteFile, start: int, part: Path) -> int:
    """The offset from which the server really sends. Raises if it sends nothing."""
    status = response.status_code
    if status == 206 and response.headers.get("content-range", "").startswith(f"bytes {start}-"):
        return start
    if status == 200:
        return 0
    if status in (206, 416):
        part.unlink(missing_ok=True)
        raise _TryAgain(f"the server cannot resume (HTTP {status})")
    if status == 429 or status >= 500:
        raise _TryAgain(f"the server answers HTTP {status}")
    what = f"{remote.label} cannot be downloaded"
    why = f"HTTP {status} for {response.url.copy_with(username=None, password=None, query=None)}"
    if status in (401, 403, 407):
        raise SourceRefusal(what, why=why, fix=remote.refusal_fix)
    raise WeightsError(what, why=why, fix="The catalogue entry may be out of date")


def _other_answer(remote: RemoteFile, sent: str) -> WeightsError:
    """Says nothing about the part, which stays."""
    return SourceRefusal(
        f"{remote.label} is not what the catalogue promises",
        why=f"{sent} came in its place{f' of {remote.size:,}' if remote.size else ''}",
        fix="See in a browser whether this network wants you to log in, then run the same command "
        "again; if that does not help, do not trust the source",
    )


def _total(response: httpx.Response, start: int) -> int | None:
    length = response.headers.get("content-length", "")
    return start + int(length) if length.isdigit() else None


def _copy(
    response: httpx.Response,
    file: BinaryIO,
    remote: RemoteFile,
    done: int,
    total: int | None,
    report: Report,
) -> None:
    report(Progress(remote.label, done, total))
    # Write blocks as they come, so that the part keeps them when the connection is lost.
    for block in response.iter_raw():
        done += len(block)
        if remote.size is not None and done > remote.size:
            raise _wrong_size(remote.label, done, remote.size)
        file.write(block)
        file.flush()
        report(Progress(remote.label, done, total))


# --- checks ------------------------------------------------------------------------------------


def sha256_of(path: Path) -> str:
    """Hexadecimal digest of a whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: Path, label: str, size: int | None, sha256: str | None) -> None:
    """Raise ``WrongContent`` unless the file has this size (bytes) and hash."""
    actual = path.stat().st_size
    if size is not None and actual != size:
        raise _wrong_size(label, actual, size)
    if sha256 is not None and (digest := sha256_of(path)) != sha256:
        raise WrongContent(
            f"{label} is not what the catalogue promises",
            why=f"its sha256 is {digest[:16]}..., expected {sha256[:16]}...",
            fix="It was discarded. Try again; if that does not help, do not trust the source",
        )


def _wrong_size(label: str, actual: int, expected: int) -> WrongContent:
    return WrongContent(
        f"{label} is not what the catalogue promises",
        why=f"it has {actual:,} bytes, expected {expected:,}",
        fix="It was discarded. Try again; if that does not help, do not trust the source",
    )


def require_space(directory: Path, size: int, label: str) -> None:
    """Raise ``WeightsError`` if the disk has no room for ``size`` more bytes."""
    free = shutil.disk_usage(directory).free
    if free < size + SPARE_BYTES:
        raise WeightsError(
            f"The disk has no room for {label}",
            why=f"{directory} has {megabytes(free)} free, {megabytes(size + SPARE_BYTES)} needed",
            fix="Free some space, or set paths.cache_dir to another disk",
        )


@contextmanager
def full_disk_is_an_error(partial: Path, label: str) -> Iterator[None]:
    """Turn ENOSPC into a ``WeightsError``, and delete the partial file at once."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        partial.unlink(missing_ok=True)
        raise WeightsError(
            f"The disk is full, {label} could not be written",
            why=str(error.strerror),
            fix="Free some space, or set paths.cache_dir to another disk",
        ) from error


def _connection_lost(remote: RemoteFile, error: Any, done: int) -> WeightsError:
    """If no bytes came, another way may work; otherwise the part is worth keeping."""
    kind = WeightsError if done else SourceRefusal
    rest = f"; {megabytes(done)} are kept" if done else ""
    return kind(
        f"{remote.label} cannot be downloaded",
        why=f"{error or type(error).__name__}{rest}",
        fix="Check the network and run the same command again: it resumes where it stopped",
    )


def megabytes(size: int) -> str:
    """Bytes for people, e.g. ``98.4 MB``."""
    return f"{size / 1e6:,.1f} MB"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
