"""Audio as the pipeline sees it: int16 mono samples that know their place in time.

Time inside the audio path is the sample index (``docs/architecture.md``), so nothing here
reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import ceil, gcd
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Pcm = NDArray[np.int16]
"""Mono samples, int16, shape ``(n,)``."""

LISTEN_RATE = 16_000
"""Sample rate, in Hz, of VAD, turn detection and speech-to-text."""


def samples_of(ms: float) -> int:
    """Whole samples at ``LISTEN_RATE``."""
    return int(ms * LISTEN_RATE // 1000)


def ms_of(samples: int) -> int:
    """Whole milliseconds of samples at ``LISTEN_RATE``."""
    return samples * 1000 // LISTEN_RATE


EMPTY: Pcm = np.zeros(0, dtype=np.int16)


Encoding = Literal["pcm", "pcmu", "pcma"]
"""16-bit PCM, or one byte per sample in G.711 µ-law or A-law."""


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """How a client sends or wants its audio; ``rate`` in Hz."""

    encoding: Encoding = "pcm"
    rate: int = 24_000


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Stored audio: int16 mono, shape ``(n,)``, at ``rate`` Hz."""

    pcm: Pcm
    rate: int

    @property
    def seconds(self) -> float:
        return len(self.pcm) / self.rate

    def until(self, seconds: float) -> Recording:
        """Its first ``seconds``."""
        return Recording(self.pcm[: max(0, round(seconds * self.rate))], self.rate)


@dataclass(frozen=True, slots=True, eq=False)
class AudioFrame:
    """Consecutive samples of one stream.

    ``pcm``: int16 mono, shape ``(n,)``. ``rate``: Hz. ``index``: position of the first sample,
    counted from the start of the stream.
    """

    pcm: Pcm
    rate: int
    index: int

    @property
    def end(self) -> int:
        """Index of the sample after the last one."""
        return self.index + len(self.pcm)

    @property
    def seconds(self) -> float:
        return len(self.pcm) / self.rate


class Framer:
    """Cuts a stream at ``LISTEN_RATE``, in any pieces, into windows of one fixed length."""

    def __init__(self, window_samples: int) -> None:
        self._window_samples = window_samples
        self._held = EMPTY
        self._index = 0

    def feed(self, pcm: Pcm) -> Iterator[AudioFrame]:
        """Yield each window that ``pcm`` completes; the remainder waits for the next call."""
        held = np.concatenate((self._held, pcm)) if len(self._held) else pcm
        whole = len(held) - len(held) % self._window_samples
        self._held = held[whole:].copy()
        for start in range(0, whole, self._window_samples):
            frame = AudioFrame(held[start : start + self._window_samples], LISTEN_RATE, self._index)
            self._index = frame.end
            yield frame

    @property
    def held(self) -> Pcm:
        """The remainder that waits."""
        return self._held


class AudioHistory:
    """The newest samples of a stream, addressed by sample index.

    Holds at most ``capacity_samples``; older ones fall out of the front.
    """

    def __init__(self, capacity_samples: int) -> None:
        self._ring = np.zeros(capacity_samples, dtype=np.int16)
        self.end = 0

    @property
    def start(self) -> int:
        """Index of the oldest sample still held."""
        return max(0, self.end - len(self._ring))

    def append(self, pcm: Pcm) -> None:
        capacity = len(self._ring)
        kept = pcm[-capacity:]
        self.end += len(pcm)
        at = (self.end - len(kept)) % capacity
        head = min(len(kept), capacity - at)
        self._ring[at : at + head] = kept[:head]
        self._ring[: len(kept) - head] = kept[head:]

    def read(self, start: int, end: int) -> Pcm:
        """Copy of samples ``start`` to ``end``, clipped to what is held."""
        start = max(start, self.start)
        end = min(end, self.end)
        if start >= end:
            return EMPTY
        indexes = np.arange(start, end) % len(self._ring)
        return self._ring[indexes]


def pcm_from_bytes(data: bytes) -> Pcm:
    """Little-endian 16-bit samples. Raises ``ValueError`` on an odd number of bytes."""
    if len(data) % 2:
        raise ValueError(f"16-bit audio needs an even number of bytes, got {len(data)}")
    return np.frombuffer(data, dtype="<i2").astype(np.int16, copy=False)


