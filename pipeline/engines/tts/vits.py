"""A VITS voice that is heard while it is still being made.

Its network has two parts. The first turns the phonemes of a whole sentence into frames, and is
quick. The second, a convolutional vocoder with two thirds of the work, turns frames into samples,
and needs only a few frames around each. So it can work through a sentence window by window, and the
first samples of a long sentence are ready nearly as early as those of a short one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Frames = NDArray[np.float32]
"""Shape (channels, frames)."""
Samples = NDArray[np.float32]
"""Shape (samples,)."""

SMALLEST_FIRST, LARGEST_FIRST = 16, 64
"""Frames of the first window. Piper has 86 per second, and the first 4 are silent. A shorter window
is hardly sooner: the context after it costs as much."""
SMALLEST, LARGEST = 32, 256
"""Frames of later windows. The smaller they are, the more time goes into their context."""
_SPARE = 0.6
"""Share of the audio made ahead that making the next window may take."""
_CONTEXTS = (8, 10, 12, 16, 24, 32, 48)
"""Context sizes to try, in frames on either side of a window. Piper's medium voices need 10."""
_SAME = 1 / 32768
"""A difference too small for 16 bits."""


class Vocoder:
    """The second part of a network."""

    def __init__(self, session: Any, tensor: str, rate: int) -> None:
        self._session = session
        """``onnxruntime.InferenceSession``."""
        self._tensor = tensor
        """The name of its input."""
        self._rate = rate
        """Hz."""
        self._context = 0
        self._hop_samples = 0
        self._s_per_frame = 0.0

    def fit(self, frames: Frames) -> Samples | None:
        """Find the context that the vocoder needs, with the frames of a sentence of at least a
        second. Returns its samples; ``None`` if no context reproduces the whole."""
        whole = self._run(frames)
        count = frames.shape[1]
        self._hop_samples, rest = divmod(len(whole), count)
        for self._context in _CONTEXTS:
            part = self._window(frames, count // 2, count // 4)
            begin = count // 2 * self._hop_samples
            target = whole[begin : begin + len(part)]
            if len(part) == len(target) > 0 and float(np.abs(part - target).max()) < _SAME:
                return None if rest else whole
        return None

    def windows(self, frames: Frames) -> Iterator[Samples]:
        """The samples of ``frames``, in order: first a short window, then each as long as can be
        made while the earlier ones are heard."""
        count = frames.shape[1]
        at = 0
        ahead_s = 0.0
        while at < count:
            size = self._next_size(ahead_s) if at else self._first_size()
            # Leave no tiny window at the end.
            size = count - at if count - at < size + SMALLEST // 2 else size
            began = time.perf_counter()
            window = self._window(frames, at, size)
            took_s = time.perf_counter() - began
            ahead_s += len(window) / self._rate - (took_s if at else 0.0)
            at += size
            yield window

    def _first_size(self) -> int:
        """The shortest first window during which the next one can be made, in frames."""
        next_s = (SMALLEST + 2 * self._context) * self._s_per_frame
        frames = next_s / _SPARE * self._rate / self._hop_samples
        return int(min(max(frames, SMALLEST_FIRST), LARGEST_FIRST))

    def _next_size(self, ahead_s: float) -> int:
        frames = _SPARE * ahead_s / max(self._s_per_frame, 1e-9) - 2 * self._context
        return int(min(max(frames, SMALLEST), LARGEST))

    def _window(self, frames: Frames, start: int, size: int) -> Samples:
        """Samples of ``size`` frames from ``start``, or as many as there are."""
        begin = max(0, start - self._context)
        samples = self._run(frames[:, begin : start + size + self._context])
        first = (start - begin) * self._hop_samples
        return samples[first : first + size * self._hop_samples]

    def _run(self, frames: Frames) -> Samples:
        began = time.perf_counter()
        (result,) = self._session.run(None, {self._tensor: frames[np.newaxis]})
        took_s = (time.perf_counter() - began) / frames.shape[1]
        # Adapts to a change of load within a few windows.
        self._s_per_frame += (took_s - self._s_per_frame) * (0.3 if self._s_per_frame else 1.0)
        samples: Samples = np.ravel(result)
        return samples


def limited(samples: Samples) -> Samples:
    """``samples`` limited to full scale: levels above 0.8 are compressed, not clipped."""
    size = np.abs(samples)
    soft = 0.8 + 0.2 * np.tanh((size - 0.8) / 0.2)
    return np.where(size > 0.8, np.copysign(soft, samples), samples).astype(np.float32)
