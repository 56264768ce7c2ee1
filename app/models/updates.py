"""Updates of the models in use: which ones fit, where their results are kept, and which were bad.

In the cache: ``updates/DIGEST/`` (the model with this SHA-256), ``updates/record.json``.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from app.models.catalogue import Sha256
from app.models.delta import SUFFIX, BadDelta, Delta, apply_all, read_delta
from app.models.download import Report, sha256_of
from app.models.tensor_file import SUFFIXES
from app.models.weights import WeightsCache
from app.models.write_whole import write_whole
from pipeline.engines.registry import EngineOptions
from pipeline.errors import WeightsError

log = logging.getLogger("reachy_voice.updates")


class Update(BaseModel):
    """A delta: a line of an index. ``file``: its name, or its URL from that of the index."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(min_length=1, max_length=1000)
    size: int = Field(ge=0)
    sha256: Sha256
    base: Sha256
    result: Sha256


_Index = TypeAdapter(list[Update])


def read_index(text: str | bytes) -> list[Update]:
    """Raises ``WeightsError``."""
    try:
        return _Index.validate_json(text)
    except ValidationError as error:
        raise WeightsError(
            "The index of updates cannot be read",
            why=str(error.errors()[0]["msg"]),
            fix="Write it with `reachy-voice models delta --index`",
        ) from error


def add_to_index(index: Path, delta: Delta) -> None:
    """Raises ``WeightsError``."""
    known = read_index(index.read_bytes()) if index.exists() else []
    file = os.path.relpath(delta.path, index.parent)
    digest, info = sha256_of(delta.path), delta.info
    new = Update(
        file=file,
        size=delta.path.stat().st_size,
        sha256=digest,
        base=info.base_sha256,
        result=info.result_sha256,
    )
    lines = [*(each.model_dump() for each in known if each.file != file), new.model_dump()]
    write_whole(index, json.dumps(lines, indent=1))


def updates_in(folder: Path) -> list[tuple[str, str, Path]]:
    """Base, result and file of each delta that has arrived whole, the oldest first."""
    found = []
    files = (each for each in folder.glob(f"*{SUFFIX}") if each.is_file())
    for path in sorted(files, key=lambda each: each.stat().st_mtime_ns):
        try:
            info = read_delta(path).info
        except BadDelta as error:
            log.info("not used, or not yet: %s", error)
        else:
            found.append((info.base_sha256, info.result_sha256, path))
    return found


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of an engine's weights; ``folder``: of all of them, if the engine needs more of it."""

    path: Path
    folder: Path | None = None


def model_files(options: EngineOptions, cache: WeightsCache) -> list[ModelFile]:
    """The files of an engine that deltas can update."""
    own, name = getattr(options, "model_file", None), getattr(options, "weights", None)
    if own and Path(own).expanduser().is_absolute():
        found = [Path(own).expanduser()]
        return [ModelFile(path) for path in found if path.is_file()]
    folder = getattr(options, "model_dir", None) or (cache.home(name) if name else None)
    if folder is None:
        return []
    files = (each for each in sorted(Path(folder).rglob("*")) if each.suffix in SUFFIXES)
    whole = Path(folder) if hasattr(options, "model_dir") else None
    return [
        ModelFile(file, whole)
        for file in files
        if file.name == own or not (own or file.name.startswith("mmproj"))
    ]


