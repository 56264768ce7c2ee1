"""Where the tensors of a safetensors or GGUF file lie: pieces that cover every byte, in order."""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.errors import WeightsError

MOST_HEADER_BYTES = 16 << 20
"""Of a safetensors file: some 100,000 tensors."""
MOST_AXES = 8
MOST_DTYPE_BYTES = 16
SUFFIXES = (".gguf", ".safetensors")


_DAMAGED = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, struct.error)


class NotTensors(WeightsError):
    """A file that is not well-formed."""


@dataclass(frozen=True, slots=True)
class Piece:
    """``item``: bytes that change together, an element or a block of a quantised tensor. ``kind``:
    type and shape; tensors that differ in it cannot be compared item by item. Names of pieces that
    are no tensors begin with ``@``."""

    name: str
    start: int
    size: int
    item: int = 1
    kind: str = ""


def pieces_of(path: Path) -> list[Piece]:
    """Raises ``NotTensors``."""
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            if file.read(4) == b"GGUF":
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    found = list(_gguf(data))
            else:
                file.seek(0)
                found = _safetensors(file, size)
            pieces = list(_covering(found, size))
            if len({piece.name for piece in pieces}) < len(pieces):
                raise ValueError("two parts have one name")
            return pieces
        except _DAMAGED as error:
            raise NotTensors(
                f"{path.name} cannot be read",
                why=str(error) or type(error).__name__,
                fix="It must be a whole safetensors or GGUF file",
            ) from error


def _covering(pieces: Sequence[Piece], size: int) -> Iterator[Piece]:
    """In order, with those between them. Raises ``ValueError`` if two overlap."""
    at = gaps = 0
    for piece in sorted(pieces, key=lambda each: (each.start, each.size)):
        if piece.start < at or piece.start + piece.size > size:
            raise ValueError(f"{piece.name!r} overlaps another part or the end of the file")
        if piece.start > at:
            yield Piece(f"@gap:{gaps}", at, piece.start - at)
            gaps += 1
        yield piece
        at = piece.start + piece.size
    if at < size:
        yield Piece(f"@gap:{gaps}", at, size - at)


# --- safetensors -------------------------------------------------------------------------------


def header_of(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """The JSON header of a safetensors file, and where the data begin. Raises ``ValueError``."""
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or not 2 <= length <= min(MOST_HEADER_BYTES, size - 8):
        raise ValueError("it is neither GGUF nor safetensors, or it is cut off")
    header = json.loads(file.read(length), object_pairs_hook=_once)
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    return header, 8 + length


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in its header")
    return found


def _safetensors(file: BinaryIO, size: int) -> list[Piece]:
    header, data = header_of(file, size)
    header.pop("__metadata__", None)
    return [Piece("@header", 0, data), *(_tensor(n, v, data) for n, v in header.items())]


def _tensor(name: str, given: dict[str, Any], data: int) -> Piece:
    (first, last), shape = given["data_offsets"], given["shape"]
    if first > last or any(
        type(number) is not int or number < 0 for number in (first, last, *shape)
    ):
        raise ValueError(f"the place or the shape of {name!r} is wrong")
    size, count = last - first, math.prod(shape)
    item = size // count if count and size % count == 0 else 0
    item = item if 1 <= item <= MOST_DTYPE_BYTES else 1  # smaller than a byte, or no such type
    return Piece(name, data + first, size, item, f"{given['dtype']} {shape}")


# --- GGUF --------------------------------------------------------------------------------------

_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Of ``enum gguf_type``, without texts and lists."""
_TEXT, _LIST = 8, 9
_BLOCK_BYTES: Mapping[int, Mapping[int, int]] = {
    1: {0: 4, 1: 2, 24: 1, 25: 2, 26: 4, 27: 8, 28: 8, 30: 2},
    32: {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 20: 18, 39: 17},
    256: {10: 84, 11: 110, 12: 144, 13: 176, 14: 210, 15: 292, 16: 66, 17: 74, 18: 98, 19: 50}
    | {21: 110, 22: 82, 23: 136, 29: 56, 34: 54, 35: 66},
}
"""Numbers in a block -> ``enum ggml_type`` -> bytes. Tensors of other types are gaps, which
are compared byte by byte."""
_BLOCKS = {
    kind: (numbers, size) for numbers, of in _BLOCK_BYTES.items() for kind, size in of.items()
}


def _gguf(data: mmap.mmap) -> Iterator[Piece]:
    """The counts, each entry of the metadata, the descriptions of the tensors, each tensor."""
    reader = _Reader(data)
    _, version, tensors, entries = reader.unpack("IIQQ")
    if version not in (2, 3):
        raise ValueError(f"version {version} of GGUF is not known")
    yield Piece("@gguf", 0, reader.at)
    alignment = 32
    for _ in range(entries):
        start = reader.at
        key, (kind,) = reader.text(), reader.unpack("I")
        if key == "general.alignment":
            (alignment,) = struct.unpack_from("<I", data, reader.at)
        reader.skip(kind)
        yield Piece(f"@key:{key}", start, reader.at - start)
    start = reader.at
    heads = [reader.tensor() for _ in range(tensors)]
    yield Piece("@tensors", start, reader.at - start)
    begin = -(-reader.at // alignment) * alignment
    for name, shape, kind, offset in heads:
        numbers, block = _BLOCKS.get(kind, (0, 0))
        if numbers and math.prod(shape) % numbers == 0:
            size = math.prod(shape) // numbers * block
            yield Piece(name, begin + offset, size, block, f"{kind} {list(shape)}")


class _Reader:
    """Reads a GGUF file from ``at`` on. Raises ``struct.error`` behind its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def unpack(self, kinds: str) -> tuple[int, ...]:
        form = struct.Struct(f"<{kinds}")
        found = form.unpack_from(self.data, self.at)
        self.at += form.size
        return found

    def text(self) -> str:
        (length,) = self.unpack("Q")
        if length > MOST_HEADER_BYTES:
            raise ValueError("a name in it is too long")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def skip(self, kind: int) -> None:
        """Pass a value."""
        count = 1
        if kind == _LIST:
            kind, count = self.unpack("IQ")
        if kind != _TEXT:
            self.at += count * _SCALAR_BYTES[kind]
            return
        for _ in range(count):
            (length,) = self.unpack("Q")
            self.at += length

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape, type and place."""
        name, (axes,) = self.text(), self.unpack("I")
        if axes > MOST_AXES:
            raise ValueError(f"{name!r} has {axes} axes")
        shape, (kind, offset) = self.unpack(f"{axes}Q"), self.unpack("IQ")
        return name, shape, kind, offset
