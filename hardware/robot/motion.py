"""Interpolates from the current pose to the target, smoothly and never too fast."""

from __future__ import annotations

import math

from hardware.robot.poses import LIMITS, SPEED_LIMITS, Pose, clamp

PACE = 8.0
"""1/s: how quickly a target is approached. A small step is 90 % done after 0.49 s."""

LONGEST_STEP_S = 0.1
"""After a longer pause the movement continues from where it was instead of jumping."""


class Motion:
    """Follows target poses, axis by axis, as a critically damped spring would.

    The spring's pull is clipped so that its final speed is ``SPEED_LIMITS``: no axis ever exceeds
    them, whatever the target and however often it changes. No axis leaves ``LIMITS``, except
    that the path may begin outside them and lead to one of ``others``: a robot without power lies
    folded, and is folded again before its power is switched off.
    """

    def __init__(self, start: Pose, *others: Pose) -> None:
        self.pose = start
        self._lowest = Pose(*map(min, start, *others, (-limit for limit in LIMITS)))
        self._highest = Pose(*map(max, start, *others, LIMITS))
        self._speeds = Pose(*(0.0 for _ in LIMITS))

    @property
    def yaw_speed(self) -> float:
        """The head's yaw speed, in rad/s."""
        return self._speeds.yaw

    def step(self, target: Pose, seconds: float) -> Pose:
        """Returns the pose ``seconds`` later, on the way to ``target``."""
        seconds = max(0.0, min(seconds, LONGEST_STEP_S))
        steps = [
            _step(at, speed, max(lowest, min(highest, goal)), seconds, fastest)
            for at, speed, goal, lowest, highest, fastest in zip(
                self.pose,
                self._speeds,
                target,
                self._lowest,
                self._highest,
                SPEED_LIMITS,
                strict=True,
            )
        ]
        self.pose = Pose(*(at for at, _ in steps))
        self._speeds = Pose(*(speed for _, speed in steps))
        return self.pose


def _step(
    at: float, speed: float, goal: float, seconds: float, fastest: float
) -> tuple[float, float]:
    # The exact solution of the critically damped spring, so the path does not depend on the step
    # length. With |gap| <= 2 * fastest / PACE the speed always stays below ``fastest``.
    gap = clamp(goal - at, 2 * fastest / PACE)
    decay = math.exp(-PACE * seconds)
    pull = speed - PACE * gap
    place = at + gap - (gap - pull * seconds) * decay
    if (goal - place) * (goal - at) < 0:
        return goal, 0.0  # a spring overshoots a goal that has moved nearer; a head need not
    return place, (speed - PACE * pull * seconds) * decay
