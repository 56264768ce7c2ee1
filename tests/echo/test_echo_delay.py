"""The delay of an echo, and detecting that there is no echo."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import LISTEN_RATE
from pipeline.echo.delay import DelayFinder
from pipeline.echo.kalman import Samples
from tests.support.echo_sound import at_pace, hum, pcm, power_db, room, speechlike, through

LENGTH_S = 6.0
ONE_MS = LISTEN_RATE // 1000
SENT = speechlike(LENGTH_S, 1)


def delayed(sound: Samples, samples: int) -> Samples:
    return np.concatenate((np.zeros(samples, np.float32), sound))[: len(sound)]


def found(sent: Samples, heard: Samples) -> int | None:
    """The delay in samples."""
    finder = DelayFinder()
    for start in range(0, len(sent), 480):
        finder.feed(pcm(sent[start : start + 480]), pcm(heard[start : start + 480]))
    steps = finder.search()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


@pytest.mark.parametrize("snr_db", [30, 10, 0, -6])
@pytest.mark.parametrize("delay_ms", [0, 37.5, 420, 1490])
def test_it_is_found_within_a_millisecond(delay_ms: float, snr_db: float) -> None:
    samples = round(delay_ms * LISTEN_RATE / 1000)
    echo = through(delayed(SENT, samples), room(0, 2))
    level = 10 ** ((power_db(echo) - snr_db) / 20)
    assert found(SENT, echo + hum(len(echo), 3, level)) == pytest.approx(samples, abs=ONE_MS)


@given(st.integers(0, 1500 * ONE_MS), st.floats(-100, 100), st.integers(0, 50))
@settings(max_examples=10)
def test_it_is_found_by_two_clocks(delay: int, ppm: float, seed: int) -> None:
    echo = at_pace(through(delayed(SENT, delay), room(0, seed)), ppm)
    # 100 ppm are 6 samples in the 4 s that are compared, and 10 from the beginning.
    at = found(SENT, echo + hum(len(echo), seed, 0.003))
    assert at == pytest.approx(delay, abs=ONE_MS + 10)


def test_it_is_found_during_equally_loud_speech() -> None:
    echo = through(delayed(SENT, 3200), room(0, 4))
    near = speechlike(LENGTH_S, 5)
    near *= np.float32(10 ** ((power_db(echo) - power_db(near)) / 20))
    assert found(SENT, echo + near) == pytest.approx(3200, abs=ONE_MS)


@pytest.mark.parametrize("seed", range(10))
def test_other_speech_is_no_echo(seed: int) -> None:
    heard = speechlike(LENGTH_S, 100 + seed) + hum(int(LENGTH_S * LISTEN_RATE), seed)
    assert found(SENT, heard) is None


def test_nothing_sent_or_nothing_heard_is_no_echo() -> None:
    silence = np.zeros_like(SENT)
    assert found(silence, SENT) is None
    assert found(SENT, silence) is None


def test_a_second_of_sound_is_needed() -> None:
    short = SENT.copy()
    short[LISTEN_RATE // 2 :] = 0
    assert found(short, short) is None
