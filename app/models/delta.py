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
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
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
    with new_file(target, info.result_bytes, base) as out:
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
        return read_into(file, start, buffers[0][:size])

    for step in delta.info.layout:
        if step[0] == "patch":
            _, name, start, count, item = step
            for first, size, places, values in _changes(delta, name, new, count, item):
                items = filled(old, start + first * item, size * item)
                as_items(items, item)[places] = as_items(values, item)
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
    for first, size in parts_of(count, item):
        if piece.name.endswith("@mask"):
            bits = read_into(file, piece.start + first // 8, np.empty(-(-size // 8), np.uint8))
            places = np.flatnonzero(np.unpackbits(bits, bitorder="little")[:size])
        else:
            end = first + size
            while read < piece.size and (at < end or end == count):
                gaps = np.empty(min(GAPS, piece.size - read), np.uint8)
                read_into(file, piece.start + read, gaps)
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
        read_into(file, values.start + used, replaced)
        used += len(replaced)
        yield first, size, places, replaced
    if used < values.size or (read < piece.size and not piece.name.endswith("@mask")):
        raise _DoesNotFit(f"it has too many values for {name!r}")


def parts_of(count: int, item: int) -> Iterator[tuple[int, int]]:
    """First item and number of items; multiples of 8, so that masks are cut between bytes."""
    many = CHUNK_BYTES // item // 8 * 8
    return ((first, min(many, count - first)) for first in range(0, count, many))


def as_items(data: Bytes, item: int) -> NDArray[Any]:
    """Numbers if they are as large as an item, which is faster; else rows of bytes."""
    return data.view(_UNSIGNED[item]) if item in _UNSIGNED else data.reshape(-1, item)


def read_into(file: BinaryIO, start: int, into: Bytes) -> Bytes:
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
def new_file(target: Path, size: int, like: Path | None = None) -> Iterator[BinaryIO]:
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
