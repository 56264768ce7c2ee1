"""Decides how much sound a loudspeaker's driver buffers: more if it runs dry. Pure.

Little at first, because the driver's buffer is still heard after a flush. A busy machine needs
more, or its sound has gaps.
"""

from __future__ import annotations

from collections import deque

LATENCIES_S = (0.015, 0.025, 0.040)
"""With less, PulseAudio's sinks run dry in bursts; with more, an interrupted answer goes on too
long."""
_MOMENTS = 3
_WITHIN_S = 20.0
_MOMENT_S = 1.0
"""Xruns within this time count as one."""
QUIET_S = 1.0
"""After this much silence the stream can be reopened unheard."""


class Dropouts:
    """Tracks the underruns of one output device while the program runs."""

    def __init__(self) -> None:
        self._step = 0
        self._xruns = 0
        self._moments: deque[float] = deque(maxlen=_MOMENTS)
        self.needs_more = False
        """A larger buffer is due, once the stream can be reopened unheard."""

    @property
    def latency_s(self) -> float:
        """The latency to request from the driver."""
        return LATENCIES_S[self._step]

    def note(self, xruns: int, is_sounding: bool, now_s: float) -> None:
        """``xruns``: the total so far. Those in silence are inaudible and do not count."""
        more, self._xruns = xruns > self._xruns, xruns
        if not (more and is_sounding) or self._step + 1 == len(LATENCIES_S):
            return
        if self._moments and now_s - self._moments[-1] < _MOMENT_S:
            return
        self._moments.append(now_s)
        self.needs_more |= len(self._moments) == _MOMENTS and now_s - self._moments[0] <= _WITHIN_S

    def give_more(self) -> None:
        """Use the next larger buffer from the next opening on."""
        self._step += 1
        self._moments.clear()
        self.needs_more = False
