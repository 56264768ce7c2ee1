"""When each sample of a stream is at the membrane, estimated from a driver's noisy timestamps."""

from __future__ import annotations

from math import pi, sqrt
from statistics import median

_BANDWIDTH_HZ = 0.1
"""Bandwidth of the loop that follows the timestamps: PulseAudio's wander by 5 ms within seconds,
real clocks by 100 ppm for hours."""
_EARLY_BANDWIDTH_HZ = 1.0
_EARLY_S = 1.0
MOST_PPM = 500
"""The largest error of a sound device's clock; the cheapest are off by 200."""
_JUMP_S = 0.008
"""Consecutive stamps that are off by more are not noise: samples were lost or added."""
_PROOF_S = 0.060
"""Stamps must agree on a jump for this long."""
_AGREE_S = 0.004
_XRUN_JUMP_S = 0.0015
_XRUN_PROOF_S = 0.015
_XRUN_AGREE_S = 0.001
_XRUN_S = 0.2
"""For this long after the driver reports an xrun, the three stricter limits above apply."""


class StreamClock:
    """A second-order delay-locked loop over (sample number, time) pairs (F. Adriaensen, "Using a
    DLL to filter time", 2005). Times are seconds on the loop's clock."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._period_s = 1 / rate_hz
        self._first = 0
        self._at_s = 0.0
        self._began: int | None = None
        self._doubts: list[float] = []
        self._doubted_from = 0
        self._xrun_until = 0

    @property
    def known_s(self) -> float:
        """Seconds of the stream that have been followed."""
        return 0.0 if self._began is None else (self._first - self._began) / self._rate_hz

    def look(self, first: int, at_s: float, xrun: bool = False) -> int:
        """Take the timestamp of sample ``first``. Returns how many samples the stream has just
        jumped by: positive if samples now come later than their numbers say, negative if earlier,
        0 without a jump."""
        if self._began is None:
            self._began, self._first, self._at_s = first, first, at_s
            return 0
        if xrun:
            self._xrun_until = first + round(_XRUN_S * self._rate_hz)
        error_s = at_s - self.time_of(first)
        if abs(error_s) > (_XRUN_JUMP_S if first < self._xrun_until else _JUMP_S):
            return self._doubt(first, error_s)
        self._doubts.clear()
        self._follow(first, error_s)
        return 0

    def time_of(self, number: float) -> float:
        """When this sample is at the membrane."""
        return self._at_s + (number - self._first) * self._period_s

    def number_at(self, at_s: float) -> float:
        """The number of the sample that is at the membrane at ``at_s``."""
        return self._first + (at_s - self._at_s) / self._period_s

    def _follow(self, first: int, error_s: float) -> None:
        step_s = (first - self._first) / self._rate_hz
        early = self.known_s < _EARLY_S
        turn = 2 * pi * (_EARLY_BANDWIDTH_HZ if early else _BANDWIDTH_HZ) * step_s
        self._at_s = self.time_of(first) + min(1.0, sqrt(2) * turn) * error_s
        self._first = first
        if step_s > 0 and not early:
            period_s = self._period_s + turn * turn / (step_s * self._rate_hz) * error_s
            nominal_s = 1 / self._rate_hz
            most_s = nominal_s * MOST_PPM * 1e-6
            self._period_s = min(max(period_s, nominal_s - most_s), nominal_s + most_s)

    def _doubt(self, first: int, error_s: float) -> int:
        lately = first < self._xrun_until
        agree_s, proof_s = (_XRUN_AGREE_S, _XRUN_PROOF_S) if lately else (_AGREE_S, _PROOF_S)
        if self._doubts and abs(error_s - median(self._doubts)) > agree_s:
            self._doubts.clear()
        if not self._doubts:
            self._doubted_from = first
        self._doubts.append(error_s)
        if (first - self._doubted_from) / self._rate_hz < proof_s:
            return 0
        jump_s = median(self._doubts)
        self._doubts.clear()
        self._at_s = self.time_of(first) + jump_s
        self._first = first
        return round(jump_s * self._rate_hz)
