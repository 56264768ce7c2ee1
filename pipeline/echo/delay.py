"""Measures how long after sending a sound comes back through the microphone: 0 to 1.5 s, or never.

A remote client plays audio some hundred milliseconds later, too late for a filter of 320 ms. The
generalised cross-correlation with phase transform (Knapp and Carter 1976) of the last seconds shows
the delay as a peak; how far it stands out shows whether there is an echo at all. Pure; numpy; one
search costs about 10 ms of CPU, at most once a second.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, AudioHistory, Pcm, to_float
from pipeline.echo import tuning

Sound = NDArray[np.float32]

MOST_DELAY_SAMPLES = 3 * LISTEN_RATE // 2
_FRAME = 512


class DelayFinder:
    """Compares two streams on one sample clock: the sound sent, and the sound heard."""

    def __init__(self) -> None:
        self._most = MOST_DELAY_SAMPLES
        self._compared_samples = round(tuning.DELAY_COMPARED_S * LISTEN_RATE)
        self._sent = AudioHistory(self._compared_samples + self._most)
        self._heard = AudioHistory(self._compared_samples)

    def feed(self, sent: Pcm, heard: Pcm) -> None:
        """Take the next samples of both, int16 mono at 16 kHz. Raises ``ValueError`` if one is
        longer."""
        if len(sent) != len(heard):
            raise ValueError(f"{len(sent)} samples sent while {len(heard)} were heard")
        self._sent.append(sent)
        self._heard.append(heard)

    def search(self) -> Generator[None, None, int | None]:
        """The delay of the echo in the last 4 s, in samples from sending a sound to first hearing
        it; None if no delay stands out, or if less than 0.3 s of sound was sent that could have
        come back. Works in a few steps of some milliseconds each."""
        heard = to_float(self._heard.read(self._heard.start, self._heard.end))
        sent = to_float(self._sent.read(self._sent.start, self._sent.end))
        sound_s = _sound_s(sent)
        if sound_s < tuning.DELAY_LEAST_SOUND_S or not heard.any():
            return None
        confident = max(tuning.DELAY_CONFIDENT, tuning.DELAY_CONFIDENT_S / sound_s)
        yield
        # Both end at the same sample; sent begins up to 1.5 s earlier.
        values = np.square((yield from _phase_correlation(sent, heard))[: self._most + 1])
        # Two clocks smear the peak.
        power = np.convolve(values, np.ones(tuning.DELAY_SMEARED, np.float32), "same")
        highest, usual = float(power.max()), float(np.median(power))
        if float(np.sqrt(highest / (usual + 1e-20))) < confident:
            return None
        # The first peak is the delay, even if a reflection is a little stronger.
        least = max(0.5 * highest, confident**2 * usual)
        first = max(0, int(np.flatnonzero(power >= least)[0]) - tuning.DELAY_SMEARED // 2)
        return first + int(values[first : first + 2 * tuning.DELAY_SMEARED].argmax())


def _phase_correlation(sent: Sound, heard: Sound) -> Generator[None, None, Sound]:
    """At ``d``: how well ``heard`` matches ``sent`` ``d`` samples earlier; both end together."""
    # The delays of interest do not wrap around.
    size = 1 << (len(sent) - 1).bit_length()
    late = np.zeros(size, np.float32)
    late[: len(sent)] = sent
    now = np.zeros(size, np.float32)
    now[len(sent) - len(heard) : len(sent)] = heard
    now_spectrum = np.fft.rfft(now)
    yield
    cross = now_spectrum * np.fft.rfft(late).conj()
    yield
    magnitude = np.abs(cross)
    low, high = (
        round(hz * size / LISTEN_RATE) for hz in (tuning.DELAY_LOW_HZ, tuning.DELAY_HIGH_HZ)
    )
    weights = np.zeros(len(cross), np.float32)
    weights[low:high] = 1 / (magnitude[low:high] + 1e-9 * magnitude.max() + 1e-20)
    cross *= weights
    yield
    values: Sound = np.fft.irfft(cross, size).astype(np.float32)
    yield
    return values


def _sound_s(samples: Sound) -> float:
    """Seconds of sound above -60 dBFS."""
    whole = len(samples) // _FRAME
    power = np.square(samples[: whole * _FRAME]).reshape(whole, _FRAME).mean(axis=1)
    return (
        int(np.count_nonzero(power > 10 ** (tuning.DELAY_AUDIBLE_DBFS / 10))) * _FRAME / LISTEN_RATE
    )
