"""What has been sent, what must have been played, what was heard. Pure: times are given."""

from __future__ import annotations


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

    def delay(self, lead_seconds: float, now: float) -> float:
        """How long to wait before sending more, so that the player holds no more than the lead."""
        return max(0.0, self.plays_until - now - lead_seconds)
