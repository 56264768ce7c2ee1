"""The ring, the clock, the microphone's side: pure, without a device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.sound.clock import StreamClock
from hardware.sound.microphone import Microphone, Zeros
from hardware.sound.notices import AllZero, Sounds
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


def test_one_late_stamp_is_no_jump() -> None:
    clock = StreamClock(16_000)
    _stamps(clock, 0, 0, 2)
    assert clock.look(32_000, 102 + 0.02) == 0
    assert clock.time_of(32_080) == pytest.approx(102.005, abs=0.0005)


@pytest.mark.parametrize(("jump_ms", "xrun", "within_ms"), [(20, False, 70), (5, True, 20)])
def test_a_jump_is_found(jump_ms: int, xrun: bool, within_ms: int) -> None:
    clock = StreamClock(16_000)
    _stamps(clock, 0, 0, 2)
    jumps = [
        clock.look(first, 100 + first / 16_000 + jump_ms / 1000, xrun and first == 32_000)
        for first in range(32_000, 32_000 + within_ms * 16 + 1, 80)
    ]
    assert sum(jumps) == jump_ms * 16
    assert sum(jump != 0 for jump in jumps) == 1


def test_a_small_step_without_an_xrun_is_followed_slowly() -> None:
    clock = StreamClock(16_000)
    _stamps(clock, 0, 0, 2)
    for first in range(32_000, 160_000, 80):
        assert clock.look(first, 100 + first / 16_000 + 0.005) == 0
    assert clock.time_of(160_000) == pytest.approx(110.005, abs=0.001)


def test_a_microphone_picks_its_channel_and_counts() -> None:
    microphone = Microphone(channels=2, channel=2, rate_hz=16_000)
    both = np.array([[1, -1], [2, -2], [3, -3]], np.int16)
    microphone.take(both.tobytes(), 1.0, 1.1, False)
    microphone.take(both.tobytes(), 1.2, 1.3, True)
    first, second = microphone.ring.take(), microphone.ring.take()
    assert first is not None
    assert second is not None
    assert first.pcm.tolist() == [-1, -2, -3]
    assert (first.first, second.first, second.at_s, second.xrun) == (0, 3, 1.2, True)
    assert (microphone.xruns, microphone.last_s) == (1, 1.3)


def test_a_late_reader_loses_the_oldest_two_seconds_back() -> None:
    microphone = Microphone(channels=1, channel=1, rate_hz=16_000)
    for _ in range(300):
        microphone.take(np.ones(160, np.int16).tobytes(), 0.0, 0.0, False)
    assert microphone.ring.dropped_samples == 16_000
    piece = microphone.ring.take()
    assert piece is not None
    assert piece.first == 16_000


def test_zeros_are_told_once_after_two_seconds() -> None:
    zeros = Zeros()
    silence, sound = np.zeros(160, np.int16), np.array([0, 1] * 80, np.int16)
    assert zeros.feed(sound) is None
    notices = [zeros.feed(silence) for _ in range(400)]
    assert [notice for notice in notices if notice] == [AllZero(2.0)]
    assert notices[199] == AllZero(2.0)
    assert zeros.feed(sound) == Sounds()
    assert zeros.feed(sound) is None


def test_a_quiet_room_is_no_zeros() -> None:
    zeros = Zeros()
    quiet = np.zeros(160, np.int16)
    quiet[80] = 1
    assert not any(zeros.feed(quiet) for _ in range(1000))
