"""Poses and the motion between them: no limit of position or speed is ever exceeded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.robot.motion import Motion
from hardware.robot.poses import LIMITS, NEUTRAL, SPEED_LIMITS, Pose, near, swayed, within_limits
from hardware.robot.wobble import FALL_PER_S, QUIET_DB, RISE_PER_S, SWINGS, Wobble

pytestmark = pytest.mark.quick

FOLDED = Pose(pitch=0.54, x=-0.015, z=-0.05, right_antenna=-3.05, left_antenna=3.05)
"""The mock-up daemon's pose at its start."""

angle = st.floats(-10, 10)
poses = st.builds(Pose, *(st.floats(-4 * limit, 4 * limit) for limit in LIMITS))
inside = poses.map(within_limits)
steps = st.lists(st.tuples(poses, st.floats(0, 0.5)), max_size=40)


def keeps_to_limits(pose: Pose) -> bool:
    pairs = zip(pose, LIMITS, strict=True)
    return all(abs(value) <= limit + 1e-12 for value, limit in pairs)


@given(inside, steps)
def test_no_axis_leaves_its_limits(start: Pose, way: list[tuple[Pose, float]]) -> None:
    motion = Motion(start)
    for wanted, seconds in way:
        assert keeps_to_limits(motion.step(wanted, seconds))


@given(st.one_of(inside, st.just(FOLDED)), steps)
def test_no_axis_is_faster_than_its_limit(start: Pose, way: list[tuple[Pose, float]]) -> None:
    motion = Motion(start)
    before = start
    for wanted, seconds in way:
        after = motion.step(wanted, seconds)
        for was, now, most in zip(before, after, SPEED_LIMITS, strict=True):
            assert abs(now - was) <= most * seconds + 1e-9
        before = after


def test_it_never_swings_past_the_goal() -> None:
    motion = Motion(NEUTRAL)
    left, right = (Pose(neck_yaw=math.radians(yaw)) for yaw in (30, 10))
    for _ in range(15):
        motion.step(left, 0.02)
    yaws = [motion.step(right, 0.02).yaw for _ in range(200)]
    assert min(yaws) >= 0
    assert yaws[-1] == pytest.approx(right.yaw, abs=1e-3)


def test_a_long_pause_is_no_jump() -> None:
    motion = Motion(NEUTRAL)
    moved = motion.step(Pose(neck_yaw=0.7), 3600.0)
    assert moved.yaw < 0.2


def test_a_folded_robot_unfolds_and_folds_again_without_a_jerk() -> None:
    motion = Motion(FOLDED)
    ways: list[tuple[Pose, Sequence[Pose]]] = [
        (goal, [motion.step(goal, 0.02) for _ in range(150)]) for goal in (NEUTRAL, FOLDED)
    ]
    for goal, way in ways:
        assert near(way[-1], goal)
        rises = [abs(b.z - a.z) for a, b in itertools.pairwise(way)]
        assert max(rises) <= SPEED_LIMITS.z * 0.02 + 1e-9
    awake = Motion(NEUTRAL, FOLDED)
    assert near([awake.step(FOLDED, 0.02) for _ in range(150)][-1], FOLDED)


@given(st.one_of(inside, st.just(FOLDED)), poses)
def test_swaying_never_exceeds_the_limits(pose: Pose, sway: Pose) -> None:
    moved = swayed(pose, sway)
    for was, now, limit in zip(pose, moved, LIMITS, strict=True):
        assert abs(now) <= max(limit, abs(was)) + 1e-12


def fastest(axis: str) -> float:
    """The fastest that the wobble moves an axis of the head, in rad/s or m/s."""
    size, hertz = SWINGS.get(axis, (0.0, 0.0))
    return size * (2 * math.pi * hertz + max(RISE_PER_S, FALL_PER_S))


# --- the wobble of the voice --------------------------------------------------------------------


def tone(seconds: float, level: float, rate: int = 24_000) -> np.ndarray:
    wave = np.sin(2 * np.pi * 220 * np.arange(round(seconds * rate)) / rate)
    return (wave * level * 32767).astype(np.int16)


def offsets(wobble: Wobble, until: float) -> list[tuple[Pose, float]]:
    return [wobble.offset(n / 50) for n in range(round(until * 50))]


def test_it_moves_only_while_the_voice_is_heard() -> None:
    wobble = Wobble()
    wobble.played(tone(1.0, 0.5), 24_000, at=1.0)
    sizes = [size for _, size in offsets(wobble, 3.0)]
    assert max(sizes[:50]) == 0.0
    assert sizes[65] == pytest.approx(1.0)
    assert sizes[99] == pytest.approx(1.0)
    assert sizes[100 + math.ceil(50 / FALL_PER_S) + 1] == 0.0
    assert wobble.over_at == pytest.approx(2.0)


def test_a_louder_voice_moves_more() -> None:
    peaks = []
    for level in (0.0, 10 ** (QUIET_DB / 20), 0.02, 0.1, 0.5):
        wobble = Wobble()
        wobble.played(tone(1.0, level), 24_000, at=0.0)
        peaks.append(max(size for _, size in offsets(wobble, 1.0)))
    assert peaks[:2] == [0.0, pytest.approx(0.0, abs=0.01)]
    assert peaks == sorted(peaks)
    assert 0.3 < peaks[2] < 0.8
    assert peaks[4] == pytest.approx(1.0)


def test_the_wobble_stops_when_the_voice_is_hushed() -> None:
    wobble = Wobble()
    wobble.played(tone(5.0, 0.5), 24_000, at=0.0)
    offsets(wobble, 1.0)
    wobble.hush(1.0)
    assert wobble.over_at == 1.0
    assert [wobble.offset(1.0 + n / 50)[1] for n in range(14)][-1] == 0.0


@given(
    st.lists(st.tuples(st.floats(0, 0.1), st.floats(0, 1), st.floats(-0.2, 0.5)), max_size=30),
)
def test_it_is_small_and_not_too_fast(script: list[tuple[float, float, float]]) -> None:
    wobble = Wobble()
    now = 0.0
    before, _ = wobble.offset(now)
    for step, level, ahead in script:
        wobble.played(tone(0.05, level), 24_000, at=now + ahead)
        now += step
        after, _ = wobble.offset(now)
        for axis in Pose._fields:
            size = SWINGS.get(axis, (0.0, 0.0))[0]
            assert abs(getattr(after, axis)) <= size
            moved = abs(getattr(after, axis) - getattr(before, axis))
            assert moved <= fastest(axis) * step + 1e-9
        before = after


def test_with_the_voice_the_head_is_never_fast() -> None:
    """Both together stay below half of what the motors can do (13 rad/s)."""
    assert SPEED_LIMITS.neck_yaw + SPEED_LIMITS.body_yaw + fastest("neck_yaw") < 6.5
    assert SPEED_LIMITS.pitch + fastest("pitch") < 6.5
    assert SPEED_LIMITS.roll + fastest("roll") < 6.5
