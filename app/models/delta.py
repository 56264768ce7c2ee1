"""Updates of a model file that contain only what changed, and are applied without loss.

A delta is a safetensors file of bytes. Its metadata name the base and the result by their SHA-256
and say what the result is made of (``layout``): bytes of the base, tensors of the delta
(``NAME@whole``), and tensors of the base of which some items change. Which ones and by how much
are two zlib streams, ``NAME@places`` and ``NAME@values``: see ``places_from``, ``values_from``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, ValidationError

from app.models.catalogue import Sha256
from app.models.download import (
    Progress,
    Report,
    ignore_progress,
    megabytes,
    require_space,
    sha256_of,
)
from pipeline.engines.tensor_file import DAMAGED, FileSegment, safetensors
from pipeline.errors import WeightsError

SUFFIX = ".delta.safetensors"
FORMAT = "reachy-voice-delta-2"
CHUNK_BYTES = 1 << 20
"""Tensor bytes per chunk: part of the file format."""
FLUSH_BYTES = 64 << 20
"""Bytes between two flushes, which let the disk work in parallel."""
MOST_HEADER_BYTES = 2 << 20
"""Room for some 6,000 tensors that change. Reading it takes up to 32 times as much memory."""
PASS = 255
MOST_ITEM_BYTES = 4096

Bytes = NDArray[np.uint8]
Count = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(max_length=1000)]
Copy = tuple[Literal["copy"], Count, Count]
"""Start and size of bytes of the base."""
Put = tuple[Literal["put"], Name]
"""The tensor ``NAME@whole``."""
ItemBytes = Annotated[int, Field(ge=1, le=MOST_ITEM_BYTES)]
Patch = tuple[Literal["patch"], Name, Count, Count, ItemBytes, Count]
"""A tensor of the base: its name, start, items, bytes of an item, and how many items change."""
Step = Copy | Put | Patch


class BadDelta(WeightsError):
    """The delta is damaged or malicious, or does not belong to this file."""


class DeltaInfo(BaseModel):
    """The metadata of a delta."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["reachy-voice-delta-2"]
    base_sha256: Sha256
    base_bytes: Count
    result_sha256: Sha256
    result_bytes: Count
    licence: str = ""
    tool: str = ""
    layout: Annotated[list[Step], FailFast(), BeforeValidator(json.loads)]


@dataclass(frozen=True, slots=True)
class Delta:
    """A delta whose header is consistent; its data are checked while it is applied."""

    path: Path
    info: DeltaInfo
    parts: Mapping[str, FileSegment]

    @property
    def changed(self) -> tuple[int, int]:
        """Items that changed, and all items of the tensors that can be compared."""
        patches = [step[-3:] for step in self.info.layout if step[0] == "patch"]
        return sum(changed for _, _, changed in patches), sum(items for items, _, _ in patches)


# --- reading -----------------------------------------------------------------------------------


def read_delta(path: Path) -> Delta:
    """Raises ``BadDelta``."""
    try:
        with path.open("rb") as file:
            metadata, pieces = safetensors(file, path.stat().st_size, MOST_HEADER_BYTES)
        if len(metadata) > len(DeltaInfo.model_fields):
            raise ValueError("its metadata are not those of a delta")
        if not all(piece.kind for piece in pieces[1:]):
            raise ValueError("its tensors do not fill it")
        info = DeltaInfo.model_validate(metadata)
        delta = Delta(path, info, {piece.name: piece for piece in pieces[1:]})
        _check(delta)
    except DAMAGED as error:
        raise _bad(path, _reason(error)) from error
    return delta


def _check(delta: Delta) -> None:
    """Raises ``ValueError`` or ``KeyError`` unless the layout fits the tensors and the sizes."""
    info, copy_bytes, put_bytes = delta.info, 0, 0
    names: list[str] = []
    for step in info.layout:
        match step:
            case "put", name:
                put_bytes += delta.parts[f"{name}@whole"].size
                names.append(name)
                continue
            case "copy", start, size:
                pass
            case "patch", name, start, items, item_bytes, _:
                size = items * item_bytes
                _streams(delta, name)
                names.append(name)
        if start + size > info.base_bytes:
            raise ValueError("it reads beyond the end of the base")
        copy_bytes += size
    if len(set(names)) < len(names) or copy_bytes > info.base_bytes:
        raise ValueError("it uses a part twice")
    if copy_bytes + put_bytes != info.result_bytes:
        raise ValueError("its parts do not add up to the result")


def _streams(delta: Delta, name: str) -> tuple[FileSegment, FileSegment]:
    return delta.parts[f"{name}@places"], delta.parts[f"{name}@values"]


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"its metadata are not those of a delta ({first['msg']})"
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    return str(error)


