"""Checks whether a voice's audio is still speech. Pure; time is the sample index.

Voices that are language models fail now and then: they never stop, fall silent, repeat themselves,
or hum and hiss. The sound alone shows all of that. It does not show fluent but wrong words; the
length limit ends those too.

The audio is checked in frames of 20 ms from its first sample on, so the verdict does not depend on
how it is split into chunks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import EMPTY, Pcm
from pipeline.events import FaultKind
from pipeline.messages import has_words
from pipeline.speaking import tuning
from pipeline.spoken.length import USUAL_S_PER_LETTER, repeated_letters, spoken_letters

Signal = NDArray[np.float32]


FRAMES_PER_S = 50

# The limits were fitted on 2,568 healthy clauses of Piper, espeak-ng and flite, with a margin to
# the most extreme of them: benchmarks/results/2026-11-21-tts-faults.json.


@dataclass(frozen=True, slots=True)
class Fault:
    kind: FaultKind
    since_s: float
    """Where in the clause's audio it began."""
    known_s: float
    """Where it was detected."""


class ClauseWatch:
    """Follows the audio of one clause. ``feed`` it chunk by chunk, int16 mono at ``rate`` Hz."""

    def __init__(self, text: str, rate: int, s_per_letter: float, *, measured: bool = True) -> None:
        """``text`` is as spoken. ``s_per_letter`` is this voice's pace, a guess unless
        ``measured``."""
        self._speaks = has_words(text)
        self.expected_s = spoken_letters(text) * s_per_letter
        factor = tuning.WATCH_LIMIT_FACTOR if measured else tuning.WATCH_LIMIT_FACTOR_UNKNOWN
        self._limit_frames = round((tuning.WATCH_LIMIT_S + factor * self.expected_s) * FRAMES_PER_S)
        slow = max(1.0, s_per_letter / USUAL_S_PER_LETTER)
        self._pause_frames = round(tuning.WATCH_PAUSE_S * slow * FRAMES_PER_S)
        own_s = repeated_letters(text) * s_per_letter * tuning.WATCH_OWN_FACTOR
        self._same_frames = tuning.WATCH_SAME_FRAMES + round(own_s * FRAMES_PER_S)
        self._hop = rate // FRAMES_PER_S
        self._spectrum = _spectrum(rate)
        self._pcm = EMPTY
        self._count = 0
        self._shapes = np.zeros((256, tuning.WATCH_BANDS), np.float32)
        """Level of each band in each frame relative to the frame's mean, dB; grows. Loudness does
        not count: a list of short words has a rhythm, but is not a repetition."""
        self._audible = _Recent(maxlen=tuning.WATCH_STEADY_FRAMES)
        self._silent = 0
        self._alike = np.zeros(tuning.WATCH_PERIODS[1] - tuning.WATCH_PERIODS[0] + 1, np.int64)
        self.fault: Fault | None = None

    @property
    def seconds(self) -> float:
        """How much audio was checked."""
        return self._count / FRAMES_PER_S

    def feed(self, pcm: Pcm) -> Fault | None:
        """Take any number of samples; return the fault, if one has been found."""
        if self.fault:
            return self.fault
        self._pcm = np.concatenate((self._pcm, pcm))
        frames = len(self._pcm) // self._hop - 1  # each spans two hops
        if frames <= 0:
            return None
        windows = np.lib.stride_tricks.sliding_window_view(self._pcm, 2 * self._hop)
        levels, bands, flatness = self._spectrum.of(windows[:: self._hop][:frames])
        self._pcm = self._pcm[frames * self._hop :].copy()
        self._reserve(frames)
        for level, band, flat in zip(levels, bands, flatness, strict=True):
            if fault := self._take(float(level), band, float(flat)):
                self.fault = fault
                return fault
        return None

    def finish(self) -> Fault | None:
        """End the clause; returns a fault if it has words but no sound."""
        if self.fault is None and self._speaks and not self._audible:
            self.fault = self._fault("silence", self._count)
        return self.fault

    def _reserve(self, frames: int) -> None:
        while self._count + frames > len(self._shapes):
            self._shapes = np.concatenate((self._shapes, np.zeros_like(self._shapes)))

    def _take(self, level_db: float, bands: Signal, flatness: float) -> Fault | None:
        self._shapes[self._count] = bands - bands.mean()
        self._count += 1
        if level_db < tuning.WATCH_QUIET_DB:
            self._silent += 1
        else:
            self._silent = 0
            self._audible.append((self._count, bands, flatness))
        if self._silent > self._pause_frames:
            return self._fault("silence", self._silent)
        if self._count > self._limit_frames:
            return self._fault("runaway", self._count - round(self.expected_s * FRAMES_PER_S))
        if self._count % tuning.WATCH_CHECKED_EVERY:
            return None
        if since := self._audible.monotonous():
            return self._fault("gibberish", self._count - since)
        if frames := self._repetition_frames():
            return self._fault("repetition", frames)
        return None

    def _fault(self, kind: FaultKind, frames: int) -> Fault:
        """``frames``: how long it has lasted."""
        return Fault(kind, max(0, self._count - frames) / FRAMES_PER_S, self.seconds)

    def _repetition_frames(self) -> int:
        """For how many frames the sound has matched itself one period earlier; 0: no repetition."""
        shortest, longest = tuning.WATCH_PERIODS
        last = min(longest, self._count - tuning.WATCH_SAME_FRAMES)
        if last < shortest:
            return 0
        now = self._shapes[self._count - tuning.WATCH_SAME_FRAMES : self._count]
        past = self._shapes[self._count - tuning.WATCH_SAME_FRAMES - last : self._count - shortest]
        alike = _correlations(now, past)[::-1] > tuning.WATCH_SAME
        """For each period, shortest first."""
        runs = self._alike[: len(alike)]
        runs[:] = np.where(alike, runs + tuning.WATCH_CHECKED_EVERY, 0)
        longest_run = int(runs.max())
        if not longest_run:
            return 0
        frames = tuning.WATCH_SAME_FRAMES - tuning.WATCH_CHECKED_EVERY + longest_run
        return frames if frames >= self._same_frames else 0


