"""Cuts a recording at its pauses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SPEECH, SILENCE = 0.5, 0.35
"""VAD scores from which speech begins and below which it ends (``endpointing``'s defaults)."""
LEAST_PAUSE_S = 0.4
"""A shorter pause does not split speech: a recogniser needs the words on both sides of it."""
LONGEST_S = 8.0
"""Speech without a pause is cut where the VAD is least sure of it, in the second half of this. A
conversation may have to wait for one pass over it, some 0.4 s on two cores."""
PADDING_S = 0.2
"""Sound kept before and after speech: scores rise late and fall early."""


@dataclass(frozen=True, slots=True)
class SpeechSegment:
    """Seconds from the beginning of the recording."""

    start: float
    end: float


def segments(scores: Sequence[float], window_s: float) -> list[SpeechSegment]:
    """Find the speech. ``scores``: the VAD's, one for each window."""
    found: list[SpeechSegment] = []
    padding, longest = PADDING_S / window_s, int(LONGEST_S / window_s)
    for start, end in _stretches(scores, LEAST_PAUSE_S / window_s):
        before = found[-1].end / window_s if found else 0.0
        for first, last in _cut(scores, start, end, longest):
            begin = max(first - padding * (first == start), before, 0)
            stop = min(last + padding * (last == end), len(scores))
            found.append(SpeechSegment(begin * window_s, stop * window_s))
    return found


def _stretches(scores: Sequence[float], least_pause: float) -> Iterator[tuple[int, int]]:
    """Windows (first, end) of each stretch of speech, including pauses too short to split it."""
    start: int | None = None
    end = 0
    for at, score in enumerate(scores):
        if start is not None and at - end >= least_pause:
            yield start, end
            start = None
        if start is None and score >= SPEECH:
            start = at
        if start is not None and score >= SILENCE:
            end = at + 1
    if start is not None:
        yield start, end


def _cut(scores: Sequence[float], start: int, end: int, longest: int) -> Iterator[tuple[int, int]]:
    while end - start > longest:
        half = range(start + longest // 2, start + longest)
        least = min(half, key=lambda at: scores[at])
        yield start, least
        start = least
    yield start, end
