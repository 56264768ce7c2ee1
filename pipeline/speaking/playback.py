"""What has been sent, what must have been played, what was heard. Pure: times are given."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.speaking import tuning


class Lead(NamedTuple):
    """How far ahead of the player audio is sent: at the beginning of an answer, which a user who
    goes on takes back, and later."""

    first_s: float
    s: float


class PlaybackClock:
    """Follows a player that plays what it is sent, without a pause, as soon as it has it.

    Times are seconds of one clock.
    """

    def __init__(self) -> None:
        self.sent_seconds = 0.0
        self.plays_until = 0.0
        """When it has played all that it was sent."""

    def send(self, seconds: float, now: float) -> None:
        """``seconds`` of audio leave now."""
        self.plays_until = max(now, self.plays_until) + seconds
        self.sent_seconds += seconds

    def heard_seconds(self, now: float) -> float:
        """How much of what was sent has been played."""
        return self.sent_seconds - max(0.0, self.plays_until - now)

    def delay(self, seconds: float, lead: Lead, now: float) -> float:
        """How long to wait before so much more is sent, so that the player then holds no more than
        the lead; a player that holds nothing is not left waiting."""
        lead_s = lead.first_s if self.sent_seconds < tuning.FIRST_S else lead.s
        return max(0.0, self.plays_until - now + min(0.0, seconds - lead_s))
