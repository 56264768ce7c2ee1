"""The direction of speech, as reported by a microphone array. Pure: the caller passes times."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pipeline.commands import Direction
from pipeline.settings import Sector

_FRESH_S = 0.35
"""The array is polled ten times a second; a few reports may be missing."""
_LOST_S = 1.0
"""An array silent for this long counts as absent, so that speech from everywhere counts."""
_PAUSE_S = 1.5
"""Longest time from the last word of an utterance to its end."""


class Directions:
    """The latest reports of the array. Times are seconds of one clock."""

    def __init__(self, sector: Sector | None = None) -> None:
        """``sector``: directions from which speech counts; ``None``: all."""
        self._sector = sector
        self._reports: deque[tuple[float, Direction]] = deque(maxlen=32)

    def note(self, direction: Direction, now: float) -> None:
        self._reports.append((now, direction))

    def now_deg(self, now: float) -> float | None:
        """The direction of speech now; ``None``: unknown, perhaps only for a moment."""
        return self._azimuth_deg(now - _FRESH_S)

    def lately_deg(self, now: float) -> float | None:
        """The direction of the utterance that has just ended; ``None``: unknown."""
        return self._azimuth_deg(now - _PAUSE_S)

    def _azimuth_deg(self, since: float) -> float | None:
        azimuths_deg = (
            each.azimuth_deg for at, each in reversed(self._reports) if each.speech and at >= since
        )
        return next(azimuths_deg, None)

    def elsewhere(self, now: float) -> bool:
        """Whether the sound now is not for the robot: the array works, and hears no speech from the
        accepted sector."""
        if self._sector is None or not self._reports or now - self._reports[-1][0] > _LOST_S:
            return False
        return not any(azimuth_deg in self._sector for azimuth_deg in self._spoken_from(now))

    def were_elsewhere(self, now: float) -> bool:
        """Whether the utterance that has just ended came from outside the accepted sector."""
        azimuth_deg = self.lately_deg(now) if self._sector else None
        return azimuth_deg is not None and azimuth_deg not in (self._sector or ())

    def others(self, now: float) -> bool:
        """Whether the array hears speech from anywhere; it notices later than a VAD."""
        return next(self._spoken_from(now), None) is not None

    def _spoken_from(self, now: float) -> Iterator[float]:
        return (
            each.azimuth_deg for at, each in self._reports if now - at <= _FRESH_S and each.speech
        )
