"""How much sound a loudspeaker's driver is given in advance: more where it runs dry. Pure.

Little, because what the driver has is still heard after a flush. A busy machine asks for more: then
its sound has holes otherwise.
"""

from __future__ import annotations

from collections import deque

LATENCIES_S = (0.015, 0.025, 0.040)
"""Less, and PulseAudio's sinks run dry in bursts; more, and an interrupted answer goes on too
long."""
_MOMENTS = 3
_WITHIN_S = 20.0
_MOMENT_S = 1.0
"""Several xruns in a row are one moment."""
QUIET_S = 1.0
"""After so much silence the stream can be reopened unheard."""


class Dropouts:
    """Tracks the underruns of one output device, for as long as the program runs."""

    def __init__(self) -> None:
        self._step = 0
        self._xruns = 0
        self._moments: deque[float] = deque(maxlen=_MOMENTS)
        self.due = False
        """More is wanted, as soon as the stream can be reopened unheard."""

    @property
    def latency_s(self) -> float:
        """What the driver is to be asked for."""
        return LATENCIES_S[self._step]

    def note(self, xruns: int, sounding: bool, now_s: float) -> None:
        """``xruns``: so far. Those in silence are not heard."""
        more, self._xruns = xruns > self._xruns, xruns
        if not (more and sounding) or self._step + 1 == len(LATENCIES_S):
            return
        if self._moments and now_s - self._moments[-1] < _MOMENT_S:
            return
        self._moments.append(now_s)
        self.due |= len(self._moments) == _MOMENTS and now_s - self._moments[0] <= _WITHIN_S

    def give_more(self) -> None:
        """From the next opening on."""
        self._step += 1
        self._moments.clear()
        self.due = False
