"""Rate limits for one client: pure arithmetic on the caller's times.

Too many messages are not dropped. A dropped append is a hole in an utterance, and a dropped commit
leaves a client waiting forever. Instead the server reads more slowly, so that TCP holds the sender
back; the client gets an error event, and is disconnected if it carries on.
"""

from __future__ import annotations

from dataclasses import dataclass

NOTICE_EVERY_S = 5.0
"""Minimum time between ``error`` events about the message rate."""

PATIENCE_S = 120.0
"""A client that is held back this long is disconnected with 1008. By then, a program that sends a
recording at full speed has sent 20 minutes of it in messages of 20 ms."""


class TokenBucket:
    """``rate_per_s`` on average, and up to ``burst`` at once after a rest.

    Times are in seconds of any monotonic clock.
    """

    def __init__(self, rate_per_s: float, burst: float, now: float) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = float(burst)
        self._at = now

    def take(self, now: float, tokens: int = 1) -> float:
        """Take tokens. Returns 0, or the seconds until they are available."""
        self._tokens = self.left(now) - tokens
        return 0.0 if self._tokens >= 0 else -self._tokens / self._rate_per_s

    def left(self, now: float) -> float:
        """Tokens available; negative while in debt."""
        passed_s = max(0.0, now - self._at)
        self._at = max(self._at, now)
        self._tokens = min(self._burst, self._tokens + passed_s * self._rate_per_s)
        return self._tokens

    @property
    def rested(self) -> bool:
        """Whether it is at least half full."""
        return self._tokens >= self._burst / 2


@dataclass(frozen=True, slots=True)
class Pace:
    """What to do before the next message is read."""

    wait_s: float = 0.0
    tell: bool = False
    """Send one ``error`` event with code ``rate_limit_exceeded``."""
    close: bool = False
    """Disconnect with 1008."""


AT_ONCE = Pace()


class MessageRate:
    """Limits the rate of one connection's messages, and of error events about it.

    The Reachy Mini app sends 100 messages a second, and after a network stall some hundred at once.
    """

    def __init__(self, messages_per_s: float | None, burst: int, now: float) -> None:
        """``messages_per_s`` ``None``: no limit."""
        self._bucket = None if messages_per_s is None else TokenBucket(messages_per_s, burst, now)
        self._held_since: float | None = None
        self._told_at: float | None = None

    def take(self, now: float) -> Pace:
        """Record that a message was read at ``now``; returns how to read on."""
        if self._bucket is None:
            return AT_ONCE
        wait_s = self._bucket.take(now)
        if wait_s == 0:
            if self._bucket.rested:
                self._held_since = None
            return AT_ONCE
        if self._held_since is None:
            self._held_since = now
        if now - self._held_since >= PATIENCE_S:
            return Pace(close=True)
        tell = self._told_at is None or now - self._told_at >= NOTICE_EVERY_S
        if tell:
            self._told_at = now
        return Pace(wait_s, tell)
