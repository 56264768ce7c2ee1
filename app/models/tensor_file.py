"""Where the tensors of a safetensors or GGUF file lie: pieces that cover every byte, in order."""

from __future__ import annotations

import itertools
import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.errors import WeightsError

MOST_HEADER_BYTES = 16 << 20
"""Of a safetensors file: some 100,000 tensors."""
MOST_AXES = 8
SUFFIXES = (".gguf", ".safetensors")


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
        gguf = file.read(4) == b"GGUF"
        file.seek(0)
        try:
            found = list(_gguf(file, size)) if gguf else _safetensors(file, size)
            return list(_covering(found, size))
        except (ValueError, TypeError, LookupError, RecursionError, OverflowError) as error:
            raise NotTensors(
                f"{path.name} cannot be read",
                why=str(error) or type(error).__name__,
                fix="It must be a whole safetensors or GGUF file",
            ) from error


def _covering(pieces: Sequence[Piece], size: int) -> Iterator[Piece]:
    """In order, with those between them. Raises ``ValueError`` if two overlap."""
    if len({piece.name for piece in pieces}) < len(pieces):
        raise ValueError("two parts have one name")
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
    if not 0 <= first <= last or any(type(axis) is not int or axis < 0 for axis in shape):
        raise ValueError(f"the place or the shape of {name!r} is wrong")
    size, count = last - first, math.prod(shape)
    item = size // count if count and size and size % count == 0 else 1
    return Piece(name, data + first, size, item, f"{given['dtype']} {shape}")


# --- GGUF --------------------------------------------------------------------------------------

_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Of ``enum gguf_type``, without texts and lists."""
_TEXT, _LIST, _U32 = 8, 9, 4
_BLOCK_BYTES: Mapping[int, Mapping[int, int]] = {
    1: {0: 4, 1: 2, 24: 1, 25: 2, 26: 4, 27: 8, 28: 8, 30: 2},
    32: {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 20: 18, 39: 17},
    256: {10: 84, 11: 110, 12: 144, 13: 176, 14: 210, 15: 292, 16: 66, 17: 74, 18: 98, 19: 50}
    | {21: 110, 22: 82, 23: 136, 29: 56, 34: 54, 35: 66},
}
"""Numbers in a block -> ``enum ggml_type`` -> bytes. Other types are compared byte by byte."""
_BLOCKS = {
    kind: (numbers, size) for numbers, of in _BLOCK_BYTES.items() for kind, size in of.items()
}


def _gguf(file: BinaryIO, size: int) -> Iterator[Piece]:
    """The counts, each entry of the metadata, the descriptions of the tensors, each tensor."""
    _, version, tensors, entries = _unpack(file, "IIQQ")
    if version not in (2, 3):
        raise ValueError(f"version {version} of GGUF is not known")
    if 13 * entries + 24 * tensors > size:
        raise ValueError("it is cut off, or its counts are wrong")
    yield Piece("@gguf", 0, file.tell())
    alignment = 32
    for _ in range(entries):
        start = file.tell()
        key, kind = _text(file, size), _unpack(file, "I")[0]
        value = file.tell()
        _pass_value(file, kind, size)
        end = file.tell()
        if key == "general.alignment" and kind == _U32:
            file.seek(value)
            (alignment,) = _unpack(file, "I")
        yield Piece(f"@key:{key}", start, end - start)
        file.seek(end)
    start = file.tell()
    heads = [_tensor_head(file, size) for _ in range(tensors)]
    yield Piece("@tensors", start, file.tell() - start)
    data = -(-file.tell() // max(1, alignment)) * max(1, alignment)
    ends = sorted({offset for *_, offset in heads} | {size - data})
    after = dict(itertools.pairwise(ends))
    for name, shape, kind, offset in heads:
        numbers, block = _BLOCKS.get(kind, (0, 1))
        count = math.prod(shape)
        known = numbers and count % numbers == 0
        length = count // numbers * block if known else after.get(offset, 0) - offset
        if length < 0:
            raise ValueError(f"the place of {name!r} is wrong")
        item = block if known else 1
        yield Piece(name, data + offset, length, item, kind=f"{kind} {list(shape)}")


def _tensor_head(file: BinaryIO, size: int) -> tuple[str, tuple[int, ...], int, int]:
    name, (axes,) = _text(file, size), _unpack(file, "I")
    if axes > MOST_AXES:
        raise ValueError(f"{name!r} has {axes} axes")
    shape = _unpack(file, f"{axes}Q")
    kind, offset = _unpack(file, "IQ")
    return name, shape, kind, offset


def _unpack(file: BinaryIO, kinds: str) -> tuple[int, ...]:
    form = struct.Struct(f"<{kinds}")
    data = file.read(form.size)
    if len(data) < form.size:
        raise ValueError("it is cut off")
    return form.unpack(data)


def _text(file: BinaryIO, size: int) -> str:
    (length,) = _unpack(file, "Q")
    if length > size - file.tell():
        raise ValueError("it is cut off")
    return file.read(length).decode()


def _pass_value(file: BinaryIO, kind: int, size: int) -> None:
    counts = [1]
    if kind == _LIST:
        kind, count = _unpack(file, "IQ")
        counts = [count]
    if kind == _TEXT:
        if counts[0] * 8 > size:
            raise ValueError("it is cut off")
        for _ in range(counts[0]):
            (length,) = _unpack(file, "Q")
            _pass(file, length, size)
    else:
        _pass(file, counts[0] * _SCALAR_BYTES[kind], size)


def _pass(file: BinaryIO, length: int, size: int) -> None:
    if length > size - file.tell():
        raise ValueError("it is cut off")
    file.seek(length, 1)