class Updates:
    """What the record says. Blocks: it reads files."""

    def __init__(self, cache: WeightsCache) -> None:
        self._cache = cache
        self._folder = cache.directory / "updates"
        self._digests: dict[str, str] = {}
        self._bad: set[str] = set()
        self._current: dict[str, str] = {}
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            record = json.loads((self._folder / "record.json").read_text())
            self._bad.update(map(str, record["bad"]))
            self._current.update({str(key): str(of) for key, of in record["current"].items()})

    def updated(self, options: EngineOptions) -> EngineOptions:
        """Options with the newest good model, if the engine follows updates."""
        if getattr(options, "updates", None):
            for file in model_files(options, self._cache):
                if (digest := self._current.get(_key(file.path))) and self.result(file, digest):
                    return self.with_result(options, file, digest)
        return options

    def now(self, file: ModelFile) -> tuple[Path, str]:
        """The file that is used in its place, and its digest."""
        key = _key(file.path)
        if (digest := self._current.get(key)) and (path := self.result(file, digest)):
            return path, digest
        if key not in self._digests:
            self._digests[key] = sha256_of(file.path)
        return file.path, self._digests[key]

    def result(self, file: ModelFile, digest: str) -> Path | None:
        """The model with this digest, if it is here."""
        path = self._home(digest) / _inside(file)
        return path if path.is_file() else None

    def with_result(self, options: EngineOptions, file: ModelFile, digest: str) -> EngineOptions:
        home = self._home(digest)
        key, path = ("model_dir", home) if file.folder else ("model_file", home / _inside(file))
        return options.model_copy(update={key: str(path)})

    def chain(self, digest: str, known: Iterable[tuple[str, str, Any]]) -> list[tuple[str, Any]]:
        """Results and sources of the deltas that lead from ``digest`` to the newest model that
        was not bad; of two for one base, the later one."""
        after = {base: (result, source) for base, result, source in known}
        found: list[tuple[str, Any]] = []
        seen = {digest}
        while (step := after.get(digest)) and step[0] not in seen:
            digest = step[0]
            seen.add(digest)
            found.append(step)
        while found and found[-1][0] in self._bad:
            found.pop()
        return found

    def make(self, file: ModelFile, deltas: Sequence[Path], digest: str, report: Report) -> None:
        """Apply ``deltas`` beside the model in use. Raises ``WeightsError``."""
        if self.result(file, digest):
            return
        found = [read_delta(path) for path in deltas]
        if found[-1].info.result_sha256 != digest:
            raise BadDelta(f"{deltas[-1].name} is not used", why="it leads to another model")
        apply_all(found, self.now(file)[0], _mirror(file, self._home(digest)), report)

    def keep(self, file: ModelFile, digest: str, spent: Iterable[Path] = ()) -> None:
        """Use this model from now on; delete the others, and ``spent`` deltas that were fetched."""
        for delta in spent:
            if delta.parent == self._cache.directory / "downloads":
                delta.unlink(missing_ok=True)
        self._current[_key(file.path)] = digest
        self._write()
        for home in self._folder.iterdir():
            if home.is_dir() and home.name not in self._current.values():
                shutil.rmtree(home, ignore_errors=True)

    def reject(self, digest: str) -> None:
        """Never use this model again."""
        self._bad.add(digest)
        self._write()
        shutil.rmtree(self._home(digest), ignore_errors=True)

    def _home(self, digest: str) -> Path:
        return self._folder / digest

    def _write(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        record = {"bad": sorted(self._bad), "current": self._current}
        write_whole(self._folder / "record.json", json.dumps(record, indent=1))


def _inside(file: ModelFile) -> Path:
    return file.path.relative_to(file.folder) if file.folder else Path(file.path.name)


def _mirror(file: ModelFile, home: Path) -> Path:
    """The place of the new file in ``home``, among links to the rest of the old folder."""
    home.mkdir(parents=True, exist_ok=True)
    old = file.folder
    for part in _inside(file).parts:
        home.mkdir(exist_ok=True)
        for other in old.iterdir() if old else ():
            if other.name != part and not (home / other.name).is_symlink():
                (home / other.name).symlink_to(other.resolve())
        old, home = old / part if old else None, home / part
    return home


def _key(path: Path) -> str:
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


# --- a first answer ----------------------------------------------------------------------------

REPEATED = re.compile(r"(.{1,40}?)(?:\s*\1){3,}.{0,40}", re.DOTALL)


def degenerate(answer: str) -> str | None:
    """What is wrong with an answer: nothing said, or one thing over and over; or ``None``."""
    text = answer.strip()
    if not re.search(r"\w", text):
        return f"it answers {text[:20]!r}" if text else "it answers nothing"
    return f"it repeats {text[:20]!r}" if REPEATED.fullmatch(text) else None
