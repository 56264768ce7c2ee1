"""Audio as the pipeline sees it: int16 mono samples that know their place in time.

Time inside the audio path is the sample index (``docs/architecture.md``), so nothing here
reads a clock.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil
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


WAV_HEADER_BYTES = 44
UNKNOWN_SIZE = 0xFFFFFFFF
"""Size in the header of a WAV file whose length is not known yet, as most programs write it."""

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
    """Consecutive samples of one stream."""

    pcm: Pcm
    """int16 mono, shape ``(n,)``."""
    rate: int
    """Hz."""
    index: int
    """Position of the first sample, counted from the start of the stream."""

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
        self.remainder = EMPTY
        """Samples that wait for the next piece."""
        self._index = 0

    def feed(self, pcm: Pcm) -> Iterator[AudioFrame]:
        """Yield each window that ``pcm`` completes; the remainder waits for the next call."""
        held = np.concatenate((self.remainder, pcm)) if len(self.remainder) else pcm
        whole = len(held) - len(held) % self._window_samples
        self.remainder = held[whole:].copy()
        for start in range(0, whole, self._window_samples):
            frame = AudioFrame(held[start : start + self._window_samples], LISTEN_RATE, self._index)
            self._index = frame.end
            yield frame


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


def wav(pcm: Pcm, rate: int, channels: int = 1) -> bytes:
    """A WAV file; samples of several channels alternate."""
    return wav_header(rate, pcm.nbytes, channels) + pcm_to_bytes(pcm)


def wav_header(rate: int, size: int = UNKNOWN_SIZE, channels: int = 1) -> bytes:
    """The header of a WAV file; ``size``: bytes of samples, if they are known."""
    riff = struct.pack("<4sI4s", b"RIFF", min(WAV_HEADER_BYTES - 8 + size, UNKNOWN_SIZE), b"WAVE")
    frame = 2 * channels
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, rate * frame, frame, 16)
    return riff + form + struct.pack("<4sI", b"data", size)


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

    A turn's end must wait for all samples that a filter holds back. soxr works in blocks and holds
    back 10 to 30 ms even in its variable-rate mode; this short filter holds back 2 ms at 16 kHz.

    Output sample ``n`` is input sample ``n * step``, so there is no delay in the timeline. ``step``
    is ``from_rate / to_rate``, for odd rates (44,099 Hz) to within 5e-5.
    """

    def __init__(self, from_rate: int, to_rate: int) -> None:
        self.from_rate = from_rate
        self.to_rate = to_rate
        ratio = Fraction(to_rate, from_rate).limit_denominator(_MOST_INPUTS)
        self._up, self._down = ratio.as_integer_ratio()
        self.step = self._down / self._up
        self._weights, self._half = _block(self._up, self._down)
        self._held: NDArray[np.float64] = np.zeros(self._half - 1)
        """Input that the next block of output needs, with the input just before it."""
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
        last = max(self._given, ceil(until * self._up / self._down))
        inputs, outputs = self._weights.shape
        step = outputs // self._up * self._down
        first = self._given // outputs
        rows = ceil(last / outputs) - first
        held = np.concatenate((self._held, pcm.astype(np.float64), np.zeros(inputs)))
        # As sliding_window_view, which takes longer than the sum itself.
        windows = np.lib.stride_tricks.as_strided(held, (rows, inputs), (8 * step, 8))
        mixed = (windows @ self._weights).ravel()
        mixed = mixed[self._given - first * outputs : last - first * outputs]
        self._held = held[(last // outputs - first) * step : -inputs]
        self._given = last
        rounded: NDArray[np.int16] = np.clip(np.rint(mixed), -32768, 32767).astype(np.int16)
        return rounded


def resampled(pcm: Pcm, from_rate: int, to_rate: int) -> Pcm:
    """A whole recording at another rate."""
    resampler = Resampler(from_rate, to_rate)
    return np.concatenate((resampler.feed(pcm), resampler.flush()))


_BLOCK_OUTPUTS = 16
_MOST_INPUTS = 500
"""Least number of outputs computed at once, and most inputs, neighbours not counted, that they are
computed from. 11,025 and 44,100 Hz need 441."""


@cache
def _block(up: int, down: int) -> tuple[NDArray[np.float64], int]:
    """Weights of the inputs for a block of outputs, shape ``(inputs, outputs)``, and how many
    inputs one output needs from its own position on. Doubles, so that the rounding does not depend
    on how the input is split."""
    half = ceil(_ZERO_CROSSINGS * max(1.0, down / up))
    cut_off = _ROLL_OFF * min(1.0, up / down)
    at = np.arange(up * ceil(_BLOCK_OUTPUTS / up)) * down / up
    offsets = np.arange(1 - half, int(at[-1]) + half + 1)[:, np.newaxis] - at
    within = (-half < offsets) & (offsets <= half)
    window = np.i0(_KAISER_BETA * np.sqrt(np.maximum(0.0, 1 - (offsets / half) ** 2)))
    weights = np.where(within, np.sinc(cut_off * offsets) * window, 0)
    return weights / weights.sum(axis=0), half
