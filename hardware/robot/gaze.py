"""Where the robot looks: at the last speaker, for a while."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from statistics import median

from hardware.robot.poses import clamp
from pipeline.commands import Direction

FARTHEST_RAD = math.radians(75)
"""The furthest it looks to the side: beyond that a linear array is least accurate."""
NEEDED, KEPT = 3, 5
"""Readings before it turns, and readings in the median: outliers are common."""
WINDOW_S = 0.8
HYSTERESIS_RAD = math.radians(10)
"""Smaller changes are ignored."""
FORGOTTEN_S = 30.0
"""After this long without a voice it faces front again."""


def yaw_of(direction: Direction) -> float:
    """The head's yaw, in rad, relative to the array. A linear array cannot tell front from back, so
    everything is taken to be in front."""
    azimuth = direction.azimuth_deg % 360
    front = azimuth if azimuth <= 180 else 360 - azimuth
    return math.radians(90 - front)


def unturned(direction: Direction, array_yaw: float) -> Direction:
    """The direction as seen by an array that faces front. ``array_yaw``: where the actual array
    faces, in rad."""
    azimuth_deg = 90 - math.degrees(array_yaw + yaw_of(direction))
    return replace(direction, azimuth_deg=azimuth_deg % 360)


class Gaze:
    """Turns directions into a steady gaze; all times are seconds on one clock."""

    def __init__(self) -> None:
        self._yaw = 0.0
        self._heard_at = -math.inf
        self._readings: deque[tuple[float, float]] = deque(maxlen=KEPT)

    def heard(self, direction: Direction, now: float, array_yaw: float) -> None:
        """Take a reading. ``array_yaw``: where the array faces, in rad: the head's yaw for an
        array in the head, 0 for a fixed one."""
        if not direction.speech:
            return
        while self._readings and self._readings[0][0] < now - WINDOW_S:
            self._readings.popleft()
        yaw = clamp(array_yaw + yaw_of(direction), FARTHEST_RAD)
        self._readings.append((now, yaw))
        if len(self._readings) < NEEDED:
            return
        self._heard_at = now
        middle = median(yaw for _, yaw in self._readings)
        if abs(middle - self._yaw) > HYSTERESIS_RAD:
            self._yaw = middle

    def forget_readings(self) -> None:
        """Start over, because another voice follows or the head has been turning."""
        self._readings.clear()

    def yaw(self, now: float) -> float:
        """The direction in rad from the robot's foot; 0 after a long time without speech."""
        if now - self._heard_at > FORGOTTEN_S:
            self._yaw = 0.0
        return self._yaw
