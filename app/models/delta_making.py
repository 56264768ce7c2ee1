"""Makes deltas: what changed between two model files (the format: ``app.models.delta``)."""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from app.models.delta import (
    CHUNK_BYTES,
    FORMAT,
    PASS,
    Bytes,
    Copy,
    Delta,
    Patch,
    Places,
    Put,
    as_items,
    new_file,
    parts_of,
    read_delta,
    read_into,
)
from app.models.download import Progress, Report, ignore_progress, sha256_of
from app.models.tensor_file import Piece, pieces_of


@dataclass(frozen=True, slots=True)
class _Part:
    """How one piece goes into a delta: whole, or (``base``) what changed. ``shapes``: of its
    tensors, by the ending of their names."""

    piece: Piece
    shapes: Mapping[str, tuple[int, ...]]
    base: Piece | None = None

    @property
    def size(self) -> int:
        return sum(map(math.prod, self.shapes.values()))


def make_delta(
    old: Path, new: Path, out: Path, licence: str = "", report: Report = ignore_progress
) -> Delta:
    """Write what turns ``old`` into ``new`` to ``out``. Raises ``WeightsError``."""
    before, pieces = {piece.name: piece for piece in pieces_of(old)}, pieces_of(new)
    layout: list[Copy | Patch | Put] = []
    parts: list[_Part] = []
    with old.open("rb", 0) as was, new.open("rb", 0) as now:
        for piece in pieces:
            report(Progress(new.name, piece.start, new.stat().st_size))
            part, base = _Part(piece, {"whole": (piece.size,)}), before.get(piece.name)
            if base and (base.size, base.item, base.kind) == (piece.size, piece.item, piece.kind):
                part = min(_changed(was, now, base, piece), part, key=lambda each: each.size)
            if part.base and not part.size:
                _copy(layout, part.base)
                continue
            parts.append(part)
            if part.base:
                count = piece.size // piece.item
                layout.append(("patch", piece.name, part.base.start, count, piece.item))
            else:
                layout.append(("put", piece.name))
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
        header, starts, size = _header(info, parts)
        with new_file(out, size) as file:
            file.write(header)
            for part in parts:
                _put_in(file, was, now, part, starts)
    return read_delta(out)


def _copy(layout: list[Copy | Patch | Put], base: Piece) -> None:
    last = layout[-1] if layout else None
    if last and last[0] == "copy" and last[1] + last[2] == base.start:
        layout[-1] = ("copy", last[1], last[2] + base.size)
    elif base.size:
        layout.append(("copy", base.start, base.size))


def _compare(
    was: BinaryIO, now: BinaryIO, base: Piece, piece: Piece
) -> Iterator[tuple[int, Places, Bytes, Bytes]]:
    """For each part of a tensor: its number of items, which ones change, to what, and the gaps."""
    old, new = (np.empty(CHUNK_BYTES, np.uint8) for _ in range(2))
    item, last = piece.item, -1
    for first, size in parts_of(piece.size // item, item):
        before = read_into(was, base.start + first * item, old[: size * item])
        after = read_into(now, piece.start + first * item, new[: size * item])
        differs = as_items(before, item) != as_items(after, item)
        places = np.flatnonzero(differs if differs.ndim == 1 else differs.any(1))
        gaps = np.diff(places, prepend=last - first) - 1
        last = int(places[-1]) + first if len(places) else last
        ends = np.cumsum(gaps // PASS + 1)
        coded = np.full(int(ends[-1]) if len(ends) else 0, PASS, np.uint8)
        coded[ends - 1] = gaps % PASS
        yield size, places, as_items(after, item)[places].view(np.uint8).reshape(-1), coded


def _changed(was: BinaryIO, now: BinaryIO, base: Piece, piece: Piece) -> _Part:
    values = gaps = 0
    for _, places, _, coded in _compare(was, now, base, piece):
        values, gaps = values + len(places), gaps + len(coded)
    mask = -(-piece.size // piece.item // 8)
    where = {"gaps": (gaps,)} if gaps <= mask else {"mask": (mask,)}
    return _Part(piece, {**where, "values": (values, piece.item)}, base)


def _header(
    info: Mapping[str, str], parts: Sequence[_Part]
) -> tuple[bytes, Mapping[str, int], int]:
    """The first bytes, where each tensor begins in the file, and the size of the file."""
    header: dict[str, Any] = {"__metadata__": info}
    starts: dict[str, int] = {}
    at = 0
    for part in parts:
        for ending, shape in part.shapes.items():
            name, end = f"{part.piece.name}@{ending}", at + math.prod(shape)
            header[name] = {"dtype": "U8", "shape": shape, "data_offsets": [at, end]}
            starts[name], at = at, end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    begin = 8 + len(text)
    starts = {name: begin + start for name, start in starts.items()}
    return len(text).to_bytes(8, "little") + text, starts, begin + at


def _put_in(
    file: BinaryIO, was: BinaryIO, now: BinaryIO, part: _Part, starts: Mapping[str, int]
) -> None:
    piece = part.piece
    at = {ending: starts[f"{piece.name}@{ending}"] for ending in part.shapes}

    def write(ending: str, data: Bytes) -> None:
        file.seek(at[ending])
        file.write(data.data)
        at[ending] += len(data)

    if part.base is None:
        for first, size in parts_of(piece.size, 1):
            write("whole", read_into(now, piece.start + first, np.empty(size, np.uint8)))
        return
    for size, places, values, gaps in _compare(was, now, part.base, piece):
        bits = np.zeros(size, np.bool_)
        bits[places] = True
        mask = np.packbits(bits, bitorder="little")
        write(*(("gaps", gaps) if "gaps" in at else ("mask", mask)))
        write("values", values)
