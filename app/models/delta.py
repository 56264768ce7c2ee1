"""Updates of a model file that contain only what changed, and are applied without loss.

A delta is a safetensors file of bytes. Its metadata name the base and the result by their SHA-256
and say what the result is made of (``layout``): bytes of the base, tensors of the delta
(``NAME@whole``), and tensors of the base of which some items change. Which ones and by how much
are two zlib streams, ``NAME@places`` and ``NAME@values``: see ``places_from``, ``values_from``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, FailFast, Field, Json, ValidationError

from app.models.catalogue import Sha256
from app.models.download import (
    Progress,
    Report,
    ignore_progress,
    megabytes,
    require_space,
    sha256_of,
)
from app.models.tensor_file import Piece, header_of, pieces_of
from pipeline.errors import WeightsError

SUFFIX = ".delta.safetensors"
FORMAT = "reachy-voice-delta-2"
CHUNK_BYTES = 1 << 20
"""Of a tensor: handled at once, so part of the format."""
FLUSH_BYTES = 64 << 20
"""Written bytes are sent to the disk after so many: it works while the rest is made."""
PASS = 255
MOST_ITEM_BYTES = 4096

Bytes = NDArray[np.uint8]
Count = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(max_length=1000)]


class Copy(NamedTuple):
    """Bytes of the base."""

    step: Literal["copy"]
    start: Count
    size: Count


class Put(NamedTuple):
    """``NAME@whole``."""

    step: Literal["put"]
    name: Name


class Patch(NamedTuple):
    """Items of the base, of which ``changed`` change."""

    step: Literal["patch"]
    name: Name
    start: Count
    items: Count
    item_bytes: Annotated[int, Field(ge=1, le=MOST_ITEM_BYTES)]
    changed: Count


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
    layout: Json[Annotated[list[Copy | Put | Patch], FailFast()]]


@dataclass(frozen=True, slots=True)
class Delta:
    """A delta whose header is consistent; its data are checked while it is applied."""

    path: Path
    info: DeltaInfo
    parts: Mapping[str, Piece]

    @property
    def changed(self) -> tuple[int, int]:
        """Items that changed, and all items of the tensors that can be compared."""
        patches = [step for step in self.info.layout if isinstance(step, Patch)]
        return sum(each.changed for each in patches), sum(each.items for each in patches)


# --- reading -----------------------------------------------------------------------------------


def read_delta(path: Path) -> Delta:
    """Raises ``BadDelta``."""
    try:
        with path.open("rb") as file:
            header, _ = header_of(file, path.stat().st_size)
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
    used: list[str] = []
    for step in info.layout:
        if isinstance(step, Put):
            put += delta.parts[f"{step.name}@whole"].size
            used.append(step.name)
            continue
        if isinstance(step, Patch):
            _streams(delta, step.name)
            used.append(step.name)
        size = step.size if isinstance(step, Copy) else step.items * step.item_bytes
        if step.start + size > info.base_bytes:
            raise ValueError("it reads beyond the end of the base")
        reused += size
    if len(set(used)) < len(used) or reused > info.base_bytes:
        raise ValueError("it uses a part twice")
    if reused + put != info.result_bytes:
        raise ValueError("its parts do not add up to the result")


def _streams(delta: Delta, name: str) -> tuple[Piece, Piece]:
    return delta.parts[f"{name}@places"], delta.parts[f"{name}@values"]


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


# --- items -------------------------------------------------------------------------------------

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def parts_of(count: int, item_bytes: int) -> Iterator[tuple[int, int]]:
    """The chunks of a tensor: first item and number of items."""
    many = CHUNK_BYTES // item_bytes
    return ((first, min(many, count - first)) for first in range(0, count, many))


def as_items(data: Bytes, item_bytes: int) -> NDArray[Any]:
    """Numbers if they are as large as an item, else rows of bytes."""
    numbers = _UNSIGNED.get(item_bytes)
    return data.view(numbers) if numbers else data.reshape(-1, item_bytes)


def places_to(places: NDArray[np.intp]) -> bytes:
    """For each place how many items to pass before it; 255 passes as many and changes none.
    Before them, in 4 bytes, their number."""
    gaps = np.diff(places, prepend=-1) - 1
    ends = np.cumsum(gaps // PASS + 1)
    coded = np.full(int(ends[-1]) if len(ends) else 0, PASS, np.uint8)
    coded[ends - 1] = gaps % PASS
    return len(coded).to_bytes(4, "little") + coded.tobytes()


def places_from(read: Callable[[int], Bytes], items: int) -> NDArray[np.int32]:
    """The inverse of ``places_to``. ``read`` returns so many of its bytes."""
    length = int.from_bytes(read(4).tobytes(), "little")
    gaps = read(min(length, items))
    after = np.cumsum(gaps + (gaps < PASS), dtype=np.int32)
    if length > items or (length and after[-1] > items):
        raise _DoesNotFit("it changes items beyond the end of a tensor")
    places: NDArray[np.int32] = after[gaps < PASS] - 1
    return places


def values_to(old: NDArray[Any], new: NDArray[Any], item_bytes: int) -> bytes:
    """How much is added to each item: mostly little, which compresses well if the sign is the
    lowest bit, and the lowest bytes of all items come first, then the next."""
    added = (new - old).view(f"i{old.itemsize}")
    coded = (added << 1) ^ (added >> (8 * added.itemsize - 1))
    planes: bytes = coded.view(np.uint8).reshape(len(old), item_bytes).T.tobytes()
    return planes


def values_from(data: Bytes, item_bytes: int) -> NDArray[Any]:
    """The inverse of ``values_to``: what is added."""
    rows = np.ascontiguousarray(data.reshape(item_bytes, len(data) // item_bytes).T).reshape(-1)
    coded = as_items(rows, item_bytes)
    return (coded >> 1) ^ -(coded & 1)


# --- applying ----------------------------------------------------------------------------------


def apply(
    delta: Delta, base: Path, target: Path | None = None, report: Report = ignore_progress
) -> None:
    """Write the result to ``target`` (default: in the place of ``base``), in one step and only if
    it is right. Raises ``WeightsError``; then, or if ``report`` raises, nothing has changed."""
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
    """One after the other. Raises ``WeightsError``; then ``target`` has not changed."""
    half = target.with_name(f".{target.name}.half")
    try:
        for number, delta in enumerate(deltas, 1):
            apply(delta, base, half if number < len(deltas) else target, report)
            base = half
    finally:
        half.unlink(missing_ok=True)


class _DoesNotFit(Exception):
    """The data of a delta contradict its header."""


def _write(chunks: Iterator[Bytes], out: BinaryIO, report: Callable[[int], None]) -> str:
    """The digest of what is written. Hashing, and sending it to the disk, go on beside it. A chunk
    stays as it is until the next but one is made."""
    digest, done, sent = hashlib.sha256(), 0, 0
    hashed: Future[None] | None = None
    flushed: Future[None] | None = None
    with ThreadPoolExecutor(2) as beside:
        for chunk in chunks:
            if hashed is not None:
                hashed.result()
            hashed = beside.submit(digest.update, chunk.data)
            out.write(chunk.data)
            done += len(chunk)
            if done - sent >= FLUSH_BYTES and (flushed is None or flushed.done()):
                if flushed is not None:
                    flushed.result()
                flushed, sent = beside.submit(os.fsync, out.fileno()), done
            report(done)
    if flushed is not None:
        flushed.result()
    return digest.hexdigest()


def _result(delta: Delta, old: BinaryIO, new: BinaryIO) -> Iterator[Bytes]:
    buffers = [np.empty(CHUNK_BYTES, np.uint8) for _ in range(2)]

    def filled(file: BinaryIO, start: int, size: int) -> Bytes:
        buffers.reverse()
        return read_into(buffers[0][:size], file, start)

    for step in delta.info.layout:
        if not isinstance(step, Patch):
            put = isinstance(step, Put)
            piece = delta.parts[f"{step.name}@whole"] if isinstance(step, Put) else step
            for first, many in parts_of(piece.size, 1):
                yield filled(new if put else old, piece.start + first, many)
            continue
        places, values = (_Inflated(new, each) for each in _streams(delta, step.name))
        item = step.item_bytes
        for first, size in parts_of(step.items, item):
            items = filled(old, step.start + first * item, size * item)
            where = places_from(places.read, size)
            as_items(items, item)[where] += values_from(values.read(len(where) * item), item)
            yield items
        places.end()
        values.end()


class _Inflated:
    """Reads a zlib stream of a file."""

    def __init__(self, file: BinaryIO, piece: Piece) -> None:
        self._file = file
        self._at, self._end = piece.start, piece.start + piece.size
        self._stream = zlib.decompressobj()

    def read(self, size: int) -> Bytes:
        found = bytearray()
        while len(found) < size:
            found += self._some(size - len(found))
        return np.frombuffer(found, np.uint8)

    def end(self) -> None:
        """Raises ``_DoesNotFit`` if there is more."""
        while not self._stream.eof:
            if self._some(1):
                raise _DoesNotFit("it has more than it needs")
        if self._stream.unused_data or self._at < self._end:
            raise _DoesNotFit("it has more than it needs")

    def _some(self, most: int) -> bytes:
        data = self._stream.unconsumed_tail
        if not data and (size := min(CHUNK_BYTES, self._end - self._at)):
            data = read_into(np.empty(size, np.uint8), self._file, self._at).tobytes()
            self._at += size
        found = self._stream.decompress(data, most)
        if not data and not found:
            raise _DoesNotFit("a part of it ends too early")
        return found


def read_into(buffer: Bytes, file: BinaryIO, start: int) -> Bytes:
    """Fill and return ``buffer``."""
    file.seek(start)
    if file.readinto(buffer.data) < len(buffer):  # type: ignore[attr-defined]
        raise _DoesNotFit(f"{Path(file.name).name} became shorter meanwhile")
    return buffer


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
    """A file beside ``target`` that takes its place if the block ends well, and else is deleted.
    After a crash the next one writes over what is left."""
    part = target.parent / f".{target.name}.part"
    try:
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # one at a time; released when it is closed
            try:
                part.unlink(missing_ok=True)
                require_space(target.parent, size, target.name)
                with part.open("wb") as file:
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
