"""How much of a context a GGUF file's model keeps, read from the file's beginning.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

MAGIC = b"GGUF"
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""Kinds of values by their number in the format -> how ``struct`` names them."""
_STRING, _ARRAY = 8, 9
LONGEST = 10**8
"""Bytes of the header that are read at most; vocabularies take some 10^7."""


def context_values_of(path: Path) -> int:
    """Numbers kept for each token, keys and values of all layers. 0 where the file does not tell.

    Layers that share another's, or have a window, count in full: that is too much rather than too
    little.
    """
    try:
        with path.open("rb") as file:
            return _context_values(_metadata(file))
    except (OSError, ValueError, struct.error, KeyError, TypeError, ZeroDivisionError):
        return 0


def _context_values(found: dict[str, Any]) -> int:
    family = found["general.architecture"]

    def value(name: str, otherwise: Any = None) -> Any:
        return found.get(f"{family}.{name}", otherwise)

    heads = value("attention.head_count")
    of_layers = value("attention.head_count_kv", heads)
    layers = value("block_count")
    heads_of_all = sum(of_layers) if isinstance(of_layers, list) else of_layers * layers
    most = max(heads) if isinstance(heads, list) else heads
    usual = value("embedding_length", 0) // most
    size = value("attention.key_length", usual) + value("attention.value_length", usual)
    return int(heads_of_all * size)


def _metadata(file: BinaryIO) -> dict[str, Any]:
    """Strings, numbers and lists of numbers. Raises ``ValueError`` and ``struct.error``."""
    if file.read(4) != MAGIC:
        raise ValueError("no GGUF")
    _version, _tensors, count = _read(file, "IQQ")
    found: dict[str, Any] = {}
    for _ in range(count):
        name = _string(file)
        found[name] = _value(file, _read(file, "I")[0])
        if file.tell() > LONGEST:
            raise ValueError("the header is too long")
    return found


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        if kind not in _NUMBERS:
            raise ValueError(f"no kind of value: {kind}")
        return _read(file, _NUMBERS[kind])[0]
    inner, length = _read(file, "IQ")
    if length > LONGEST or inner not in (*_NUMBERS, _STRING):
        raise ValueError("a list that is too long, or of lists")
    if inner == _STRING:
        for _ in range(length):
            _string(file)
        return None
    return list(_read(file, f"{length}{_NUMBERS[inner]}"))


def _string(file: BinaryIO) -> str:
    (length,) = _read(file, "Q")
    if length > LONGEST:
        raise ValueError("a string is too long")
    return file.read(length).decode("utf-8", "replace")


def _read(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    layout = f"<{layout}"
    return struct.unpack(layout, file.read(struct.calcsize(layout)))
