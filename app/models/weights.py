"""The weights on this machine.

In the cache directory: ``weights/NAME/`` (complete and checked), ``staging/`` and ``downloads/``
(unfinished, kept so that a pull can resume), ``pull.lock``. ``app.models.pull`` fills
it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from app.file_lock import locked
from app.models.catalogue import Catalogue
from app.models.download import WrongContent, check_file
from app.settings.model import Settings
from pipeline.engines.registry import EngineOptions
from pipeline.errors import WeightsError

State = Literal["present", "absent", "damaged"]


def open_cache(settings: Settings, environ: Mapping[str, str] = os.environ) -> WeightsCache:
    """The cache and catalogue that the settings name. Raises ``ConfigError``."""
    return WeightsCache(settings.paths.cache(environ), Catalogue.load(settings.paths.catalogue))


class WeightsCache:
    """The cache of weights in ``directory``."""

    def __init__(self, directory: Path, catalogue: Catalogue | None = None) -> None:
        self.directory = directory
        self.catalogue = catalogue or Catalogue.load()

    def home(self, name: str) -> Path:
        """Where the weights are, or would be."""
        entry = self.catalogue[name]
        return entry.file if entry.file is not None else self.directory / "weights" / name

    def path(self, name: str) -> Path:
        """Directory with the files of ``name``. Raises ``WeightsError`` if they are not there."""
        if (state := self.state(name)) != "present":
            raise _not_here([name], state)
        return self.home(name)

    def of(self, options: EngineOptions) -> Path | None:
        """``path`` of an engine's weights, if it has any."""
        return self.path(options.weights_name) if options.weights_name else None

    def state(self, name: str) -> State:
        """A cheap check: do all files exist with the right size?"""
        home = self.home(name)
        checks = [_size_is_right(home / f.local_name, f.size) for f in self.catalogue[name].files]
        if all(checks):
            return "present"
        return "damaged" if any(size is not None for size in checks) else "absent"

    def missing(self, names: Iterable[str]) -> list[str]:
        """The ``names`` that must be pulled."""
        return [name for name in names if self.state(name) != "present"]

    def check(self, names: Iterable[str]) -> None:
        """The cheap check for several. Raises ``WeightsError`` with the names that fail."""
        if missing := self.missing(names):
            raise _not_here(missing, self.state(missing[0]))

    def verify(self, names: Iterable[str]) -> dict[str, str]:
        """Hash every byte. Name -> problem, empty if there is none."""
        return {name: self._wrong_with(name) for name in names}

    def _wrong_with(self, name: str) -> str:
        if self.state(name) == "absent":
            return "not here"
        for file in self.catalogue[name].files:
            path = self.home(name) / file.local_name
            if not path.is_file():
                return f"{file.local_name} is missing"
            try:
                check_file(path, file.local_name, file.size, file.sha256)
            except WrongContent as error:
                return f"{file.local_name}: {error.why}"
        return ""

    def remove(self, names: Iterable[str]) -> int:
        """Delete from the cache, including unfinished files; returns the bytes freed."""
        entries = {name: self.catalogue[name] for name in names}
        for name, entry in entries.items():
            if entry.file is not None:
                raise WeightsError(
                    f"{name} is not in the cache",
                    why=f"the catalogue uses your own files in {entry.file}",
                    fix="Delete them yourself if you want to",
                )
        with changing(self.directory):
            homes = (self.directory / top / name for name in entries for top in _PLACES)
            return sum(_delete(home) for home in homes)


_PLACES = ("weights", "staging")


def _size_is_right(path: Path, size: int | None) -> bool | None:
    """Whether the file has this size; ``None``: it is absent."""
    if not path.is_file():
        return None
    return size is None or path.stat().st_size == size


def _not_here(names: list[str], state: State) -> WeightsError:
    word = "damaged" if state == "damaged" else "not here"
    return WeightsError(
        f"The weights {', '.join(names)} are {word}",
        fix=f"Run: reachy-voice models pull {' '.join(names)}",
    )


def _delete(directory: Path) -> int:
    if not directory.exists():
        return 0
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    shutil.rmtree(directory)
    return size


@contextmanager
def changing(directory: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let one process at a time change the cache; others call ``waiting`` and wait. Raises
    ``WeightsError`` if the cache cannot be written."""
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(directory / "pull.lock", waiting))
        except OSError as error:
            raise WeightsError(
                f"The cache {directory} cannot be written",
                why=str(error.strerror),
                fix="Set paths.cache_dir to a directory of yours",
            ) from error
        yield
