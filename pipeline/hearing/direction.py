"""The direction of speech, as a microphone array hears it. Pure: times are given."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pipeline.commands import Direction
from pipeline.settings import Sector

_FRESH_S = 0.35
"""An array is asked ten times a second; one answer may be missed."""
_LOST_S = 1.0
"""An array that has told nothing for so long is not there, and everybody is heard."""
_PAUSE_S = 1.5
"""So long an utterance goes on after its last word, at most."""


class Directions:
    """What the array told lately. Times are seconds of one clock."""

    def __init__(self, accepted: Sector | None = None) -> None:
        """``accepted``: only who speaks from there is meant; ``None``: everybody."""
        self._accepted = accepted
        self._told: deque[tuple[float, Direction]] = deque(maxlen=32)

    def note(self, direction: Direction, now: float) -> None:
        self._told.append((now, direction))

    def now_deg(self, now: float) -> float | None:
        """The direction of speech now; ``None``: unknown, or not known yet."""
        return self._azimuth_deg(now - _FRESH_S)

    def lately_deg(self, now: float) -> float | None:
        """The direction of the utterance that has just ended; ``None``: unknown."""
        return self._azimuth_deg(now - _PAUSE_S)

    def _azimuth_deg(self, since: float) -> float | None:
        heard = (
            told.azimuth_deg for at, told in reversed(self._told) if told.speech and at >= since
        )
        return next(heard, None)

    def elsewhere(self, now: float) -> bool:
        """Whether what is heard now is not for the robot: the array works, and hears no speech
        from where who is meant would."""
        if self._accepted is None or not self._told or now - self._told[-1][0] > _LOST_S:
            return False
        return not any(azimuth_deg in self._accepted for azimuth_deg in self._spoken_from(now))

    def others(self, now: float) -> bool:
        """Whether another person speaks, ``elsewhere``. If not, there is no speech as far as the
        array has noticed: it is later to notice than a voice activity detector."""
        return next(self._spoken_from(now), None) is not None

    def _spoken_from(self, now: float) -> Iterator[float]:
        return (told.azimuth_deg for at, told in self._told if now - at <= _FRESH_S and told.speech)
