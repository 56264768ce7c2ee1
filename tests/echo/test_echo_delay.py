"""The delay of an echo, gaps in it, and two clocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import LISTEN_RATE, to_float
from pipeline.echo.canceller import EchoCanceller
from pipeline.echo.delay import DelayFinder
from pipeline.echo.drift import PlayedSound, slope
from pipeline.echo.kalman import BLOCK, Samples
from pipeline.echo.slip import FARTHEST, SlipFinder, displacement
from tests.support.echo_sound import (
    at_pace,
    blocks,
    cleaned,
    hum,
    pcm,
    power_db,
    residual,
    room,
    speechlike,
    through,
)
from tests.support.echo_sound import seconds as part

pytestmark = pytest.mark.quick

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


@given(st.integers(ONE_MS, 1500 * ONE_MS), st.floats(-100, 100), st.integers(0, 50))
@settings(max_examples=10)
def test_it_is_found_with_two_clocks(delay: int, ppm: float, seed: int) -> None:
    echo = at_pace(through(delayed(SENT, delay), room(0, seed)), ppm)
    # 100 ppm are 6 samples in the 4 s that are compared, and 10 from the beginning: an echo of no
    # delay would come before its sound.
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


def test_silence_on_either_side_is_no_echo() -> None:
    silence = np.zeros_like(SENT)
    assert found(silence, SENT) is None
    assert found(SENT, silence) is None


def test_a_second_of_sound_is_needed() -> None:
    short = SENT.copy()
    short[LISTEN_RATE // 2 :] = 0
    assert found(short, short) is None


# --- how far to shift an expected echo to explain the captured audio ---------------------------


HELD = 1280
ECHO = speechlike(6, 1)


@given(st.integers(-FARTHEST, FARTHEST), st.integers(8000, 70_000), st.floats(6, 40))
@settings(max_examples=40)
def test_a_gap_is_found_to_the_sample_or_not_at_all(by: int, at: int, snr_db: float) -> None:
    expected = ECHO[at : at + HELD]
    heard = ECHO[at - by : at - by + HELD]
    level = 10 ** ((power_db(heard) - snr_db) / 20)
    found = displacement(heard + hum(HELD, at, level), expected)
    assert found is None or abs(found - by) <= 1


@pytest.mark.parametrize("by", [160, -160, 37, -400])
def test_a_gap_in_noise_is_found(by: int) -> None:
    expected = hum(4 * HELD, 1, 0.1)[HELD : 2 * HELD]
    heard = hum(4 * HELD, 1, 0.1)[HELD - by : 2 * HELD - by] + hum(HELD, 2, 0.05)
    assert displacement(heard, expected) == by


@pytest.mark.parametrize("seed", range(5))
def test_other_sound_is_no_gap(seed: int) -> None:
    other = speechlike(6, 100 + seed)
    spans = [slice(at, at + HELD) for at in range(8000, 80_000, 4000)]
    assert [displacement(other[span], ECHO[span]) for span in spans] == [None] * len(spans)


def test_a_filter_that_never_converged_has_no_gaps() -> None:
    finder = SlipFinder()
    for start in range(0, len(ECHO) - BLOCK, BLOCK):
        block = ECHO[start : start + BLOCK]
        assert finder.look(block, np.float32(0.2) * block[::-1], block) is None
        assert not finder.doubts
        assert not finder.lost


# --- two clocks --------------------------------------------------------------------------------


def tone(samples: int, hz: float) -> Samples:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(samples) / LISTEN_RATE)).astype(np.float32)


def read(sound: Samples, ppm: float, lag: float) -> Samples:
    played = PlayedSound()
    played.ppm, played.lag = ppm, lag
    found = []
    for block in blocks(sound):
        played.push(block)  # type: ignore[arg-type]
        found.append(played.read())
    return np.concatenate(found)


@given(st.floats(-300, 300), st.floats(40, 150), st.floats(100, 6000))
@settings(max_examples=25)
def test_a_tone_is_read_at_the_pace(ppm: float, lag: float, hz: float) -> None:
    count = 100 * BLOCK
    found = read(tone(count, hz), ppm, lag)
    place = np.arange(count) * (1 + ppm * 1e-6) - lag
    wanted = 0.5 * np.sin(2 * np.pi * hz * place / LISTEN_RATE)
    error = found[10 * BLOCK :] - wanted[10 * BLOCK :]
    assert power_db(error.astype(np.float32)) < power_db(tone(count, hz)) - 40


@given(st.floats(-1.5, 1.5))
def test_the_slope_of_a_moved_room_is_how_far_it_moved(samples: float) -> None:
    omega = 2 * np.pi * np.arange(8, 100) / 320
    strength = 1 + np.cos(np.arange(92)) / 2
    assert slope((strength * np.exp(1j * omega * samples)).astype(np.complex64)) == pytest.approx(
        samples, abs=1e-3
    )


@pytest.mark.parametrize("ppm", [100.0, -100.0, 0.0])
def test_the_drift_is_found_and_followed(ppm: float) -> None:
    reference = speechlike(16, 3)
    echo = at_pace(through(reference, room(60, 3)), ppm) + hum(len(reference), 3)
    canceller = EchoCanceller()
    found = cleaned(canceller, pcm(echo), pcm(reference))
    assert canceller.ppm == pytest.approx(ppm, abs=4)
    assert power_db(part(residual(found), 12, 16)) < power_db(part(echo, 12, 16)) - 18


def test_a_realigned_reference_does_not_drift_in_silence() -> None:
    """A client plays each answer when it arrives, however far its clocks drifted before."""
    sound = pcm(0.5 * speechlike(6.0, seed=2))
    response = room(12, seed=2)
    faster = at_pace(to_float(sound), 100)
    echo = pcm(through(np.concatenate((faster, np.zeros(LISTEN_RATE, np.float32))), response))
    played = np.concatenate((sound, np.zeros(LISTEN_RATE, np.int16)))
    silence = np.zeros(60 * LISTEN_RATE, np.int16)

    def left_db(plays_on: bool) -> float:
        canceller = EchoCanceller(plays_on=plays_on)
        for _ in range(3):
            cleaned(canceller, echo, played)
        cleaned(canceller, silence, silence)
        left = residual(cleaned(canceller, echo, played))
        return power_db(left[: 2 * LISTEN_RATE]) - power_db(to_float(echo[: 2 * LISTEN_RATE]))

    assert left_db(plays_on=False) < -12
    assert left_db(plays_on=True) > -9
