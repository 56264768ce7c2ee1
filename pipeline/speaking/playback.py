"""Tracks how much was sent and how much must have been heard. Pure: the caller passes times."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.speaking import tuning


class Lead(NamedTuple):
    """How far ahead of the player audio is sent: ``first_s`` at the start of an answer, when the
    user may still go on and cancel it, and ``s`` later."""

    first_s: float
    s: float


class PlaybackClock:
    """Models a player that plays audio ``lag_s`` after it was sent, without gaps.

    Times are seconds of one clock.
    """

    def __init__(self, lag_s: float = 0.0) -> None:
        self._lag_s = lag_s
        self.sent_seconds = 0.0
        self.plays_until = 0.0
        """When the player will have played everything sent."""

    def send(self, seconds: float, now: float) -> None:
        """``seconds`` of audio are sent now."""
        self.plays_until = max(now, self.plays_until) + seconds
        self.sent_seconds += seconds

    def heard_seconds(self, now: float) -> float:
        """How much of the sent audio has been played."""
        return max(0.0, self.sent_seconds - max(0.0, self.plays_until + self._lag_s - now))

    def delay(self, seconds: float, lead: Lead, now: float) -> float:
        """How long to wait before sending ``seconds`` more, so that the player then holds at most
        the lead; never lets the player run dry."""
        lead_s = lead.first_s if self.sent_seconds < tuning.FIRST_S else lead.s
        return max(0.0, self.plays_until - now + min(0.0, seconds - lead_s))
