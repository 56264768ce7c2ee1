"""Updates of a model file that contain only what changed, and are applied without loss.

A delta is a safetensors file of bytes. Its metadata name the base and the result by their SHA-256
and say how the result is put together (``layout``): bytes copied from the base, whole tensors
(``NAME@whole``), and tensors of the base with some items replaced by ``NAME@values``. The places
of those are a mask (``NAME@mask``, a bit per item, the lowest first) or gaps (``NAME@gaps``: items
passed before each that changes; 255 passes as many and changes none).
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError

from app.models.catalogue import Sha256
from app.models.download import Progress, Report, ignore_progress, megabytes, sha256_of
from app.models.tensor_file import Piece, header_of, pieces_of
from pipeline.errors import WeightsError

SUFFIX = ".delta.safetensors"
FORMAT = "reachy-voice-delta-1"
CHUNK_BYTES = 4 << 20
GAPS = 1 << 18
"""So many are decoded at once."""
PASS = 255
"""A gap that ends without a change."""
MOST_ITEM_BYTES = 4096
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]
Count = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(max_length=1000)]
Copy = tuple[Literal["copy"], Count, Count]
"""Start in the base, bytes."""
Patch = tuple[Literal["patch"], Name, Count, Count, Annotated[int, Field(ge=1, le=MOST_ITEM_BYTES)]]
"""A tensor's name, start in the base, items, bytes of an item."""
Put = tuple[Literal["put"], Name]


class BadDelta(WeightsError):
    """The delta is damaged or malicious, or does not belong to this file."""


