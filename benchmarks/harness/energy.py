"""Finds where speech begins, pauses and ends, by energy alone: no VAD influences the labels.

Frames are 10 ms. A frame is speech if it is above a threshold that adapts to the clip: 8 dB above
its noise floor, but 25 to 40 dB below its loud parts (25 to 32 inside a turn and at its end, where
people breathe).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.acoustics import Mask, Signal
from pipeline.audio import LISTEN_RATE

FRAME_SAMPLES = LISTEN_RATE // 100
NATURAL_PAUSE_S = 0.15
"""Shorter silences are mostly stop closures (up to 0.12 s in slow speech)."""

_DIGITAL_SILENCE_DB = -85.0
_ABOVE_FLOOR_DB = 8.0
_LEAST_UNDER_LOUD_DB = 25.0
_SPEECH_UNDER_LOUD_DB = 40.0
_BREATH_UNDER_LOUD_DB = 32.0
"""Softer sounds inside a turn and after it are breath or a voice's tail, not speech."""
_CLICK_FRAMES = 2
"""Shorter isolated bursts between silences are clicks, not speech."""


@dataclass(frozen=True)
class Span:
    """Samples ``start`` to ``end``."""

    start: int
    end: int

    @property
    def samples(self) -> int:
        return self.end - self.start


def frame_db(signal: Signal) -> NDArray[np.float64]:
    """Level of each whole 10 ms frame in dBFS, shape ``(n // 160,)``."""
    whole = len(signal) // FRAME_SAMPLES * FRAME_SAMPLES
    frames = signal[:whole].reshape(-1, FRAME_SAMPLES).astype(np.float64)
    return np.asarray(10 * np.log10((frames**2).mean(axis=1) + 1e-12), dtype=np.float64)


def threshold_db(levels: NDArray[np.float64], under_loud_db: float) -> float:
    """The threshold above which a frame of this clip is speech."""
    audible = levels[levels > _DIGITAL_SILENCE_DB]
    if not len(audible):
        return 0.0
    loud = float(np.percentile(audible, 95))
    floor = float(np.percentile(audible, 4))
    return float(
        np.clip(floor + _ABOVE_FLOOR_DB, loud - under_loud_db, loud - _LEAST_UNDER_LOUD_DB)
    )


def speech_frames(signal: Signal, under_loud_db: float = _SPEECH_UNDER_LOUD_DB) -> Mask:
    """One flag for each 10 ms frame; isolated clicks are not speech."""
    levels = frame_db(signal)
    speech: Mask = levels > threshold_db(levels, under_loud_db)
    for run in _runs(speech):
        if run.samples <= _CLICK_FRAMES and not _near_speech(speech, run):
            speech[run.start : run.end] = False
    return speech


def speech_span(signal: Signal) -> Span:
    """From the first speech sample to just after the last. Raises ``ValueError`` for silence."""
    speech = np.flatnonzero(speech_frames(signal))
    loud = np.flatnonzero(speech_frames(signal, _BREATH_UNDER_LOUD_DB))
    if not len(loud):
        raise ValueError("no speech in the clip")
    return Span(int(speech[0]) * FRAME_SAMPLES, (int(loud[-1]) + 1) * FRAME_SAMPLES)


def silences(signal: Signal, shortest_s: float = NATURAL_PAUSE_S) -> list[Span]:
    """Silences of at least ``shortest_s`` between the first and the last speech sample."""
    speech = speech_frames(signal, _BREATH_UNDER_LOUD_DB)
    whole = speech_span(signal)
    spans = [Span(run.start * FRAME_SAMPLES, run.end * FRAME_SAMPLES) for run in _runs(~speech)]
    return [
        span
        for span in spans
        if whole.start < span.start
        and span.end < whole.end
        and span.samples >= shortest_s * LISTEN_RATE
    ]


def active(signal: Signal) -> Mask:
    """One flag a sample: is it speech? Shape as ``signal``."""
    flags = np.repeat(speech_frames(signal), FRAME_SAMPLES)
    return np.concatenate([flags, np.zeros(len(signal) - len(flags), dtype=np.bool_)])


def quietest(signal: Signal, first: int, last: int) -> int:
    """The sample between ``first`` and ``last`` at the centre of the softest 10 ms."""
    first, last = max(first, FRAME_SAMPLES), min(last, len(signal) - FRAME_SAMPLES)
    if last <= first:
        return first
    power = signal.astype(np.float64) ** 2
    sums = np.concatenate([[0.0], np.cumsum(power)])
    centres = np.arange(first, last)
    half = FRAME_SAMPLES // 2
    return int(centres[np.argmin(sums[centres + half] - sums[centres - half])])


def _runs(flags: Mask) -> list[Span]:
    """Runs of true flags, as frame numbers."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [Span(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _near_speech(speech: Mask, run: Span) -> bool:
    """Whether there is more speech within 100 ms: then the run is a stop's burst, not a click."""
    before = speech[max(0, run.start - 10) : run.start]
    after = speech[run.end : run.end + 10]
    return bool(before.any() or after.any())
