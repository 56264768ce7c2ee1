"""One connection to the robot: wakes it, moves it, keeps out of others' way, lets it rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from hardware.robot.daemon import Daemon, Targets
from hardware.robot.errors import RobotError, busy
from hardware.robot.motion import Motion
from hardware.robot.poses import NEUTRAL, Pose, swayed
from hardware.robot.posture import Posture

PERIOD_S = 0.02
"""As often as the daemon's own control loop looks at its target (50 Hz)."""
LOOK_S = 1.0
"""How often it asks who else moves the robot. The daemon tells nobody of itself."""
REST_S = 4.0
"""The longest way back to rest; then the robot stays as it is."""
TURNING_RAD_PER_S, SETTLED_S = 0.15, 0.3
"""From such a turn of the head until so long after it, the array's directions are blurred."""


@dataclass
class Found:
    """How the robot was before anything was done to it; outlives a broken connection."""

    motors_off: bool = False
    pose: Pose = NEUTRAL


class Presence:
    """Moves the robot for as long as the connection lasts. ``notify`` gets what a person should
    know, once each time it begins."""

    def __init__(
        self, daemon: Daemon, posture: Posture, found: Found, notify: Callable[[RobotError], None]
    ) -> None:
        self._daemon = daemon
        self._posture = posture
        self._found = found
        self._notify = notify
        self._clock = asyncio.get_running_loop().time
        self._motion: Motion | None = None
        """``None`` while it keeps still."""
        self._told: str | None = None
        self._turned_at = float("-inf")
        self._last_step = self._clock()

    def head_yaw(self) -> float | None:
        """Where the head looks, in rad; ``None`` while it turns or is not ours."""
        if self._motion is None or self._clock() - self._turned_at < SETTLED_S:
            return None
        return self._motion.pose.head.yaw

    async def run(self, targets: Targets) -> None:
        """Until it is cancelled: then the robot goes to rest. Raises ``RobotError``, alone or in
        a group, when the connection does not hold."""
        try:
            await self._look(waking=True)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._move(targets))
                group.create_task(self._keep_looking())
                group.create_task(targets.watch())
        except asyncio.CancelledError:
            with suppress(RobotError, TimeoutError):
                async with asyncio.timeout(REST_S):
                    await self._rest(targets)
            raise

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look(waking=False)

    async def _look(self, *, waking: bool) -> None:
        """Whether the robot is ours; if it has just become so, goes on from where it is."""
        why = await self._obstacle(waking=waking)
        if why is not None:
            self._motion = None
            if self._told != why:
                self._notify(busy(why))
        elif self._motion is None:
            self._motion = Motion(await self._daemon.pose(), self._found.pose)
            self._last_step = self._clock()
        self._told = why

    async def _obstacle(self, *, waking: bool) -> str | None:
        if holder := await self._daemon.holder():
            return f"an app holds the robot ({holder})"
        if await self._daemon.plays_a_move():
            return "the daemon plays a move"
        mode = await self._daemon.motors()
        if mode == "disabled" and waking:
            self._found.motors_off = True
            self._found.pose = await self._daemon.pose()
            await self._daemon.set_motors("enabled")  # holds the pose that it is in
            return None
        if mode == "enabled":
            return None
        somebody = "somebody has switched its motors off"
        return somebody if mode == "disabled" else "somebody moves it by hand"

    async def _move(self, targets: Targets) -> None:
        due = self._clock()
        while True:
            now = self._clock()
            await self._step(targets, self._posture.wanted(now), now)
            due = max(due + PERIOD_S, now)
            await asyncio.sleep(due - self._clock())

    async def _step(self, targets: Targets, wanted: Pose, now: float) -> None:
        passed, self._last_step = now - self._last_step, now
        if self._motion is None:
            return
        pose = self._motion.step(wanted, passed)
        if abs(self._motion.yaw_speed) > TURNING_RAD_PER_S:
            self._turned_at = now
        await targets.send(swayed(pose, self._posture.sway(now)))

    async def _rest(self, targets: Targets) -> None:
        """Back to neutral; or to where it was found without power, and without power again."""
        home = self._found.pose if self._found.motors_off else NEUTRAL
        while self._motion is not None and not self._motion.arrived(home):
            await self._step(targets, home, self._clock())
            await asyncio.sleep(PERIOD_S)
        if self._found.motors_off and self._motion is not None:
            await self._daemon.set_motors("disabled")
            self._found.motors_off = False
