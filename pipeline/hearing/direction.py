"""The direction of speech, as a microphone array hears it. Pure: times are given."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pipeline.commands import Direction
from pipeline.settings import Sector

_FRESH_S = 0.35
"""An array is asked ten times a second; one answer may be missed."""
_LOST_S = 1.0
"""An array that has reported nothing for this long is taken as absent: all speech counts."""
_PAUSE_S = 1.5
"""The longest that an utterance goes on after its last word."""


class Directions:
    """The latest reports of the array. Times are seconds of one clock."""

    def __init__(self, accepted: Sector | None = None) -> None:
        """``accepted``: where speech counts from; ``None``: from everywhere."""
        self._accepted = accepted
        self._reports: deque[tuple[float, Direction]] = deque(maxlen=32)

    def note(self, direction: Direction, now: float) -> None:
        self._reports.append((now, direction))

    def now_deg(self, now: float) -> float | None:
        """The direction of speech now; ``None``: unknown, or not known yet."""
        return self._azimuth_deg(now - _FRESH_S)

    def lately_deg(self, now: float) -> float | None:
        """The direction of the utterance that has just ended; ``None``: unknown."""
        return self._azimuth_deg(now - _PAUSE_S)

    def _azimuth_deg(self, since: float) -> float | None:
        heard = (
            each.azimuth_deg for at, each in reversed(self._reports) if each.speech and at >= since
        )
        return next(heard, None)

    def elsewhere(self, now: float) -> bool:
        """Whether what is heard now is not for the robot: the array works, and hears no speech
        from the accepted sector."""
        if self._accepted is None or not self._reports or now - self._reports[-1][0] > _LOST_S:
            return False
        return not any(azimuth_deg in self._accepted for azimuth_deg in self._spoken_from(now))

    def others(self, now: float) -> bool:
        """Whether somebody speaks, as far as the array has noticed: it notices later than a voice
        activity detector."""
        return next(self._spoken_from(now), None) is not None

    def _spoken_from(self, now: float) -> Iterator[float]:
        return (
            each.azimuth_deg for at, each in self._reports if now - at <= _FRESH_S and each.speech
        )
