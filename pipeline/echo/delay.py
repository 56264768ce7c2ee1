"""How long after it was sent a sound comes back through the microphone: 0 to 1.5 s, or never.

A remote client plays what it gets some hundred milliseconds later, too late for a filter of 320 ms.
The generalised cross-correlation with phase transform (Knapp and Carter 1976) of the last seconds
shows the delay as a peak; how far it stands out of the rest tells whether there is any echo. Pure;
numpy; one ``find`` costs some 15 ms of CPU, so it belongs into a worker, once a second at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, AudioHistory, Pcm, to_float

Sound = NDArray[np.float32]

MOST_DELAY_S = 1.5
_COMPARED_S = 4.0
_LOW_HZ, _HIGH_HZ = 200.0, 5000.0
_LEAST_SOUND_S = 1.0
_AUDIBLE_DBFS = -60.0
_FRAME = 512
_SMEARED = 8
"""Samples (0.5 ms)."""
_CONFIDENT = 5.5
"""Speech without an echo reached 4.3 (the highest of 50), an echo 10 dB under noise 11."""


@dataclass(frozen=True, slots=True)
class Delay:
    """``samples`` at 16 kHz between sending a sound and hearing it first. ``confidence``: height of
    the peak over that of the middle of all delays (RMS of 0.5 ms); 5.5 or more."""

    samples: int
    confidence: float

    @property
    def ms(self) -> float:
        return self.samples * 1000 / LISTEN_RATE


class DelayFinder:
    """Two streams that are counted by the same samples: what was sent, and what was heard then."""

    def __init__(self) -> None:
        self._most = round(MOST_DELAY_S * LISTEN_RATE)
        self._compared = round(_COMPARED_S * LISTEN_RATE)
        self._sent = AudioHistory(self._compared + self._most)
        self._heard = AudioHistory(self._compared)

    def feed(self, sent: Pcm, heard: Pcm) -> None:
        """The next samples of both, int16 mono at 16 kHz. Raises ``ValueError`` if one
        is longer."""
        if len(sent) != len(heard):
            raise ValueError(f"{len(sent)} samples sent while {len(heard)} were heard")
        self._sent.append(sent)
        self._heard.append(heard)

    def find(self) -> Delay | None:
        """The delay of the echo in the last 4 s; None if there is none that stands out, or if less
        than 1 s of sound was sent in the time it may come from."""
        heard = to_float(self._heard.read(self._heard.start, self._heard.end))
        sent = to_float(self._sent.read(self._sent.start, self._sent.end))
        if _sound_s(sent) < _LEAST_SOUND_S or not heard.any():
            return None
        # Both end at the same sample; sent begins up to 1.5 s earlier.
        values = np.square(_phase_correlation(sent, heard)[: self._most + 1])
        # Two clocks smear the peak.
        power = np.convolve(values, np.ones(_SMEARED, np.float32), "same")
        highest, usual = float(power.max()), float(np.median(power))
        confidence = float(np.sqrt(highest / (usual + 1e-20)))
        if confidence < _CONFIDENT:
            return None
        # What comes first is the delay, also where a reflection is a little stronger.
        least = max(0.5 * highest, _CONFIDENT**2 * usual)
        first = max(0, int(np.flatnonzero(power >= least)[0]) - _SMEARED // 2)
        return Delay(first + int(values[first : first + 2 * _SMEARED].argmax()), confidence)


def _phase_correlation(sent: Sound, heard: Sound) -> Sound:
    """Value at ``d``: how well ``heard`` is ``sent`` of ``d`` samples before; both end together."""
    size = 1 << (len(sent) + len(heard) - 1).bit_length()
    late = np.zeros(size, np.float32)
    late[: len(sent)] = sent
    now = np.zeros(size, np.float32)
    now[len(sent) - len(heard) : len(sent)] = heard
    cross = np.fft.rfft(now) * np.fft.rfft(late).conj()
    hz = np.fft.rfftfreq(size, 1 / LISTEN_RATE)
    magnitude = np.abs(cross)
    heard_bins = (hz >= _LOW_HZ) & (hz <= _HIGH_HZ) & (magnitude > 1e-9 * magnitude.max())
    cross = np.where(heard_bins, cross / (magnitude + 1e-20), 0).astype(np.complex64)
    values: Sound = np.fft.irfft(cross, size).astype(np.float32)
    return values


def _sound_s(samples: Sound) -> float:
    """Seconds that are louder than -60 dBFS."""
    whole = len(samples) // _FRAME
    power = np.square(samples[: whole * _FRAME]).reshape(whole, _FRAME).mean(axis=1)
    return int(np.count_nonzero(power > 10 ** (_AUDIBLE_DBFS / 10))) * _FRAME / LISTEN_RATE