class DeltaInfo(BaseModel):
    """The metadata of a delta."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["reachy-voice-delta-1"]
    base_sha256: Sha256
    base_bytes: Count
    result_sha256: Sha256
    result_bytes: Count
    licence: str = ""
    tool: str = ""
    layout: Json[list[Copy | Patch | Put]]


@dataclass(frozen=True, slots=True)
class Delta:
    """A delta whose header is consistent; its data are checked while it is applied."""

    path: Path
    info: DeltaInfo
    parts: Mapping[str, Piece]

    @property
    def changed(self) -> tuple[int, int]:
        """Items that changed, and all items of the tensors that can be compared."""
        patches = [step for step in self.info.layout if step[0] == "patch"]
        values = sum(self.parts[f"{each[1]}@values"].size // each[4] for each in patches)
        return values, sum(each[3] for each in patches)


# --- reading -----------------------------------------------------------------------------------


def read_delta(path: Path) -> Delta:
    """Raises ``BadDelta``."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header, _ = header_of(file, size)
        info = DeltaInfo.model_validate(header.get("__metadata__", {}))
        pieces = pieces_of(path)
        if len(pieces) > len(header):
            raise ValueError("its tensors do not fill it")
        delta = Delta(path, info, {piece.name: piece for piece in pieces[1:]})
        _check(delta)
    except (WeightsError, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise _bad(path, _reason(error)) from error
    return delta


def _check(delta: Delta) -> None:
    """Raises ``ValueError`` or ``KeyError`` unless the layout fits the tensors and the sizes."""
    info, reused, put = delta.info, 0, 0
    for step in info.layout:
        if step[0] == "put":
            put += delta.parts[f"{step[1]}@whole"].size
            continue
        start, size = (step[1], step[2]) if step[0] == "copy" else (step[2], step[3] * step[4])
        if start + size > info.base_bytes:
            raise ValueError("it reads beyond the end of the base")
        reused += size
        if step[0] == "patch":
            places, values = _places(delta, step[1]), delta.parts[f"{step[1]}@values"]
            if values.size % step[4] or values.size > size:
                raise ValueError(f"the values of {step[1]!r} do not fit its items")
            if places.name.endswith("@mask") and places.size != -(-step[3] // 8):
                raise ValueError(f"the mask of {step[1]!r} has the wrong size")
    if reused > info.base_bytes or reused + put != info.result_bytes:
        raise ValueError("its parts do not add up to the result")


def _places(delta: Delta, name: str) -> Piece:
    return delta.parts.get(f"{name}@mask") or delta.parts[f"{name}@gaps"]


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"its metadata are not those of a delta ({first['msg']})"
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    return getattr(error, "why", "") or str(error)


def _bad(path: Path, why: str) -> BadDelta:
    return BadDelta(
        f"{path.name} cannot be applied",
        why=why,
        fix="Nothing was changed. Fetch it again; if that does not help, do not trust its source",
    )


# --- applying ----------------------------------------------------------------------------------


def apply(
    delta: Delta, base: Path, target: Path | None = None, report: Report = ignore_progress
) -> None:
    """Write the result to ``target`` (default: in the place of ``base``), in one step and only if
    it is right. Raises ``WeightsError``; then, or if ``report`` raises, nothing has changed."""
    info, target = delta.info, target or base
    if not base.is_file() or base.stat().st_size != info.base_bytes:
        raise _wrong_base(delta, base)
    with _new_file(target, info.result_bytes, base) as out:
        with base.open("rb", 0) as old, delta.path.open("rb") as new:
            chunks = _result(delta, old, new)
            try:
                digest = _write(chunks, out, partial(_progress, report, target, info.result_bytes))
            except _DoesNotFit as error:
                raise _bad(delta.path, str(error)) from error
        if digest != info.result_sha256:
            if sha256_of(base) != info.base_sha256:
                raise _wrong_base(delta, base)
            raise _bad(delta.path, "the result is not what it promises, so it is damaged")


def _progress(report: Report, target: Path, total: int, done: int) -> None:
    report(Progress(target.name, done, total))


class _DoesNotFit(Exception):
    """The data of a delta contradict its header."""


def _write(chunks: Iterator[Bytes], out: BinaryIO, report: Callable[[int], None]) -> str:
    """Write and hash at the same time; the digest. A chunk stays as it is until the next but
    one is made."""
    digest, done = hashlib.sha256(), 0
    hashed: Future[None] | None = None
    with ThreadPoolExecutor(1) as beside:
        for chunk in chunks:
            if hashed is not None:
                hashed.result()
            hashed = beside.submit(digest.update, chunk.data)
            out.write(chunk.data)
            done += len(chunk)
            report(done)
    return digest.hexdigest()


def _result(delta: Delta, old: BinaryIO, new: BinaryIO) -> Iterator[Bytes]:
    buffers = [np.empty(CHUNK_BYTES, np.uint8) for _ in range(2)]

    def filled(file: BinaryIO, start: int, size: int) -> Bytes:
        buffers.reverse()
        return _read(file, start, buffers[0][:size])

    for step in delta.info.layout:
        if step[0] == "patch":
            _, name, start, count, item = step
            for first, size, places, values in _changes(delta, name, new, count, item):
                items = filled(old, start + first * item, size * item)
                _as_items(items, item)[places] = _as_items(values, item)
                yield items
            continue
        if step[0] == "copy":
            file, start, size = old, step[1], step[2]
        else:
            whole = delta.parts[f"{step[1]}@whole"]
            file, start, size = new, whole.start, whole.size
        for at in range(0, size, CHUNK_BYTES):
            yield filled(file, start + at, min(CHUNK_BYTES, size - at))


def _changes(
    delta: Delta, name: str, file: BinaryIO, count: int, item: int
) -> Iterator[tuple[int, int, Places, Bytes]]:
    """For each part of a tensor: its first item, their number, which ones change, and to what."""
    piece, values = _places(delta, name), delta.parts[f"{name}@values"]
    read = used = at = 0
    known: Places = np.empty(0, np.int64)
    for first, size in _parts(count, item):
        if piece.name.endswith("@mask"):
            bits = _read(file, piece.start + first // 8, np.empty(-(-size // 8), np.uint8))
            places = np.flatnonzero(np.unpackbits(bits, bitorder="little")[:size])
        else:
            end = first + size
            while read < piece.size and (at < end or end == count):
                gaps = np.empty(min(GAPS, piece.size - read), np.uint8)
                _read(file, piece.start + read, gaps)
                read += len(gaps)
                after = at + np.cumsum(gaps.astype(np.int64) + (gaps < PASS))
                at = int(after[-1])
                known = np.concatenate((known, after[gaps < PASS] - 1))
                if at > count:
                    raise _DoesNotFit(f"it changes items beyond the end of {name!r}")
            cut = int(np.searchsorted(known, end))
            places, known = known[:cut] - first, known[cut:]
        replaced = np.empty(len(places) * item, np.uint8)
        if used + len(replaced) > values.size:
            raise _DoesNotFit(f"it has too few values for {name!r}")
        _read(file, values.start + used, replaced)
        used += len(replaced)
        yield first, size, places, replaced
    if used < values.size or (read < piece.size and not piece.name.endswith("@mask")):
        raise _DoesNotFit(f"it has too many values for {name!r}")


def _parts(count: int, item: int) -> Iterator[tuple[int, int]]:
    """First item and number of items; multiples of 8, so that masks are cut between bytes."""
    many = CHUNK_BYTES // item // 8 * 8
    return ((first, min(many, count - first)) for first in range(0, count, many))


def _as_items(data: Bytes, item: int) -> NDArray[Any]:
    """Numbers if they are as large as an item, which is faster; else rows of bytes."""
    return data.view(_UNSIGNED[item]) if item in _UNSIGNED else data.reshape(-1, item)


def _read(file: BinaryIO, start: int, into: Bytes) -> Bytes:
    """Fill and return ``into``."""
    file.seek(start)
    if file.readinto(into.data) < len(into):  # type: ignore[attr-defined]
        raise _DoesNotFit(f"{Path(file.name).name} became shorter meanwhile")
    return into


def _wrong_base(delta: Delta, base: Path) -> BadDelta:
    info = delta.info
    return BadDelta(
        f"{delta.path.name} does not belong to {base.name}",
        why=f"it was made from a file of {megabytes(info.base_bytes)} "
        f"with the sha256 {info.base_sha256[:16]}...",
        fix="Nothing was changed. Apply it to that file, or fetch the whole new model",
    )


@contextmanager
def _new_file(target: Path, size: int, like: Path | None = None) -> Iterator[BinaryIO]:
    """A file beside ``target`` that takes its place if the block ends well, and else is deleted.
    After a crash the next one writes over what is left."""
    part = target.with_name(f".{target.name}.part")
    try:
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # one at a time; released when it is closed
            try:
                with part.open("wb") as file:
                    if size:
                        os.posix_fallocate(file.fileno(), 0, size)  # fails now if the disk is full
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                if like is not None:
                    shutil.copymode(like, part)
                part.replace(target)
                os.fsync(folder)
            except BaseException:
                with suppress(OSError):
                    part.unlink(missing_ok=True)
                raise
        finally:
            os.close(folder)
    except OSError as error:
        raise WeightsError(
            f"{target} could not be written",
            why=str(error.strerror),
            fix=f"Nothing was changed. It needs a folder of yours with {megabytes(size)} free",
        ) from error


# --- making ------------------------------------------------------------------------------------


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
        with _new_file(out, size) as file:
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
    for first, size in _parts(piece.size // item, item):
        before = _read(was, base.start + first * item, old[: size * item])
        after = _read(now, piece.start + first * item, new[: size * item])
        differs = _as_items(before, item) != _as_items(after, item)
        places = np.flatnonzero(differs if differs.ndim == 1 else differs.any(1))
        gaps = np.diff(places, prepend=last - first) - 1
        last = int(places[-1]) + first if len(places) else last
        ends = np.cumsum(gaps // PASS + 1)
        coded = np.full(int(ends[-1]) if len(ends) else 0, PASS, np.uint8)
        coded[ends - 1] = gaps % PASS
        yield size, places, _as_items(after, item)[places].view(np.uint8).reshape(-1), coded


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
        for first, size in _parts(piece.size, 1):
            write("whole", _read(now, piece.start + first, np.empty(size, np.uint8)))
        return
    for size, places, values, gaps in _compare(was, now, part.base, piece):
        bits = np.zeros(size, np.bool_)
        bits[places] = True
        mask = np.packbits(bits, bitorder="little")
        write(*(("gaps", gaps) if "gaps" in at else ("mask", mask)))
        write("values", values)