class _Recent(deque[tuple[int, Signal, float]]):
    """The newest audible frames: when, the bands and the flatness of each."""

    def monotonous(self) -> int:
        """Where a stretch of noise, or of unchanging sound, began; 0: there is none."""
        if len(self) < tuning.WATCH_STEADY_FRAMES:
            return 0
        noisy = [at for at, _, flat in self if flat > tuning.WATCH_NOISY]
        if len(noisy) >= tuning.WATCH_NOISY_FRAMES:
            return noisy[0]
        shapes = np.stack([bands for _, bands, _ in self])
        shapes = shapes - shapes.mean(axis=1, keepdims=True)
        smooth = _moving_sum(shapes, tuning.WATCH_SMOOTHED) / tuning.WATCH_SMOOTHED
        change_db = float(np.sqrt(smooth.var(axis=0).mean()))
        return self[0][0] if change_db < tuning.WATCH_STEADY_DB else 0


def _correlations(now: Signal, past: Signal) -> NDArray[np.float64]:
    """Correlate ``now`` with every stretch of its length in ``past``, without each band's mean."""
    size = len(now)
    now = now - now.mean(axis=0)
    views = np.lib.stride_tricks.sliding_window_view(past, size, axis=0)  # (n, bands, size)
    sums = _moving_sum(past, size)
    squares = _moving_sum((past**2).sum(axis=1), size) - (sums**2).sum(axis=1) / size
    products = np.einsum("nbs,sb->n", views, now)
    power = float((now**2).sum())
    least = size * tuning.WATCH_BANDS * 9.0  # 3 dB: all silence is alike
    both = np.sqrt(np.maximum(squares, least) * max(power, least))
    result: NDArray[np.float64] = products / both
    return result


def _moving_sum(values: Signal, size: int) -> NDArray[np.float64]:
    """The sum of each ``size`` neighbours along the first axis."""
    sums = np.cumsum(values, axis=0, dtype=np.float64)
    sums = np.concatenate((np.zeros_like(sums[:1]), sums))
    result: NDArray[np.float64] = sums[size:] - sums[:-size]
    return result


class _Spectrum:
    """Spectra of frames at one sample rate."""

    def __init__(self, rate: int) -> None:
        size = 2 * (rate // FRAMES_PER_S)
        self._window = np.hanning(size).astype(np.float32)
        hz = np.fft.rfftfreq(size, 1 / rate)
        highest = min(tuning.WATCH_HIGHEST_HZ, 0.95 * rate / 2)
        lowest = tuning.WATCH_LOWEST_HZ
        mels = np.linspace(_mel(lowest), _mel(highest), tuning.WATCH_BANDS + 1)
        edges = 700 * (10 ** (mels / 2595) - 1)
        self._to_bands = np.zeros((len(hz), tuning.WATCH_BANDS), np.float32)
        for band in range(tuning.WATCH_BANDS):
            inside = (hz >= edges[band]) & (hz < edges[band + 1])
            self._to_bands[inside, band] = 1.0
        self._inside = (hz >= 300) & (hz <= min(5000, highest))
        # A sine of full scale is at 0 dBFS + 3 dB of its rms.
        self._scale = np.float32(2 / (32768.0**2 * float((self._window**2).sum()) * size))

    def of(self, frames: NDArray[np.int16]) -> tuple[Signal, Signal, Signal]:
        """Level in dBFS, shape (n,); bands in dB, (n, bands); flatness 0 to 1, (n,)."""
        spectra = np.fft.rfft(frames.astype(np.float32) * self._window, axis=1)
        power = (spectra.real**2 + spectra.imag**2).astype(np.float32) * self._scale
        bands = power @ self._to_bands
        levels = 10 * np.log10(bands.sum(axis=1) + 1e-12)
        inside = power[:, self._inside] + 1e-14
        flatness = np.exp(np.log(inside).mean(axis=1)) / inside.mean(axis=1)
        bands_db = 10 * np.log10(bands + 10 ** (tuning.WATCH_FLOOR_DB / 10))
        return levels, bands_db.astype(np.float32), flatness


def _mel(hz: float) -> float:
    return 2595 * float(np.log10(1 + hz / 700))


_spectrum = cache(_Spectrum)