def _bad(path: Path, why: str) -> BadDelta:
    return BadDelta(
        f"{path.name} cannot be applied",
        why=why,
        fix="Nothing was changed. Fetch it again; if that does not help, do not trust its source",
    )


# --- items -------------------------------------------------------------------------------------


def chunks(file: BinaryIO, start: int, items: int, item_bytes: int = 1) -> Iterator[Bytes]:
    """Yield a file's items in chunks. A chunk is valid until the next but one is made."""
    many = CHUNK_BYTES // item_bytes
    buffers = [np.empty(min(many, items) * item_bytes, np.uint8) for _ in range(2)]
    for first in range(0, items, many):
        buffers.reverse()
        chunk = buffers[0][: (items - first) * item_bytes]
        file.seek(start + first * item_bytes)
        if file.readinto(chunk.data) < len(chunk):  # type: ignore[attr-defined]
            raise WeightsError(
                f"{file.name} became shorter meanwhile", fix="Nothing was changed. Try it again"
            )
        yield chunk


def as_items(data: Bytes, item_bytes: int) -> NDArray[Any]:
    """Numbers if they are as large as an item, else rows of bytes."""
    numbers = item_bytes in (1, 2, 4, 8)
    return data.view(f"u{item_bytes}") if numbers else data.reshape(-1, item_bytes)


