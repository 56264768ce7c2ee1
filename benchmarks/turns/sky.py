"""The speech in ``sky.dsk``, the data file of Debian's beneath-a-steel-sky (the CD's edition).

``sky.dnr`` lists the files in it: their number as 32 bits, then for each its number (16 bits), its
offset (24 bits; in steps of 16 bytes if the highest is set) and its size (22 bits and 2 flags), all
little-endian. Numbers from 50,000 are spoken lines: 22 bytes, then samples of 8 bits at 11,025 Hz,
packed (``rnc``).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soxr

from benchmarks.harness.acoustics import Signal
from benchmarks.turns.clips import GameLine
from benchmarks.turns.rnc import unpack
from pipeline.audio import LISTEN_RATE

_RATE = 11_025
_SPEECH = range(50_000, 59_000)
"""Higher numbers are the opening and other sounds that are not lines."""

_HEADER_BYTES = 22
_STEP = 16


class Sky:
    """The dialogue of one data file and its index beside it."""

    name = "sky"

    def __init__(self, disk: Path) -> None:
        self._data = disk.read_bytes()
        self._index = disk.with_suffix(".dnr").read_bytes()

    def lines(self) -> list[GameLine]:
        """All packed lines, by number. The file does not say who speaks."""
        lines = []
        for at in range(4, 4 + 8 * int.from_bytes(self._index[:4], "little"), 8):
            entry = self._index[at : at + 8]
            number, offset, size = (
                int.from_bytes(part, "little") for part in (entry[:2], entry[2:5], entry[5:8])
            )
            if offset >> 23:
                offset = (offset & 0x7FFFFF) * _STEP
            if number in _SPEECH and size >> 22 == 0:
                lines.append(GameLine(str(number), "unknown", ((offset, size),)))
        return sorted(lines, key=lambda line: line.name)

    def sounds(self, line: GameLine) -> list[Signal]:
        """The line at 16 kHz. Raises ``ValueError`` if it is damaged."""
        return [self._sound(offset + _HEADER_BYTES, size) for offset, size in line.places]

    def _sound(self, offset: int, size: int) -> Signal:
        samples = np.frombuffer(unpack(self._data[offset : offset + size]), np.uint8)
        signal = (samples.astype(np.float32) - 128.0) / 128.0
        result: Signal = soxr.resample(signal, _RATE, LISTEN_RATE, quality="HQ")
        return result
