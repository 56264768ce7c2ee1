"""From where somebody speaks, as a microphone array hears it. Pure: times are given."""

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
        """From where somebody speaks now; ``None``: nobody knows, or not yet."""
        return self._azimuth_deg(now - _FRESH_S)

    def lately_deg(self, now: float) -> float | None:
        """From where the utterance came that is just over; ``None``: nobody knows."""
        return self._azimuth_deg(now - _PAUSE_S)

    def _azimuth_deg(self, since: float) -> float | None:
        heard = (
            told.azimuth_deg for at, told in reversed(self._told) if told.speech and at >= since
        )
        return next(heard, None)

    def elsewhere(self, now: float) -> bool:
        """Whether what is heard now is for somebody else: the array works, and hears nobody speak
        from where who is meant would."""
        if self._accepted is None or not self._told or now - self._told[-1][0] > _LOST_S:
            return False
        return not any(azimuth_deg in self._accepted for azimuth_deg in self._spoken_from(now))

    def others(self, now: float) -> bool:
        """Whether it is somebody else who speaks, ``elsewhere``. If not, nobody does as far as the
        array has noticed: it is later to notice than a voice activity detector."""
        return next(self._spoken_from(now), None) is not None

    def _spoken_from(self, now: float) -> Iterator[float]:
        return (told.azimuth_deg for at, told in self._told if now - at <= _FRESH_S and told.speech)
