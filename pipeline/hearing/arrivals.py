"""A client's audio as it arrives: how unevenly, what is missing, what waits for a commit. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

import numpy as np

from pipeline.audio import EMPTY, LISTEN_RATE, Pcm

_EPOCH_S = 5.0
"""Jitter is measured over the last one to two epochs, so that clock drift does not add up."""
_MUTED_S = 1.0
"""Audio this late or early comes from a client that was muted, or that sends a recording."""
_RAREST_S = 2.5
"""The longest messages of a client that sends in real time."""
_GAPS_OF_A_STALL = 1.5
"""A client has stalled after this many times the longest gap in its audio lately."""
_BLOCKED_S = 0.05
"""A timer this late shows that the loop was blocked."""


class Arrivals:
    """Measures the jitter of arriving audio, and notices what is missing. Times are seconds of one
    clock."""

    def __init__(self) -> None:
        self.due = 0.0
        """When the next audio is overdue."""
        self._was_overdue = False
        self._expected_at = -math.inf
        """When the newest audio would have come without any delay."""
        self._epoch_at = -math.inf
        self._least_s, self._most_s, self._most_before_s = math.inf, 0.0, 0.0
        self._newest_at = -math.inf
        self._gap_s, self._gap_before_s = 0.0, 0.0

    @property
    def jitter_s(self) -> float:
        """How much later the slowest audio came than the quickest, rounded to 10 ms."""
        return round(max(self._most_s, self._most_before_s), 2)

    @property
    def gap_s(self) -> float:
        """The longest time between two messages lately, mutes excepted: a message as long as the
        time before it does not end a mute."""
        return max(self._gap_s, self._gap_before_s)

    def stall_s(self, least_s: float) -> float:
        """How long without audio means that the client has stalled: ``least_s``, or more if it
        sends rarely."""
        return max(least_s, _GAPS_OF_A_STALL * self.gap_s)

    def expect(self, least_s: float, now: float) -> float:
        """The next audio is overdue after half of ``stall_s``, which is returned."""
        stall_s = self.stall_s(least_s)
        self.due, self._was_overdue = now + stall_s / 2, False
        return stall_s

    def miss(self, least_s: float, now: float) -> float:
        """Audio is overdue. Returns how many seconds of silence take its place: none until that has
        happened twice in a row, the second time on time. A loop that was blocked sees its timer
        expire before it reads what was sent."""
        stalls = self._was_overdue and now - self.due < _BLOCKED_S
        stall_s = self.expect(least_s, now)
        self._was_overdue = not stalls
        return stall_s if stalls else 0.0

    def note(self, seconds: float, now: float) -> None:
        """``seconds`` of audio have arrived."""
        gap_s, self._newest_at = now - self._newest_at, now
        self._expected_at += seconds
        if abs(now - self._expected_at) > _MUTED_S:
            self._expected_at = now
        if now - self._epoch_at > _EPOCH_S:
            self._expected_at += self._least_s if math.isfinite(self._least_s) else 0.0
            self._epoch_at, self._most_before_s = now, self._most_s
            self._least_s, self._most_s = math.inf, 0.0
            self._gap_before_s, self._gap_s = self._gap_s, 0.0
        rare = gap_s <= min(1.1 * seconds, _RAREST_S) and seconds <= 1.2 * gap_s
        if rare or gap_s <= _MUTED_S:
            self._gap_s = max(self._gap_s, gap_s)
        if now < self._expected_at:
            self._most_s += self._expected_at - now
            self._expected_at = now
        late_s = now - self._expected_at
        self._least_s, self._most_s = min(self._least_s, late_s), max(self._most_s, late_s)


class AssumedSilence:
    """The samples of a stream that its client never sent: silence while it stalled or was muted."""

    def __init__(self) -> None:
        self._ranges: deque[tuple[int, int, int]] = deque(maxlen=64)
        """Start, end, and how many samples were assumed up to the end; only the newest count."""

    def add(self, start: int, end: int) -> None:
        total = end - start + (self._ranges[-1][2] if self._ranges else 0)
        if self._ranges and self._ranges[-1][1] == start:
            start = self._ranges.pop()[0]
        self._ranges.append((start, end, total))

    def before(self, sample: int) -> int:
        """How many samples before this one were assumed."""
        for start, end, total in reversed(self._ranges):
            if sample > start:
                return total - max(0, end - sample)
        return 0

    def between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The ranges between two samples that the client did send."""
        for first, last, _ in self._ranges:
            if start < min(first, end):
                yield start, min(first, end)
            start = max(start, last)
        if start < end:
            yield start, end


class PushToTalkBuffer:
    """The newest audio that a client without turn detection has appended and not yet committed."""

    def __init__(self, capacity_s: float) -> None:
        self.samples = 0
        self._overflowed = False
        """Whether the oldest audio was dropped."""
        self._capacity_samples = int(capacity_s * LISTEN_RATE)
        self._pieces: deque[Pcm] = deque()

    def append(self, pcm: Pcm) -> bool:
        """Take audio, and drop the oldest to make room. False if that is so since this piece."""
        self._pieces.append(pcm)
        self.samples += len(pcm)
        had_overflowed = self._overflowed
        while (excess := self.samples - self._capacity_samples) > 0:
            self._overflowed = True
            oldest = self._pieces.popleft()
            self.samples -= len(oldest)
            if excess < len(oldest):
                self._pieces.appendleft(oldest[excess:])
                self.samples += len(oldest) - excess
        return had_overflowed or not self._overflowed

    def take(self) -> Pcm:
        """Return everything and empty the buffer."""
        pcm = np.concatenate((EMPTY, *self._pieces))
        self._pieces.clear()
        self.samples, self._overflowed = 0, False
        return pcm
