"""Tracks which samples of a sound the loudspeaker has played."""

from __future__ import annotations

from collections import deque

import numpy as np

from pipeline.audio import EMPTY, Pcm, Resampler

_SPANS = 64
"""If silence interrupts a sound more often, its oldest pieces count as played."""


class SoundProgress:
    """Sample numbers are the device's, counted from the start of its stream."""

    def __init__(self) -> None:
        self.cut = False
        """Whether some of it was dropped."""
        self._source_s = 0.0
        self._resampler: Resampler | None = None
        self._device_hz = 1
        self._queued_samples = 0
        self._spans: deque[tuple[int, int]] = deque()
        """(number of the first sample, how many)."""
        self._out_s = 0.0
        """Samples played before the spans."""
        self._heard_s = 0.0

    # --- on its way in ----------------------------------------------------------------------------

    def convert(self, pcm: Pcm, rate: int, device_hz: int) -> Pcm:
        """Convert the sound's next samples to the device's rate."""
        rest = EMPTY
        resampler = self._resampler
        if resampler is None or (resampler.from_rate, resampler.to_rate) != (rate, device_hz):
            rest = self.end()
            resampler = self._resampler = Resampler(rate, device_hz)
        self._device_hz = device_hz
        self._source_s += len(pcm) / rate
        return np.concatenate((rest, resampler.feed(pcm)))

    def end(self) -> Pcm:
        """Returns the 2 ms that the resampler holds back."""
        if self._resampler is None:
            return EMPTY
        rest = self._resampler.flush()
        self._resampler = None
        return rest

    # --- on its way out ---------------------------------------------------------------------------

    def queued(self, samples: int) -> None:
        self._queued_samples += samples

    def given(self, first: int, samples: int) -> None:
        """The driver has these samples; ``first`` is the stream's number of the first."""
        self._queued_samples -= samples
        if self._spans and sum(self._spans[-1]) == first:
            first, before = self._spans.pop()
            samples += before
        self._spans.append((first, samples))
        while len(self._spans) > _SPANS:
            self._out_s += self._spans.popleft()[1] / self._device_hz

    def dropped(self, samples: int) -> None:
        """These queued samples will not be played."""
        self._queued_samples -= samples
        self.cut = True

    def settle(self, out: float) -> None:
        """The stream ended while its sample number ``out`` was at the membrane."""
        self._out_s += self._spans_s(out)
        if any(first + samples > out for first, samples in self._spans):
            self.cut = True
        self._spans.clear()
        self._resampler = None

    def heard_s(self, out: float) -> float:
        """Seconds played when the stream's sample number ``out`` is at the membrane; never
        decreases."""
        all_sent = self._queued_samples == 0 and not self.cut
        all_out = all(first + samples <= out for first, samples in self._spans)
        heard_s = self._source_s if all_sent and all_out else self._out_s + self._spans_s(out)
        self._heard_s = max(self._heard_s, min(heard_s, self._source_s))
        return self._heard_s

    def _spans_s(self, out: float) -> float:
        count = sum(min(max(out - first, 0.0), samples) for first, samples in self._spans)
        return count / self._device_hz
