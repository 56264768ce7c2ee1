"""The speech in ``queen.1c``, the data file of Debian's flight-of-the-amazon-queen.

The file begins with ``QTBL``, six characters of a version, two flags, the kind of compression (1
is MP3) and the number of entries, 16 bits. An entry has a name of 12 characters, a flag, and the
offset and size of its data, 32 bits each; all numbers are big-endian. A name such as ``JOE00231``
is a line (``JOE0023``) and the number of its segment (1 to F): segments are spoken one after the
other by the same person.
"""

from __future__ import annotations

import io
import re
import struct
from collections import defaultdict
from pathlib import Path

import soundfile
import soxr

from benchmarks.harness.acoustics import Signal
from benchmarks.turns.clips import GameLine
from pipeline.audio import LISTEN_RATE

_HEADER = struct.Struct(">4s6s2xBH")
_ENTRY = struct.Struct(">12sxII")
_MP3 = 1
_JOE = re.compile(r"(JOE\d{4}|\w{6}J)")
_PERSON = re.compile(r"(?P<room>\d\d)\w{4}P")


class Queen:
    """The dialogue of one data file. Raises ``ValueError`` for a file of another kind."""

    name = "queen"

    def __init__(self, file: Path) -> None:
        self._data = file.read_bytes()
        magic, _, compression, self._entries = _HEADER.unpack_from(self._data)
        if magic != b"QTBL" or compression != _MP3:
            raise ValueError(f"{file} is not Flight of the Amazon Queen with MP3 speech")

    def lines(self) -> list[GameLine]:
        """All lines with a known speaker, by name. A line's first segment may be missing."""
        segments: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number in range(self._entries):
            place = _HEADER.size + number * _ENTRY.size
            name, offset, size = _ENTRY.unpack_from(self._data, place)
            stem, _, ending = name.rstrip(b"\0").decode("ascii").partition(".")
            if ending == "SB":
                segments[stem[:-1]].append((offset, size))
        lines = []
        for name, places in sorted(segments.items()):
            if _JOE.fullmatch(name):
                lines.append(GameLine(name, "joe", tuple(places)))
            elif person := _PERSON.fullmatch(name):
                lines.append(GameLine(name, f"room-{person['room']}", tuple(places)))
        return lines

    def sounds(self, line: GameLine) -> list[Signal]:
        """Each segment of ``line``, at 16 kHz."""
        return [_mp3(self._data[offset : offset + size]) for offset, size in line.places]


def _mp3(data: bytes) -> Signal:
    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    signal: Signal = soxr.resample(samples, rate, LISTEN_RATE, quality="HQ")
    return signal
