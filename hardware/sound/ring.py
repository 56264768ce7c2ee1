"""A bounded queue between a driver's thread and the event loop."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pipeline.audio import Pcm


@dataclass(frozen=True, slots=True, eq=False)
class SampleBlock:
    """Consecutive samples of one device's stream, at its own rate."""

    pcm: Pcm
    first: int
    """Number of the first sample, counted by the device from the stream's start."""
    at_s: float
    """When that sample was at the membrane, in seconds on the loop's clock."""
    xrun: bool = False
    """The driver reports that samples before it were lost."""


class Ring:
    """Keeps the newest ``capacity_samples``; dropped samples are counted.

    One thread puts, another takes: each step is one atomic operation of a ``deque``, so the
    driver's thread never waits. Pieces are never split.
    """

    def __init__(self, capacity_samples: int) -> None:
        self._capacity_samples = capacity_samples
        self._pieces: deque[SampleBlock] = deque()
        self._put_samples = 0
        self._left_samples = 0
        self.dropped_samples = 0
        """The total; written by the thread that puts."""

    def put(self, piece: SampleBlock) -> None:
        self._put_samples += len(piece.pcm)
        self._pieces.append(piece)
        while (
            self._put_samples - self._left_samples - self.dropped_samples > self._capacity_samples
        ):
            try:
                oldest = self._pieces.popleft()
            except IndexError:
                return
            self.dropped_samples += len(oldest.pcm)

    def take(self) -> SampleBlock | None:
        """The oldest piece, or None."""
        try:
            piece = self._pieces.popleft()
        except IndexError:
            return None
        self._left_samples += len(piece.pcm)
        return piece
