"""Updates of the models in use: which ones fit, where their results are kept, and which were bad.

In the cache: ``updates/DIGEST/`` (the model with this SHA-256), ``updates/record.json``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from app.file_lock import locked
from app.models.catalogue import Sha256
from app.models.delta import BadDelta, Delta, apply_all, read_delta
from app.models.download import Report, sha256_of
from app.models.weights import WeightsCache
from app.write_whole import write_whole
from pipeline.engines.registry import EngineOptions
from pipeline.engines.tensor_file import SUFFIXES
from pipeline.errors import WeightsError

PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
LEFT_BEHIND_S = 86_400.0
"""Unfinished results older than a day are stale."""


class Update(BaseModel):
    """A delta, as an index lists it. ``file``: its URL relative to the index."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(min_length=1, max_length=1000)
    size: int = Field(ge=0)
    sha256: Sha256
    base: Sha256
    result: Sha256


_Index = TypeAdapter(Annotated[list[Update], FailFast()])


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
    new = Update(
        file=quote(os.path.relpath(delta.path, index.parent)),
        size=delta.path.stat().st_size,
        sha256=sha256_of(delta.path),
        base=delta.info.base_sha256,
        result=delta.info.result_sha256,
    )
    try:
        updates = read_index(index.read_bytes()) if index.exists() else []
        lines = [*(each for each in updates if each.file != new.file), new]
        write_whole(index, json.dumps([each.model_dump() for each in lines], indent=1))
    except OSError as error:
        raise WeightsError(
            f"{index} could not be written",
            why=str(error.strerror),
            fix="The delta is whole; name an index in a folder of yours",
        ) from error


class ModelStep(NamedTuple):
    """A delta between two models, named by their digests."""

    base: str
    result: str
    source: Path | Update
    """Where it is."""

    @property
    def name(self) -> str:
        return self.source.name if isinstance(self.source, Path) else self.source.file


def steps_of(deltas: Iterable[Path]) -> tuple[list[ModelStep], list[BadDelta]]:
    """The steps of the deltas that have arrived whole, and what is wrong with the others."""
    steps, wrong = [], []
    for path in deltas:
        try:
            info = read_delta(path).info
        except BadDelta as error:
            wrong.append(error)
        else:
            steps.append(ModelStep(info.base_sha256, info.result_sha256, path))
    return steps, wrong


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of an engine's weights."""

    path: Path
    folder: Path | None = None
    """The folder of the weights, if the engine needs more files of it."""


def model_files(options: EngineOptions, cache: WeightsCache) -> list[ModelFile]:
    """The files of an engine that deltas can update; a GGUF in parts has none, as its parts only
    fit each other."""
    own, name = getattr(options, "model_file", None), options.weights_name
    if own and Path(own).expanduser().is_absolute():
        paths = [Path(own).expanduser()]
        return [ModelFile(path) for path in paths if path.is_file() and not PART.search(path.name)]
    place = getattr(options, "model_dir", None) or (cache.home(name) if name else None)
    if place is None:
        return []
    folder = Path(place).expanduser()
    whole = folder if hasattr(options, "model_dir") else None
    return [
        ModelFile(file, whole)
        for file in _tensor_files(folder)
        if file.name == own or not (own or file.name.startswith("mmproj"))
    ]


def _tensor_files(folder: Path | None) -> list[Path]:
    files = sorted(folder.rglob("*")) if folder else []
    return [each for each in files if each.suffix in SUFFIXES and not PART.search(each.name)]


class _Record(BaseModel):
    """``current`` and ``originals`` are digests by ``_key`` of the original file."""

    bad: set[str] = set()
    current: dict[str, str] = {}
    originals: dict[str, str] = {}


