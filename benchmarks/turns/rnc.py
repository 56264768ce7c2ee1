"""Unpacks "RNC" data, method 1, of Rob Northen's packer, which old games use.

A packed block is a header of 18 bytes (``RNC``, 1, unpacked and packed length as 32 bits
big-endian, two check sums, two counts), then chunks. A chunk has three Huffman tables, the number
of its turns, and in each turn literal bytes, then a distance and a length to copy from the unpacked
data. Bits come from 16-bit little-endian words, lowest bit first; the literal bytes lie between
those words.
"""

from __future__ import annotations

import struct

_HEADER = struct.Struct(">3sBIIHHBB")
_SHORTEST_COPY = 2

_Codes = dict[tuple[int, int], int]
"""Symbol by (number of bits, bits in the order they come, first one highest)."""


def unpack(data: bytes) -> bytes:
    """Unpack the block at the start of ``data``. Raises ``ValueError`` if it is damaged."""
    if len(data) < _HEADER.size:
        raise ValueError("too short to be packed data")
    magic, method, length, _, _, _, _, chunks = _HEADER.unpack_from(data)
    if magic != b"RNC" or method != 1:
        raise ValueError("not packed by RNC method 1")
    bits = _Bits(data, _HEADER.size)
    bits.take(2)
    out = bytearray()
    for _ in range(chunks):
        literals, distances, copies = (_table(bits) for _ in range(3))
        turns = bits.take(16)
        for turn in range(turns):
            out += bits.raw(_value(bits, literals))
            if turn < turns - 1:
                back = _value(bits, distances) + 1
                count = _value(bits, copies) + _SHORTEST_COPY
                if back > len(out):
                    raise ValueError("packed data is damaged")
                for _ in range(count):
                    out.append(out[-back])
    if len(out) != length:
        raise ValueError("packed data is damaged")
    return bytes(out)


class _Bits:
    """A word is read only when its first bit is needed: literal bytes come after it."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._word = 0
        self._bits_left = 0

    def take(self, count: int) -> int:
        """The next ``count`` bits as a number, the first one lowest."""
        value = 0
        for place in range(count):
            if not self._bits_left:
                self._word = int.from_bytes(self._data[self._at : self._at + 2], "little")
                self._at += 2
                self._bits_left = 16
                if self._at > len(self._data) + 2:
                    raise ValueError("packed data ends too early")
            value |= (self._word & 1) << place
            self._word >>= 1
            self._bits_left -= 1
        return value

    def raw(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]


def _table(bits: _Bits) -> _Codes:
    """The codes of one Huffman table: shorter ones first, those of equal length by symbol."""
    lengths = [bits.take(4) for _ in range(bits.take(5))]
    codes: _Codes = {}
    code = 0
    for length in range(1, 16):
        for symbol, its_length in enumerate(lengths):
            if its_length == length:
                codes[(length, code)] = symbol
                code += 1
        code <<= 1
    return codes


def _value(bits: _Bits, codes: _Codes) -> int:
    """The next number: its symbol is its bit count; the highest bit is implied."""
    code = 0
    for length in range(1, 16):
        code = code << 1 | bits.take(1)
        if (symbol := codes.get((length, code))) is not None:
            return symbol if symbol < 2 else 1 << symbol - 1 | bits.take(symbol - 1)
    raise ValueError("packed data is damaged")
