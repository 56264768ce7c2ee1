"""Makes deltas: what changed between two model files (the format: ``app.models.delta``)."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np

from app.models.delta import (
    FORMAT,
    MOST_HEADER_BYTES,
    Delta,
    Step,
    as_items,
    chunks,
    new_file,
    places_to,
    read_delta,
    values_to,
)
from app.models.download import Progress, Report, ignore_progress, sha256_of
from pipeline.engines.tensor_file import FileSegment, pieces_of
from pipeline.errors import WeightsError


def make_delta(
    old: Path, new: Path, out: Path, licence: str = "", report: Report = ignore_progress
) -> Delta:
    """Write to ``out`` what turns ``old`` into ``new``. Raises ``WeightsError``."""
    if out.exists() and any(out.samefile(model) for model in (old, new)):
        raise WeightsError(f"{out} is one of the models", fix="Write the delta to another file")
    layout: list[Step] = []
    with (
        new_file(out, 0) as file,
        _require_unchanged(old, new),
        old.open("rb", 0) as was,
        new.open("rb", 0) as now,
        TemporaryFile(dir=out.parent) as first,
        TemporaryFile(dir=out.parent) as second,
    ):
        before, pieces = {piece.name: piece for piece in pieces_of(old)}, pieces_of(new)
        sizes: dict[BinaryIO, dict[str, int]] = {first: {}, second: {}}
        for piece in pieces:
            report(Progress(new.name, piece.start, new.stat().st_size))
            base, at, end = before.get(piece.name), first.tell(), second.tell()
            if not base or (base.size, base.kind) != (piece.size, piece.kind):
                for chunk in chunks(now, piece.start, piece.size):
                    first.write(chunk.data)
                sizes[first][f"{piece.name}@whole"] = piece.size
                layout.append(("put", piece.name))
            elif changes := _write_changes(was, now, base, piece, first, second):
                sizes[first][f"{piece.name}@places"] = first.tell() - at
                sizes[second][f"{piece.name}@values"] = second.tell() - end
                count = piece.size // piece.item
                layout.append(("patch", piece.name, base.start, count, piece.item, changes))
            else:
                first.truncate(first.seek(at))
                second.truncate(second.seek(end))
                _copy(layout, base)
        info = {
            "format": FORMAT,
            "base_sha256": sha256_of(old),
            "base_bytes": str(old.stat().st_size),
            "result_sha256": sha256_of(new),
            "result_bytes": str(new.stat().st_size),
            "licence": licence,
            "tool": f"reachy-voice {importlib.metadata.version('reachy-voice')}",
            "layout": json.dumps(layout, separators=(",", ":")),
        }
        header = _header(info, {**sizes[first], **sizes[second]})
        if len(header) > MOST_HEADER_BYTES:
            raise WeightsError(
                f"Too many tensors of {new.name} changed",
                why=f"the header of the delta would have more than {MOST_HEADER_BYTES >> 20} MiB",
                fix="Split the model into several files, or send it whole",
            )
        file.write(header)
        for data in (first, second):
            data.seek(0)
            shutil.copyfileobj(data, file)
    return read_delta(out)


@contextmanager
def _require_unchanged(*models: Path) -> Iterator[None]:
    """Raises ``WeightsError`` if one of them is written or replaced meanwhile."""
    before = [_state(model) for model in models]
    yield
    if before != [_state(model) for model in models]:
        raise WeightsError(
            "There is no delta",
            why="one of the models was changed while it was read",
            fix="Make it again when nothing writes to them",
        )


def _state(model: Path) -> tuple[int, int, int]:
    status = model.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _write_changes(
    was: BinaryIO,
    now: BinaryIO,
    base: FileSegment,
    piece: FileSegment,
    places: BinaryIO,
    values: BinaryIO,
) -> int:
    """Write which items change, and by how much; returns how many do."""
    # Nothing but runs repeats: looking for more would cost time and bytes.
    where, amounts = (zlib.compressobj(strategy=zlib.Z_RLE) for _ in range(2))
    item, count, changes = piece.item, piece.size // piece.item, 0
    old, new = chunks(was, base.start, count, item), chunks(now, piece.start, count, item)
    for one, two in zip(old, new, strict=True):
        before, after = as_items(one, item), as_items(two, item)
        differs = before != after
        indexes = np.flatnonzero(differs if differs.ndim == 1 else differs.any(1))
        places.write(where.compress(places_to(indexes)))
        values.write(amounts.compress(values_to(before[indexes], after[indexes], item)))
        changes += len(indexes)
    places.write(where.flush())
    values.write(amounts.flush())
    return changes


def _copy(layout: list[Step], base: FileSegment) -> None:
    match layout[-1:]:
        case [("copy", start, size)] if start + size == base.start:
            layout[-1] = ("copy", start, size + base.size)
        case _ if base.size:
            layout.append(("copy", base.start, base.size))


def _header(info: dict[str, str], sizes: dict[str, int]) -> bytes:
    header: dict[str, Any] = {"__metadata__": info}
    at = 0
    for name, size in sizes.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
