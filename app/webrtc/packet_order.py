"""Puts RTP packets in order, and says which are lost. Without I/O."""

from __future__ import annotations

from collections.abc import Iterator

EARLY = 3
"""A missing packet counts as lost once this many later ones (60 ms) have come. Playback would need
a buffer that is always full; recognition waits only at a gap."""
FAR = 500
"""A number so far from the expected one begins a new stream."""

Packet = tuple[int, bytes]
"""When it begins, in the sender's count of samples, and its payload."""


class PacketOrder:
    """One stream of packets with 16-bit numbers."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._early: dict[int, Packet] = {}

    def add(self, number: int, packet: Packet) -> Iterator[Packet | None]:
        """The packets that are due, in order; ``None`` for each that is lost."""
        if self._next is None:
            self._next = number
        ahead = (number - self._next + 0x8000) % 0x10000 - 0x8000
        if abs(ahead) > FAR:
            self._early.clear()
            self._next, ahead = number, 0
        if ahead < 0:  # it came twice, or too late
            return
        self._early[number] = packet
        while self._next in self._early or len(self._early) >= EARLY:
            yield self._early.pop(self._next, None)
            self._next = (self._next + 1) % 0x10000