def pcm_to_bytes(pcm: Pcm) -> bytes:
    return pcm.astype("<i2", copy=False).tobytes()


def to_float(pcm: Pcm) -> NDArray[np.float32]:
    """Samples in [-1, 1), float32, as models expect them."""
    return pcm.astype(np.float32) / 32768.0


def from_float(samples: NDArray[np.float32]) -> Pcm:
    """int16 from float samples; values outside [-1, 1] are clipped."""
    return (np.clip(samples, -1.0, 1.0) * 32767.0).astype(np.int16)


_ZERO_CROSSINGS = 32
"""Zero crossings of the windowed sinc on each side, at the lower of the two rates."""

_ROLL_OFF = 0.94
"""Cut-off as a fraction of half the lower rate. At 1.06 times that half, damping exceeds 80 dB, so
little aliases into the audible band."""

_KAISER_BETA = 9.0


class Resampler:
    """Streaming conversion between sample rates, int16 mono. The output does not depend on how the
    input is split.

    A turn's end waits for every sample that a filter holds. soxr works in blocks and holds 10 to
    30 ms of a stream even in its variable-rate mode; this short filter holds 2 ms at 16 kHz.

    Output sample ``n`` is the input at time ``n / to_rate``: no delay, whatever is held back.
    """

    def __init__(self, from_rate: int, to_rate: int) -> None:
        self.from_rate = from_rate
        self.to_rate = to_rate
        divisor = gcd(from_rate, to_rate)
        self._up, self._down = to_rate // divisor, from_rate // divisor
        self._filters = _filters(self._up, self._down)
        self._half = self._filters.shape[1] // 2
        self._held = np.zeros(self._half, np.float32)
        """Input from ``_first`` on."""
        self._first = -self._half
        self._given = 0
        self._taken = 0

    def feed(self, pcm: Pcm) -> Pcm:
        """All output that the input so far allows."""
        if self.from_rate == self.to_rate:
            return pcm
        self._taken += len(pcm)
        return self._convert(pcm, self._taken - self._half)

    def flush(self) -> Pcm:
        """The remaining output, as if silence followed; ends the stream."""
        if self.from_rate == self.to_rate:
            return EMPTY
        return self._convert(np.zeros(self._half, np.int16), self._taken)

    def _convert(self, pcm: Pcm, until: int) -> Pcm:
        """Output up to input position ``until``."""
        self._held = np.concatenate((self._held, pcm.astype(np.float32)))
        last = max(self._given, ceil(until * self._up / self._down))
        at = np.arange(self._given, last, dtype=np.int64) * self._down
        self._given = last
        if not len(at):
            return np.zeros(0, np.int16)
        whole, phase = np.divmod(at, self._up)
        starts = whole - self._half + 1 - self._first
        taps, step = self._filters.shape[1], self._held.strides[0]
        # As sliding_window_view, which takes longer than the sum itself.
        shape = (len(self._held) - taps + 1, taps)
        windows = np.lib.stride_tricks.as_strided(self._held, shape, (step, step))
        mixed = np.einsum("nt,nt->n", windows[starts], self._filters[phase])
        spent = int(starts[-1])
        self._held = self._held[spent:]
        self._first += spent
        rounded: NDArray[np.int16] = np.clip(np.rint(mixed), -32768, 32767).astype(np.int16)
        return rounded


@cache
def _filters(up: int, down: int) -> NDArray[np.float32]:
    """Shape ``(up, taps)``: input weights for each position between two samples."""
    half = ceil(_ZERO_CROSSINGS * max(1.0, down / up))
    cut_off = _ROLL_OFF * min(1.0, up / down)
    offsets = np.arange(1 - half, half + 1)[np.newaxis] - np.arange(up)[:, np.newaxis] / up
    window = np.i0(_KAISER_BETA * np.sqrt(np.maximum(0.0, 1 - (offsets / half) ** 2)))
    weights = np.sinc(cut_off * offsets) * window
    even: NDArray[np.float32] = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return even
