"""Jitter of a client's audio."""

from __future__ import annotations

import random

import pytest

from pipeline.hearing.arrivals import Arrivals, AssumedSilence
from pipeline.speaking.playback import Lead, PlaybackClock

pytestmark = pytest.mark.quick

FRAME_S = 0.02


def heard(late_s: list[float], pace: float = 1.0) -> Arrivals:
    """Arrivals after 20 ms frames that were late by this much; ``pace``: of the client's clock."""
    arrivals = Arrivals()
    for at, late in enumerate(late_s, start=1):
        arrivals.note(FRAME_S, 100 + at * FRAME_S * pace + late)
    return arrivals


def test_even_audio_has_no_jitter() -> None:
    assert heard([0.0] * 500).jitter_s == 0.0
    assert heard([0.3] * 500).jitter_s == 0.0  # however long its delay


def test_jitter_is_the_latest_frame_against_the_quickest() -> None:
    noise = random.Random(3)
    assert heard([noise.uniform(0.0, 0.06) for _ in range(400)]).jitter_s == pytest.approx(
        0.06, abs=0.011
    )
    assert heard([0.05] * 100 + [0.0] * 100).jitter_s == pytest.approx(0.05, abs=0.011)


def test_an_old_burst_is_forgotten() -> None:
    assert heard([0.0] * 100 + [0.2] + [0.0] * 100).jitter_s == pytest.approx(0.2, abs=0.011)
    assert heard([0.0] * 100 + [0.2] + [0.0] * 600).jitter_s == 0.0


def test_clocks_that_drift_apart_do_not_add_up() -> None:
    assert heard([0.0] * 50_000, pace=1.0002).jitter_s <= 0.01
    assert heard([0.0] * 50_000, pace=0.9998).jitter_s <= 0.01


def test_a_mute_and_a_recording_sent_at_once_are_no_jitter() -> None:
    arrivals = heard([0.0] * 50)
    arrivals.note(FRAME_S, 110.0)
    arrivals.note(5.0, 110.02)
    assert arrivals.jitter_s == 0.0


@pytest.mark.parametrize(
    ("message_s", "gap_s", "stall_s"),
    [
        (0.02, 0.02, 0.3),
        (0.5, 0.5, 0.75),
        (0.99, 0.99, 1.485),
        (1.0, 1.01, 1.515),
        (2.0, 2.01, 3.015),
        (0.02, 1.5, 0.3),  # it was muted
        (1.5, 4.0, 0.3),  # each message is an utterance
        (5.0, 5.0, 0.3),
        (8.0, 2.4, 0.3),
    ],
)
def test_a_client_that_sends_rarely_has_not_stalled(
    message_s: float, gap_s: float, stall_s: float
) -> None:
    arrivals = Arrivals()
    for at in range(1, 6):
        arrivals.note(message_s, at * gap_s)
    assert arrivals.stall_s(0.3) == pytest.approx(stall_s)


def test_assumed_silence_is_counted_and_excluded() -> None:
    silence = AssumedSilence()
    assert list(silence.between(3, 9)) == [(3, 9)]
    for start, end in ((10, 20), (20, 30), (50, 60)):
        silence.add(start, end)
    assert [silence.before(at) for at in (10, 15, 30, 40, 55, 70)] == [0, 5, 20, 20, 25, 30]
    assert list(silence.between(0, 70)) == [(0, 10), (30, 50), (60, 70)]
    assert list(silence.between(5, 8)) == [(5, 8)]
    assert list(silence.between(12, 28)) == []
    assert list(silence.between(25, 55)) == [(30, 50)]


@pytest.mark.parametrize("chunk_s", [0.02, 0.04])
def test_audio_is_ahead_of_the_player_by_the_lead_at_most(chunk_s: float) -> None:
    clock, lead, now, most = PlaybackClock(), Lead(0.08, 0.25), 50.0, [0.0, 0.0]
    for _ in range(round(4.0 / chunk_s)):
        now += clock.delay(chunk_s, lead, now)
        clock.send(chunk_s, now)
        part = clock.sent_seconds > 2.0 + 1e-6
        most[part] = max(most[part], clock.plays_until - now)
    assert most == pytest.approx([0.08, 0.25])


def test_a_chunk_longer_than_the_lead_leaves_no_gap() -> None:
    clock, now = PlaybackClock(), 50.0
    for _ in range(10):
        now += clock.delay(0.1, Lead(0.08, 0.25), now)
        assert now <= max(50.0, clock.plays_until)
        clock.send(0.1, now)
