"""The texts of the synthetic speakers, with places for pauses: ``texts/PART.yaml``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from ruamel.yaml import YAML

from benchmarks.harness.scene import Part, PauseKind, SceneKind

_TEXTS = Path(__file__).parent / "texts"
_MARKS: dict[str, PauseKind] = {"/": "word", "|": "clause", "~": "filler", "+": "sentence"}
_MARK = re.compile(r"\s*([/|~+])\s*")


@dataclass(frozen=True)
class Mark:
    """A place for a pause: ``before`` is the text up to it, which has ``words`` words."""

    before: str
    words: int
    kind: PauseKind


@dataclass(frozen=True)
class WrittenTurn:
    """One turn to be spoken; ``asked`` is the assistant's question before it."""

    kind: SceneKind
    text: str
    marks: tuple[Mark, ...]
    asked: str = ""


def read(part: Part) -> list[WrittenTurn]:
    """The texts of ``part``, in the file's order. Raises ``ValueError`` for an unknown kind."""
    document: dict[str, list[Any]] = YAML(typ="safe").load(_TEXTS / f"{part}.yaml")
    if unknown := set(document) - set(get_args(SceneKind)):
        raise ValueError(f"texts/{part}.yaml: unknown kinds {sorted(unknown)}")
    return [
        parse(entry, kind) if isinstance(entry, str) else parse(entry["text"], kind, entry["asked"])
        for kind, entries in document.items()
        for entry in entries
    ]


def parse(text: str, kind: Any, asked: str = "") -> WrittenTurn:
    """A turn from its text with pause marks."""
    pieces = _MARK.split(text.strip())
    marks: list[Mark] = []
    before = pieces[0]
    for mark, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        marks.append(Mark(before, len(before.split()), _MARKS[mark]))
        before = f"{before} {piece}"
    return WrittenTurn(kind, before, tuple(marks), asked)
