"""The layout of a safetensors or GGUF file: pieces that cover every byte, in order."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.errors import WeightsError, text_of

MOST_HEADER_BYTES = 16 << 20
"""For a safetensors file: enough for some 100,000 tensors."""
MOST_NAME_BYTES = 65_535
"""For a GGUF file."""
MOST_AXES = 8
MOST_DTYPE_BYTES = 16
SUFFIXES = (".gguf", ".safetensors")

DAMAGED = OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError, struct.error
"""What reading a malformed file raises."""


class NotTensors(WeightsError):
    """The file is malformed."""


@dataclass(frozen=True, slots=True)
class FileSegment:
    name: str
    """Names of pieces that are not tensors begin with ``@``."""
    start: int
    size: int
    item: int = 1
    """Bytes that change together: one element, or one block of a quantised tensor."""
    kind: str = ""
    """Type and shape; only tensors of one kind can be compared item by item."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor; other segments have none."""
        return tuple(json.loads(self.kind[self.kind.index("[") :]))


def pieces_of(path: Path) -> list[FileSegment]:
    """All pieces of the file. Raises ``NotTensors``."""
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            if file.read(4) == b"GGUF":
                return _cover(_gguf(file), size)
            file.seek(0)
            return safetensors(file, size, MOST_HEADER_BYTES)[1]
        except DAMAGED as error:
            raise NotTensors(
                f"{path.name} cannot be read",
                why=text_of(error),
                fix="It must be a whole safetensors or GGUF file",
            ) from error


def _cover(pieces: Iterable[FileSegment], size: int) -> list[FileSegment]:
    """``pieces`` in order, and the gaps between them. Raises ``ValueError`` if two pieces overlap
    or share a name."""
    segments: list[FileSegment] = []
    at = gaps = 0
    in_order = sorted(pieces, key=lambda each: (each.start, each.size))
    for piece in (*in_order, FileSegment("@end", size, 0)):
        if piece.start < at or piece.start + piece.size > size:
            raise ValueError(f"{piece.name!r} overlaps another part or the end of the file")
        if piece.start > at:
            segments.append(FileSegment(f"@gap:{gaps}", at, piece.start - at))
            gaps += 1
        segments.append(piece)
        at = piece.start + piece.size
    if len({piece.name for piece in segments}) < len(segments):
        raise ValueError("two parts have one name")
    return segments[:-1]


# --- safetensors -------------------------------------------------------------------------------


def safetensors(file: BinaryIO, size: int, most_header_bytes: int) -> tuple[Any, list[FileSegment]]:
    """The metadata as they are in the file, and the pieces. Raises any of ``DAMAGED``."""
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or not 2 <= length <= min(most_header_bytes, size - 8):
        raise ValueError("it is neither GGUF nor safetensors, cut off, or its header is too large")
    header = json.loads(file.read(length), object_pairs_hook=_once)
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    metadata, data = header.pop("__metadata__", {}), 8 + length
    tensors = [_tensor(name, entry, data) for name, entry in header.items()]
    return metadata, _cover([FileSegment("@header", 0, data), *tensors], size)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice in its header")
    return members


def _tensor(name: str, entry: dict[str, Any], data: int) -> FileSegment:
    (first, last), shape = entry["data_offsets"], entry["shape"]
    counts = all(type(number) is int and number >= 0 for number in (first, last, *shape))
    if not counts or first > last or len(shape) > MOST_AXES:
        raise ValueError(f"the place or the shape of {name!r} is wrong")
    size, count = last - first, math.prod(shape)
    item = size // count if count and size % count == 0 else 0
    item = item if 1 <= item <= MOST_DTYPE_BYTES else 1  # below one byte, or not a real type
    return FileSegment(name, data + first, size, item, f"{entry['dtype']} {shape}")


# --- GGUF --------------------------------------------------------------------------------------

_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""``enum gguf_type`` -> bytes, for all types but texts and lists."""
_UINT32, _TEXT, _LIST = 4, 8, 9
BLOCK_BYTES: Mapping[int, Mapping[int, int]] = {
    1: {0: 4, 1: 2, 24: 1, 25: 2, 26: 4, 27: 8, 28: 8, 30: 2},
    32: {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 20: 18, 39: 17},
    64: {40: 36, 42: 18},
    128: {41: 18},
    256: {10: 84, 11: 110, 12: 144, 13: 176, 14: 210, 15: 292, 16: 66, 17: 74, 18: 98, 19: 50}
    | {21: 110, 22: 82, 23: 136, 29: 56, 34: 54, 35: 66},
}
"""Numbers in a block -> ``enum ggml_type`` -> bytes. Tensors of other types count as gaps, which
are compared byte by byte."""


def _gguf(file: BinaryIO) -> Iterator[FileSegment]:
    """Segments in file order: counts, each metadata entry, tensor descriptions, each tensor."""
    version, tensors, entries = _unpack(file, "IQQ")
    if version not in (2, 3):
        raise ValueError(f"version {version} of GGUF is not known")
    yield FileSegment("@gguf", 0, file.tell())
    alignment = 32
    for _ in range(entries):
        start = file.tell()
        key, (kind,) = _name(file), _unpack(file, "I")
        if (key, kind) == ("general.alignment", _UINT32):
            (alignment,) = _unpack(file, "I")
        else:
            _skip(file, kind)
        yield FileSegment(f"@key:{key}", start, file.tell() - start)
    start = file.tell()
    heads = [_head(file) for _ in range(tensors)]
    yield FileSegment("@tensors", start, file.tell() - start)
    begin = -(-file.tell() // alignment) * alignment
    for name, shape, kind, offset in heads:
        for numbers, block_bytes in BLOCK_BYTES.items():
            if kind in block_bytes and math.prod(shape) % numbers == 0:
                block = block_bytes[kind]
                size = math.prod(shape) // numbers * block
                yield FileSegment(name, begin + offset, size, block, f"{kind} {list(shape)}")


def _unpack(file: BinaryIO, kinds: str) -> tuple[int, ...]:
    """Raises ``struct.error`` at the end of the file."""
    form = struct.Struct(f"<{kinds}")
    return form.unpack(file.read(form.size))


def _name(file: BinaryIO) -> str:
    (length,) = _unpack(file, "Q")
    if length > MOST_NAME_BYTES:
        raise ValueError("a name in it is too long")
    return file.read(length).decode()


def _skip(file: BinaryIO, kind: int) -> None:
    """Skip a metadata value."""
    count = 1
    if kind == _LIST:
        kind, count = _unpack(file, "IQ")
    if kind != _TEXT:
        file.seek(count * _SCALAR_BYTES[kind], 1)
        return
    for _ in range(count):
        (length,) = _unpack(file, "Q")
        file.seek(length, 1)


def _head(file: BinaryIO) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, type and offset of a tensor."""
    name, (axes,) = _name(file), _unpack(file, "I")
    if axes > MOST_AXES:
        raise ValueError(f"{name!r} has {axes} axes")
    shape, (kind, offset) = _unpack(file, f"{axes}Q"), _unpack(file, "IQ")
    return name, shape, kind, offset
