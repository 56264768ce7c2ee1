"""The ring, the clock, the microphone's side: pure, without a device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.sound.clock import StreamClock
from hardware.sound.microphone import LifeSigns, Zeros
from hardware.sound.notices import Lifeless
from hardware.sound.ring import Piece, Ring


@given(st.lists(st.one_of(st.integers(1, 50), st.just(0)), max_size=60), st.integers(50, 200))
def test_a_ring_keeps_the_newest_and_counts_the_rest(steps: list[int], capacity: int) -> None:
    """0: take one."""
    ring = Ring(capacity)
    put = taken = 0
    due = 0
    for step in steps:
        if step:
            ring.put(Piece(np.arange(put, put + step).astype(np.int16), put, 0.0))
            put += step
        elif (piece := ring.take()) is not None:
            assert piece.first >= due
            due = piece.first + len(piece.pcm)
            taken += len(piece.pcm)
    rest = 0
    while (piece := ring.take()) is not None:
        rest += len(piece.pcm)
    assert rest <= capacity
    assert put == taken + rest + ring.dropped_samples


def _stamps(clock: StreamClock, ppm: float, noise_s: float, seconds: float) -> None:
    rng = np.random.default_rng(5)
    rate = 16_000 * (1 + ppm * 1e-6)
    for first in range(0, round(seconds * 16_000), 80):
        jump = clock.look(first, 100 + first / rate + float(rng.normal(0, noise_s)))
        assert jump == 0


@pytest.mark.parametrize("ppm", [-150.0, 0.0, 80.0])
def test_a_clock_follows_noisy_stamps(ppm: float) -> None:
    clock = StreamClock(16_000)
    _stamps(clock, ppm, 0.0005, 60)
    true_s = 100 + 960_000 / (16_000 * (1 + ppm * 1e-6))
    assert clock.time_of(960_000) == pytest.approx(true_s, abs=0.0005)
    assert clock.number_at(true_s) == pytest.approx(960_000, abs=8)


def test_a_small_step_without_an_xrun_is_followed_slowly() -> None:
    clock = StreamClock(16_000)
    _stamps(clock, 0, 0, 2)
    for first in range(32_000, 160_000, 80):
        assert clock.look(first, 100 + first / 16_000 + 0.005) == 0
    assert clock.time_of(160_000) == pytest.approx(110.005, abs=0.001)


RATE_HZ = 48_000
_RNG = np.random.default_rng(1)


def noise(rms: float) -> np.ndarray:
    return np.rint(_RNG.normal(0, rms, 10 * RATE_HZ))


def bursts(between: float | np.ndarray) -> np.ndarray:
    """3 ms of noise every 0.4 s."""
    at = np.arange(10 * RATE_HZ) % (RATE_HZ * 2 // 5) < RATE_HZ * 3 // 1000
    return np.where(at, noise(800), between)


DITHER = _RNG.integers(0, 2, 10 * RATE_HZ)
LIFELESS = {
    "bursts among zeros": bursts(0),
    "bursts among dither": bursts(DITHER),
    "a constant": np.full(10 * RATE_HZ, -37),
    "a constant with a click": np.where(np.arange(10 * RATE_HZ) % 12_000 == 5, 90, 12),
    "one bit of dither": DITHER,
    "dither on a constant": DITHER + 411,
    "two bits": DITHER - _RNG.integers(0, 2, 10 * RATE_HZ),
}


@pytest.mark.parametrize("name", LIFELESS)
def test_a_microphone_that_delivers_next_to_nothing_is_noticed_and_so_is_its_recovery(
    name: str,
) -> None:
    signs, block = LifeSigns(RATE_HZ), RATE_HZ // 100
    sound = np.concatenate((LIFELESS[name], noise(3))).astype(np.int16)
    notices = [
        (at / RATE_HZ, notice)
        for at in range(0, len(sound), block)
        if (notice := signs.feed(sound[at : at + block])) is not None
    ]
    assert [notice for _, notice in notices] == [Lifeless(), Lifeless(over=True)]
    assert notices[0][0] < 10 < notices[1][0] < 11


@pytest.mark.parametrize("sound", [noise(0.6), noise(3), noise(0.6) + 500, bursts(noise(1))])
def test_a_quiet_room_is_alive(sound: np.ndarray) -> None:
    signs, zeros = LifeSigns(RATE_HZ), Zeros()
    assert signs.feed(sound.astype(np.int16)) is None
    assert zeros.feed(sound.astype(np.int16)) is None
