"""Limits on one client's requests: arithmetic on given times."""

from __future__ import annotations

import pytest

from app.access.limits import NOTICE_EVERY_S, PATIENCE_S, MessageRate, TokenBucket

pytestmark = pytest.mark.quick

ROBOT_PER_S = 100


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(rate_per_s=10, burst=3, now=100.0)
    assert [bucket.take(100.0) for _ in range(3)] == [0, 0, 0]
    assert bucket.take(100.0) == pytest.approx(0.1)
    assert bucket.take(100.0) == pytest.approx(0.2)
    assert bucket.take(100.3) == pytest.approx(0.0)
    assert bucket.take(1000.0) == 0


def test_a_rest_fills_a_bucket_only_to_its_limit() -> None:
    bucket = TokenBucket(rate_per_s=10, burst=3, now=0.0)
    assert [bucket.take(1e6) for _ in range(4)] == [0, 0, 0, pytest.approx(0.1)]


def test_a_stopped_or_reversed_clock_gives_no_tokens() -> None:
    bucket = TokenBucket(rate_per_s=10, burst=1, now=5.0)
    assert bucket.take(5.0) == 0
    assert bucket.take(4.0) == pytest.approx(0.1)


def test_a_robot_and_its_stall_never_meet_the_limit() -> None:
    """100 messages a second; a stall of 10 s, then everything at once."""
    rate = MessageRate(500, 3000, 0.0)
    for n in range(60 * ROBOT_PER_S):
        assert rate.take(n / ROBOT_PER_S).wait_s == 0
    assert all(rate.take(70.0).wait_s == 0 for _ in range(10 * ROBOT_PER_S))


@pytest.mark.parametrize("late_s", [0.0, 0.0007])
def test_a_flood_is_throttled_and_warned_at_intervals(late_s: float) -> None:
    """``late_s``: timers are never exact."""
    rate, now, told = MessageRate(100, 10, 0.0), 0.0, 0
    for _ in range(2_010):
        pace = rate.take(now)
        now += pace.wait_s + (late_s if pace.wait_s else 0)
        told += pace.tell
        assert not pace.close
    assert now == pytest.approx(20.0, abs=0.1)
    assert told == pytest.approx(20 / NOTICE_EVERY_S, abs=1)


@pytest.mark.parametrize("late_s", [0.0, 0.0007])
def test_a_flood_that_does_not_end_is_cut(late_s: float) -> None:
    rate, now, messages = MessageRate(100, 10, 0.0), 0.0, 0
    while not (pace := rate.take(now)).close:
        now += pace.wait_s + (late_s if pace.wait_s else 0)
        messages += 1
    assert now == pytest.approx(PATIENCE_S, abs=0.2)
    assert messages == pytest.approx(PATIENCE_S * 100 + 10, abs=20)


def test_a_pause_forgives_a_flood() -> None:
    rate, now = MessageRate(100, 100, 0.0), 0.0
    for _ in range(4):
        until = now + PATIENCE_S - 1
        while now < until:
            pace = rate.take(now)
            assert not pace.close
            now += pace.wait_s
        now += 1  # it refills to the brim


def test_a_long_recording_may_be_sent_at_full_speed() -> None:
    rate, now = MessageRate(500, 3000, 0.0), 0.0
    for _ in range(20 * 60 * 50):  # 20 minutes in messages of 20 ms
        pace = rate.take(now)
        assert not pace.close
        now += pace.wait_s


def test_without_a_limit_nothing_is_ever_too_fast() -> None:
    rate = MessageRate(None, 1, 0.0)
    assert not any(rate.take(0.0).wait_s for _ in range(10_000))