class Updates:
    """The record of updates, and the models it names. All calls block."""

    def __init__(self, cache: WeightsCache) -> None:
        self._cache = cache
        self._folder = cache.directory / "updates"
        self._record = self._read()

    def newest(self, options: EngineOptions) -> EngineOptions:
        """Options with the newest good model, if the engine follows updates."""
        follows = getattr(options, "updates", None)
        files = model_files(options, self._cache) if follows else []
        last = self._last(files)
        return self.with_result(options, *last) if last else options

    def _last(self, files: Iterable[ModelFile]) -> tuple[ModelFile, str] | None:
        """The file updated last, and its digest. Its folder has the others' updates, too."""
        by_key = {_key(file.path): file for file in files}
        for key in reversed(self._record.current):
            if (file := by_key.get(key)) and (digest := self._current(file)):
                return file, digest
        return None

    def in_use(self, file: ModelFile) -> tuple[Path, str]:
        """The file that is used in place of ``file``, and its digest."""
        if digest := self._current(file):
            return self._home(digest) / _inside(file), digest
        return self._original(file)

    def _current(self, file: ModelFile) -> str | None:
        digest = self._record.current.get(_key(file.path))
        return digest if digest and self.has(file, digest) else None

    def _original(self, file: ModelFile) -> tuple[Path, str]:
        key = _key(file.path)
        if key not in self._record.originals:
            self._record.originals[key] = sha256_of(file.path)
            with self._changing():  # saved: hashing gigabytes takes seconds
                pass
        return file.path, self._record.originals[key]

    def has(self, file: ModelFile, digest: str) -> bool:
        """Whether the model with this digest is here."""
        return (self._home(digest) / _inside(file)).is_file()

    def with_result(self, options: EngineOptions, file: ModelFile, digest: str) -> EngineOptions:
        home = self._home(digest)
        key, path = ("model_dir", home) if file.folder else ("model_file", home / _inside(file))
        return options.model_copy(update={key: str(path)})

    def chain(
        self, file: ModelFile, steps: Sequence[ModelStep], back: bool = True
    ) -> tuple[Path, list[ModelStep]]:
        """The file to start from, and the steps from it to the newest model that was not bad. It is
        the model in use or, if no steps lead on from that and ``back`` is set, the original."""
        path, digest = self.in_use(file)
        starts = [(path, digest), *([self._original(file)] if back else [])]
        for start, first in starts:
            rest = list(steps)
            while (way := _walk(first, rest)) and way[-1].result in self._record.bad:
                rest.remove(way[-1])
            if way and way[-1].result != digest:
                return start, way
        return path, []

    def astray(self, files: Iterable[ModelFile], steps: Sequence[ModelStep]) -> list[ModelStep]:
        """Steps that neither start from a model that is here nor have led to one in use."""
        digests = [(self.in_use(file)[1], self._original(file)[1]) for file in files]
        ahead = _reachable({each for pair in digests for each in pair}, steps)
        behind = _reachable({now for now, _ in digests}, [ModelStep(b, a, c) for a, b, c in steps])
        return [each for each in steps if each.base not in ahead and each.result not in behind]

    def make(
        self, file: ModelFile, base: Path, deltas: Sequence[Path], digest: str, report: Report
    ) -> None:
        """Apply ``deltas`` to ``base``; the model in use stays. Raises ``WeightsError``."""
        if self.has(file, digest):
            return
        contents = [read_delta(path) for path in deltas]
        if contents[-1].info.result_sha256 != digest:
            raise BadDelta(f"{deltas[-1].name} is not used", why="it leads to another model")
        last = self._last(ModelFile(path, file.folder) for path in _tensor_files(file.folder))
        old = self._home(last[1]) if last else file.folder
        apply_all(contents, base, _mirror(file, old, self._home(digest)), report)

    def keep(self, file: ModelFile, digest: str, fetched: Iterable[Path] = ()) -> None:
        """Use this model from now on; delete the one before, and the deltas that were ``fetched``
        for it."""
        for delta in fetched:
            if delta.parent == self._cache.directory / "downloads":
                delta.unlink(missing_ok=True)
        key = _key(file.path)
        with self._changing() as record:
            for each in (record, self._record):
                others = {old: of for old, of in each.current.items() if _path(old) != _path(key)}
                each.current = others | {key: digest}

    def reject(self, digest: str) -> None:
        """Never use this model again."""
        with self._changing() as record:
            record.bad.add(digest)
            self._record.bad.add(digest)
        if digest not in record.current.values():
            shutil.rmtree(self._home(digest), ignore_errors=True)

    def _home(self, digest: str) -> Path:
        return self._folder / digest

    def _read(self) -> _Record:
        with suppress(OSError, ValueError):
            return _Record.model_validate_json((self._folder / "record.json").read_bytes())
        return _Record()

    @contextmanager
    def _changing(self) -> Iterator[_Record]:
        """Yields the record, with what other processes wrote. Then deletes models that it no longer
        names and what killed processes left behind, but nothing that is being made."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder / "record.lock"):
            record = self._read()
            before = set(record.current.values())
            record.originals |= self._record.originals
            yield record
            write_whole(self._folder / "record.json", record.model_dump_json(indent=1))
        long_ago = time.time() - LEFT_BEHIND_S
        for home in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another server may have deleted it
                is_unused = home.name in before or home.stat().st_mtime < long_ago
                if is_unused and home.is_dir() and home.name not in record.current.values():
                    shutil.rmtree(home, ignore_errors=True)


def _walk(digest: str, steps: Iterable[ModelStep]) -> list[ModelStep]:
    """The steps that lead on from a model. Of two steps from one model, the later one counts. Only
    a later step may return to a model: this allows going back, but no cycles."""
    after = {each.base: (number, each) for number, each in enumerate(steps) if each[0] != each[1]}
    way: list[ModelStep] = []
    models, last = {digest}, -1
    while digest in after:
        number, step = after[digest]
        if step.result in models and number <= last:
            break
        digest, last = step.result, number
        models.add(digest)
        way.append(step)
    return way


def _reachable(models: set[str], steps: Iterable[ModelStep]) -> set[str]:
    while more := {each.result for each in steps if each.base in models} - models:
        models = models | more
    return models


def _inside(file: ModelFile) -> Path:
    return file.path.relative_to(file.folder) if file.folder else Path(file.path.name)


def _mirror(file: ModelFile, old: Path | None, home: Path) -> Path:
    """Where to put the new file in ``home``, beside links to the rest of the old folder."""
    home.mkdir(parents=True, exist_ok=True)
    for part in _inside(file).parts:
        home.mkdir(exist_ok=True)
        for other in old.iterdir() if old else ():
            if other.name != part:
                (home / other.name).unlink(missing_ok=True)  # may point to a file that is gone
                (home / other.name).symlink_to(other.resolve())
        old, home = old / part if old else None, home / part
    return home


def _key(path: Path) -> str:
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


def _path(key: str) -> str:
    return key.rsplit(" ", 2)[0]


# --- a first answer ----------------------------------------------------------------------------

REPEATED = re.compile(r"(.{1,40}?)(?:\s*\1){3,}.{0,40}", re.DOTALL)


def degenerate(answer: str) -> str | None:
    """What is wrong with an answer: nothing said, or one thing over and over; or ``None``."""
    text = answer.strip()
    if not re.search(r"\w", text):
        return f"it answers {text[:20]!r}" if text else "it answers nothing"
    return f"it repeats {text[:20]!r}" if REPEATED.fullmatch(text) else None
