"""Two clocks: reading at another pace, and finding it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import LISTEN_RATE, to_float
from pipeline.echo.canceller import EchoCanceller
from pipeline.echo.drift import PlayedSound, slope
from pipeline.echo.kalman import BLOCK, Samples
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
    """A client plays each answer when it gets it, however its clocks ran apart before."""
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
