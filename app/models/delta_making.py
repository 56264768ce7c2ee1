"""Makes deltas: what changed between two model files (the format: ``app.models.delta``)."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import zlib
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np

from app.models.delta import (
    CHUNK_BYTES,
    FORMAT,
    Copy,
    Delta,
    Patch,
    Put,
    as_items,
    new_file,
    parts_of,
    places_to,
    read_delta,
    read_into,
    values_to,
)
from app.models.download import Progress, Report, ignore_progress, sha256_of
from app.models.tensor_file import Piece, pieces_of
from pipeline.errors import WeightsError


def make_delta(
    old: Path, new: Path, out: Path, licence: str = "", report: Report = ignore_progress
) -> Delta:
    """Write what turns ``old`` into ``new`` to ``out``. Raises ``WeightsError``."""
    before, pieces = {piece.name: piece for piece in pieces_of(old)}, pieces_of(new)
    if out.exists() and any(out.samefile(model) for model in (old, new)):
        raise WeightsError(f"{out} is one of the models", fix="Write the delta to another file")
    layout: list[Copy | Put | Patch] = []
    with (
        new_file(out, 0) as file,
        old.open("rb", 0) as was,
        new.open("rb", 0) as now,
        TemporaryFile(dir=out.parent) as first,
        TemporaryFile(dir=out.parent) as second,
    ):
        sizes: dict[BinaryIO, dict[str, int]] = {first: {}, second: {}}
        for piece in pieces:
            report(Progress(new.name, piece.start, new.stat().st_size))
            base, at, end = before.get(piece.name), first.tell(), second.tell()
            if not base or (base.size, base.kind) != (piece.size, piece.kind):
                for start, size in parts_of(piece.size, 1):
                    first.write(read_into(np.empty(size, np.uint8), now, piece.start + start).data)
                sizes[first][f"{piece.name}@whole"] = piece.size
                layout.append(Put("put", piece.name))
            elif changed := _changed(was, now, base, piece, first, second):
                sizes[first][f"{piece.name}@places"] = first.tell() - at
                sizes[second][f"{piece.name}@values"] = second.tell() - end
                count = piece.size // piece.item
                layout.append(Patch("patch", piece.name, base.start, count, piece.item, changed))
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
        file.write(_header(info, {**sizes[first], **sizes[second]}))
        for data in (first, second):
            data.seek(0)
            shutil.copyfileobj(data, file)
    return read_delta(out)


def _changed(
    was: BinaryIO, now: BinaryIO, base: Piece, piece: Piece, places: BinaryIO, values: BinaryIO
) -> int:
    """Write which items change, and by how much; how many do."""
    old, new = (np.empty(CHUNK_BYTES, np.uint8) for _ in range(2))
    # Runs are all that repeats: to look for more would cost time and bytes.
    where, added = (zlib.compressobj(strategy=zlib.Z_RLE) for _ in range(2))
    item, changed = piece.item, 0
    for first, size in parts_of(piece.size // item, item):
        before = as_items(read_into(old[: size * item], was, base.start + first * item), item)
        after = as_items(read_into(new[: size * item], now, piece.start + first * item), item)
        differs = before != after
        found = np.flatnonzero(differs if differs.ndim == 1 else differs.any(1))
        places.write(where.compress(places_to(found)))
        values.write(added.compress(values_to(before[found], after[found], item)))
        changed += len(found)
    places.write(where.flush())
    values.write(added.flush())
    return changed


def _copy(layout: list[Copy | Put | Patch], base: Piece) -> None:
    last = layout[-1] if layout else None
    if isinstance(last, Copy) and last.start + last.size == base.start:
        layout[-1] = Copy("copy", last.start, last.size + base.size)
    elif base.size:
        layout.append(Copy("copy", base.start, base.size))


def _header(info: dict[str, str], sizes: dict[str, int]) -> bytes:
    header: dict[str, Any] = {"__metadata__": info}
    at = 0
    for name, size in sizes.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
