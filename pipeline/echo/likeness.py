"""Is a short sound an echo of what was sent? Pure; numpy; some 1 to 3 ms of CPU.

An echo can only repeat what was sent. So a sound that is unlike everything sent in the last 1.5 s
comes from a person, even in an unknown room. Both signals are whitened, so that two voices do not
match merely because both are voices, and compared at every delay by their normalised
cross-correlation, whose square is the share of the sound's energy that arrives by the direct path.

Measured on 80 simulated first answers (``benchmarks.harness.rooms``; distorting loudspeakers, RT60
of 0.2 to 0.6 s), 192 ms after the VAD noticed. Lowest values: echoes 0.39, 12 dB softer 0.36,
through 8 kHz 0.24, with pink noise 10 dB below the echo 0.23. The highest of 77 people speaking
over them: 0.14.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import LISTEN_RATE, Pcm, to_float
from pipeline.echo import tuning

LOOK_BACK_SAMPLES = LISTEN_RATE * 32 // 1000
"""A detector notices a sound later than it begins."""
_MOST_SAMPLES = LISTEN_RATE * 4 // 10
"""Only the newest samples are compared."""

Sound = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Likeness:
    delay_samples: int
    """Best-fitting delay from sending to hearing, at 16 kHz."""
    value: float
    """The normalised cross-correlation there, 0 to 1."""
    heard_samples: int
    """How much was compared."""

    @property
    def is_echo(self) -> bool | None:
        """``None``: the sound is too short to tell."""
        if self.value >= tuning.LIKENESS_SURELY_ECHO:
            return True
        heard_ms = self.heard_samples * 1000 // LISTEN_RATE
        more_ms = heard_ms - tuning.LIKENESS_ENOUGH_MS
        if more_ms >= 0:
            return self.value >= tuning.LIKENESS_ECHO - tuning.LIKENESS_LATER_LESS_PER_MS * more_ms
        unlike = self.value < tuning.LIKENESS_ECHO + tuning.LIKENESS_LESS_PER_MS * more_ms
        return False if unlike and heard_ms >= tuning.LIKENESS_FEWEST_MS else None


def compare(sent: Pcm, heard: Pcm) -> Likeness:
    """``sent`` ends when ``heard`` does and begins earlier, by the longest delay to look for; both
    int16 at 16 kHz. Raises ``ValueError`` if ``sent`` is shorter than ``heard``."""
    longest = len(sent) - len(heard)
    if longest < 0:
        raise ValueError(f"{len(sent)} samples sent, and {len(heard)} heard")
    heard = heard[-_MOST_SAMPLES:]
    sent = sent[-(len(heard) + longest) :]
    count = len(heard)
    if not heard.any() or not sent.any():
        return Likeness(0, 0.0, count)
    size = 1 << (len(sent) - 1).bit_length()
    near = _whiten(to_float(heard) * np.hanning(count).astype(np.float32), size)
    far = _whiten(to_float(sent), size)
    values = np.fft.irfft(np.fft.rfft(near) * np.fft.rfft(far).conj(), size)
    # Both begin at sample 0 of their transforms: heard began ``longest`` samples after sent.
    alike = np.abs(values[np.arange(-longest, 1)])
    energy = np.concatenate(([0.0], np.cumsum(np.square(far[: len(sent)]), dtype=np.float64)))
    begins = longest - np.arange(longest + 1)
    least = 1e-3 * energy[-1] * count / len(sent)
    sent_energy = energy[begins + count] - energy[begins] + least
    # Assume that it fills the band: a sound in only a few bins would match anything.
    heard_energy = 2 * (tuning.LIKENESS_HIGH_HZ - tuning.LIKENESS_LOW_HZ) / LISTEN_RATE
    alike = alike / np.sqrt(sent_energy * heard_energy + 1e-20)
    best = int(alike.argmax())
    return Likeness(best, min(1.0, float(alike[best])), count)


def _whiten(samples: Sound, size: int) -> Sound:
    """``samples`` with the same power in each ``LIKENESS_SMOOTHED_HZ`` of the band, and no
    peaks."""
    spectrum = np.fft.rfft(samples, size)
    hz = LISTEN_RATE / size
    reach = max(1, round(tuning.LIKENESS_SMOOTHED_HZ / hz / 2))
    sums = np.concatenate(([0.0], np.cumsum(np.square(np.abs(spectrum)), dtype=np.float64)))
    places = np.arange(len(spectrum))
    first, last = np.maximum(places - reach, 0), np.minimum(places + reach + 1, len(spectrum))
    power = (sums[last] - sums[first]) / (last - first)
    spectrum /= np.sqrt(power + 1e-6 * power.max() + 1e-20).astype(np.float32)
    spectrum[: round(tuning.LIKENESS_LOW_HZ / hz)] = 0
    spectrum[round(tuning.LIKENESS_HIGH_HZ / hz) :] = 0
    sound = np.fft.irfft(spectrum, size)
    most = tuning.LIKENESS_MOST_PEAK * float(np.sqrt(np.square(sound[: len(samples)]).mean()))
    return np.clip(sound, -most, most)
