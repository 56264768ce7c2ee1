"""Poses that a Reachy Mini's head, antennas and body can take.

The frame is the daemon's: x to the front, y to the left, z up, in metres from where the upright
head rests; angles in radians, roll, pitch and yaw about these axes. A positive pitch looks down, a
positive yaw looks left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

ANTENNA_REST_RAD = math.radians(10)
"""Upright; straight up they shake (``INIT_ANTENNAS_JOINT_POSITIONS`` of the SDK, 1.13.0)."""


class Pose(NamedTuple):
    """The robot's pose as independent numbers: ``neck_yaw`` is the head's turn relative to the
    body, ``body_yaw`` that of the foot's turntable; antennas are 0 upright, and lean away from the
    head with opposite signs. Also used for the limits of a pose and of its speed, axis by axis."""

    roll: float = 0.0
    pitch: float = 0.0
    neck_yaw: float = 0.0
    body_yaw: float = 0.0
    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    right_antenna: float = -ANTENNA_REST_RAD
    left_antenna: float = ANTENNA_REST_RAD

    @property
    def yaw(self) -> float:
        """The head's yaw in the frame of the robot's foot."""
        return self.neck_yaw + self.body_yaw


NEUTRAL = Pose()

LIMITS = Pose(
    roll=math.radians(15),
    pitch=math.radians(15),
    neck_yaw=math.radians(45),
    body_yaw=math.radians(80),
    x=0.006,
    y=0.004,
    z=0.006,
    right_antenna=3.05,
    left_antenna=3.05,
)
"""Limits of the poses we send, in both directions. The robot's own are wider: roll and pitch 40°,
head against body 65°, body 160° (SDK's "Core concepts"; ``max_relative_yaw`` and ``max_body_yaw``
in ``kinematics/analytical_kinematics.py``, 1.13.0). The antennas' limit is their folded position.
The SDK gives no limits for x, y and z, nor for all axes combined: with these, its kinematics
(1.13.0) reaches every corner to 0.01 rad and 1 mm; with 15° and 8 mm it does not."""

SPEED_LIMITS = Pose(
    roll=1.2,
    pitch=1.2,
    neck_yaw=1.6,
    body_yaw=1.2,
    x=0.06,
    y=0.06,
    z=0.06,
    right_antenna=4.0,
    left_antenna=4.0,
)
"""Rad/s and m/s, like a quick but calm turn of a person's head; the motors can do 13 rad/s
(``kinematics/placo_kinematics.py``)."""


def clamp(value: float, limit: float) -> float:
    return max(-limit, min(limit, value))


def within_limits(pose: Pose) -> Pose:
    """The nearest pose within ``LIMITS``."""
    return Pose(*map(clamp, pose, LIMITS))


def swayed(pose: Pose, sway: Pose) -> Pose:
    """The pose with ``sway`` added, clipped to ``LIMITS`` (or to its current value on an axis that
    is outside them)."""
    return Pose(
        *(
            max(min(-limit, at), min(max(limit, at), at + more))
            for at, more, limit in zip(pose, sway, LIMITS, strict=True)
        )
    )


def near(pose: Pose, other: Pose) -> bool:
    """Whether no axis differs by more than a fiftieth of its limit: 0.3°, 0.1 mm."""
    return _differ_by_less(pose, other, [limit / 50 for limit in LIMITS])


def far(pose: Pose, other: Pose) -> bool:
    """Whether two poses differ by more than a robot lags behind its target."""
    angle, length, antenna = math.radians(25), 0.02, 1.0
    return not _differ_by_less(pose, other, [*[angle] * 4, *[length] * 3, *[antenna] * 2])


def _differ_by_less(pose: Pose, other: Pose, most: Sequence[float]) -> bool:
    axes = zip(pose, other, most, strict=True)
    return all(abs(at - there) <= limit for at, there, limit in axes)


NECK_ALONE_RAD = math.radians(30)
"""Beyond this angle the body turns with the head."""


def facing(yaw: float) -> tuple[float, float]:
    """``neck_yaw`` and ``body_yaw``, in rad, that together face ``yaw``: the neck turns first, then
    the body."""
    body = clamp(yaw - clamp(yaw, NECK_ALONE_RAD), LIMITS.body_yaw)
    return yaw - body, body