def places_to(places: NDArray[np.intp]) -> bytes:
    """Encode each place as the number of items to pass before it; 255 passes that many and changes
    none. The number of codes comes first, in 4 bytes."""
    gaps = np.diff(places, prepend=-1) - 1
    ends = np.cumsum(gaps // PASS + 1)
    codes = np.full(int(ends[-1]) if len(ends) else 0, PASS, np.uint8)
    codes[ends - 1] = gaps % PASS
    return len(codes).to_bytes(4, "little") + codes.tobytes()


def places_from(read: Callable[[int], Bytes], items: int) -> NDArray[np.int32]:
    """The inverse of ``places_to``. ``read`` returns the next bytes, as many as asked for."""
    length = int.from_bytes(read(4).tobytes(), "little")
    gaps = read(min(length, items))
    after = np.cumsum(gaps + (gaps < PASS), dtype=np.int32)
    if length > items or (length and after[-1] > items):
        raise _DoesNotFit("it changes items beyond the end of a tensor")
    places: NDArray[np.int32] = after[gaps < PASS] - 1
    return places


def values_to(old: NDArray[Any], new: NDArray[Any], item_bytes: int) -> bytes:
    """Encode how much is added to each item. Most changes are small, and compress well if the sign
    is the lowest bit and the lowest bytes of all items come first, then the next."""
    changes = (new - old).view(f"i{old.itemsize}")
    codes = (changes << 1) ^ (changes >> (8 * changes.itemsize - 1))
    planes: bytes = codes.view(np.uint8).reshape(len(old), item_bytes).T.tobytes()
    return planes


def values_from(data: Bytes, item_bytes: int) -> NDArray[Any]:
    """The inverse of ``values_to``: what is added."""
    rows = np.ascontiguousarray(data.reshape(item_bytes, len(data) // item_bytes).T).reshape(-1)
    codes = as_items(rows, item_bytes)
    return (codes >> 1) ^ -(codes & 1)


# --- applying ----------------------------------------------------------------------------------


def apply(
    delta: Delta, base: Path, target: Path | None = None, report: Report = ignore_progress
) -> None:
    """Write the result to ``target`` (default: in the place of ``base``), in one step, if its
    digest is right. Raises ``WeightsError``; then, or if ``report`` raises, nothing has changed."""
    info, target = delta.info, target or base
    if not base.is_file() or base.stat().st_size != info.base_bytes:
        raise _wrong_base(delta, base)
    with (
        new_file(target, info.result_bytes, base) as out,
        base.open("rb", 0) as old,
        delta.path.open("rb", 0) as new,
    ):

        def tell(done: int) -> None:
            report(Progress(target.name, done, info.result_bytes))

        try:
            digest = _write(_result(delta, old, new), out, tell)
        except (_DoesNotFit, zlib.error) as error:
            raise _bad(delta.path, str(error)) from error
        if digest != info.result_sha256:
            if sha256_of(base) != info.base_sha256:
                raise _wrong_base(delta, base)
            raise _bad(delta.path, "the result is not what it promises, so it is damaged")
        if target == base and not os.path.samestat(os.fstat(old.fileno()), base.stat()):
            raise _wrong_base(delta, base, "it was replaced meanwhile; ")


def apply_all(
    deltas: Sequence[Delta], base: Path, target: Path, report: Report = ignore_progress
) -> None:
    """Apply them in order. Raises ``WeightsError``; then ``target`` has not changed."""
    half = target.with_name(f".{target.name}.half")
    try:
        for number, delta in enumerate(deltas, 1):
            apply(delta, base, half if number < len(deltas) else target, report)
            base = half
    finally:
        half.unlink(missing_ok=True)


class _DoesNotFit(Exception):
    """The data of a delta contradict its header."""


def _write(parts: Iterator[Bytes], out: BinaryIO, report: Callable[[int], None]) -> str:
    """Write the parts, and return their digest. Hashing and flushing run in parallel."""
    digest, size, flushed_size = hashlib.sha256(), 0, 0
    with ThreadPoolExecutor(2) as beside:
        hashing = flushing = beside.submit(out.flush)
        for chunk in parts:
            hashing.result()
            hashing = beside.submit(digest.update, chunk.data)
            out.write(chunk.data)
            size += len(chunk)
            if size - flushed_size >= FLUSH_BYTES and flushing.done():
                flushing.result()
                flushing, flushed_size = beside.submit(os.fsync, out.fileno()), size
            report(size)
    flushing.result()
    return digest.hexdigest()


def _result(delta: Delta, old: BinaryIO, new: BinaryIO) -> Iterator[Bytes]:
    for step in delta.info.layout:
        match step:
            case "copy", start, size:
                yield from chunks(old, start, size)
            case "put", name:
                whole = delta.parts[f"{name}@whole"]
                yield from chunks(new, whole.start, whole.size)
            case "patch", name, start, count, item_bytes, _:
                places, values = (_Inflated(new, each) for each in _streams(delta, name))
                for chunk in chunks(old, start, count, item_bytes):
                    items = as_items(chunk, item_bytes)
                    where = places_from(places.read, len(items))
                    items[where] += values_from(values.read(len(where) * item_bytes), item_bytes)
                    yield chunk
                places.end()
                values.end()


class _Inflated:
    """Reads a zlib stream of a file."""

    def __init__(self, file: BinaryIO, piece: FileSegment) -> None:
        self._chunks = chunks(file, piece.start, piece.size)
        self._stream = zlib.decompressobj()

    def read(self, size: int) -> Bytes:
        data = bytearray()
        while len(data) < size:
            data += self._some(size - len(data))
        return np.frombuffer(data, np.uint8)

    def end(self) -> None:
        """Raises ``_DoesNotFit`` if there is more."""
        more = False
        while not (more or self._stream.eof):
            more = bool(self._some(1))
        if more or self._stream.unused_data or next(self._chunks, None) is not None:
            raise _DoesNotFit("it has more than it needs")

    def _some(self, most: int) -> bytes:
        data = self._stream.unconsumed_tail or bytes(next(self._chunks, b""))
        part = self._stream.decompress(data, most)
        if not data and not part:
            raise _DoesNotFit("a part of it ends too early")
        return part


def _wrong_base(delta: Delta, base: Path, but: str = "") -> BadDelta:
    info = delta.info
    return BadDelta(
        f"{delta.path.name} does not belong to {base.name}",
        why=f"{but}it was made from a file of {megabytes(info.base_bytes)} "
        f"with the sha256 {info.base_sha256[:16]}...",
        fix="Nothing was changed. Apply it to that file, or fetch the whole new model",
    )


@contextmanager
def new_file(target: Path, size: int, like: Path | None = None) -> Iterator[BinaryIO]:
    """Yields a file beside ``target`` that replaces it if the block succeeds, and is deleted
    otherwise. The next call overwrites what a crash left behind."""
    part = target.parent / f".{target.name}.part"
    try:
        with ExitStack() as after:
            folder = os.open(target.parent, os.O_RDONLY)
            after.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX)  # one at a time; released when it is closed
            part.unlink(missing_ok=True)
            after.callback(part.unlink, missing_ok=True)
            require_space(target.parent, size, target.name)
            with part.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if like is not None:
                shutil.copymode(like, part)
                with suppress(PermissionError):  # as root: its reader keeps access
                    os.chown(part, like.stat().st_uid, like.stat().st_gid)
            part.replace(target)
            with suppress(OSError):  # a network folder cannot
                os.fsync(folder)
    except OSError as error:
        raise WeightsError(
            f"{target} could not be written",
            why=str(error.strerror),
            fix=f"Nothing was changed. It needs a folder of yours with {megabytes(size)} free",
        ) from error
