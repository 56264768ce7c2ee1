"""The ring, the clock, the microphone's side: pure, without a device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.sound.clock import StreamClock
from hardware.sound.microphone import Zeros
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


def test_a_quiet_room_is_no_zeros() -> None:
    zeros = Zeros()
    quiet = np.zeros(160, np.int16)
    quiet[80] = 1
    assert not any(zeros.feed(quiet) for _ in range(1000))
