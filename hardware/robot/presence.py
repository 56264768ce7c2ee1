"""One connection to the robot: wakes it, moves it, yields to other programs, puts it to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hardware.robot.daemon import Daemon, Targets
from hardware.robot.errors import RobotError, robot_error
from hardware.robot.motion import Motion
from hardware.robot.poses import NEUTRAL, Pose, far, near, swayed
from hardware.robot.posture import Posture

PERIOD_S = 0.02
"""The daemon's own control loop reads its target this often (50 Hz)."""
LOOK_S = 1.0
"""How often to ask whether another program is moving the robot: the daemon sends no event."""
REST_S = 4.0
"""The longest time to come to rest; after that the robot stays as it is."""
AFTER_APP_S = 30.0
"""Longer than a daemon takes to fold the robot after an app: 15 s of grace and 9 s of movement
(``IDLE_RESET_HANDOFF_GRACE_S`` and ``goto_sleep`` in ``daemon/backend/abstract.py``, 1.13.0)."""
TURNING_RAD_PER_S, SETTLED_S = 0.15, 0.3
"""While the head turns faster than this, and for this long after, the array's directions blur."""


@dataclass
class PriorState:
    """The robot's state before we changed it; survives a broken connection."""

    motors_off: bool = False
    let_go: bool = False
    """Whether its motors have been switched off since."""
    pose: Pose = NEUTRAL


class Presence:
    """Moves the robot while the connection lasts. ``notify`` gets each problem that a user should
    know about, once each time it begins."""

    def __init__(
        self,
        daemon: Daemon,
        posture: Posture,
        prior: PriorState,
        notify: Callable[[RobotError], None],
    ) -> None:
        self._daemon = daemon
        self._posture = posture
        self._prior = prior
        self._notify = notify
        self._clock = asyncio.get_running_loop().time
        self._motion: Motion | None = None
        """``None`` while the robot keeps still."""
        self._obstacle_now: str | None = None
        self._app_seen_at: float | None = None
        """When an app last held the robot; ``None`` once the daemon has cleaned up after it."""
        self._turned_at = float("-inf")
        self._last_step = self._clock()

    @property
    def yaw(self) -> float:
        """The yaw last sent to the head, in rad; 0 while another program moves it."""
        return 0.0 if self._motion is None else self._motion.pose.yaw

    def head_yaw(self) -> float | None:
        """The head's yaw, in rad; ``None`` while it turns or another program moves it."""
        if self._motion is None or self._clock() - self._turned_at < SETTLED_S:
            return None
        return self._motion.pose.yaw

    async def run(self, targets: Targets) -> None:
        """Run until cancelled, then bring the robot to rest. Raises ``RobotError`` if the
        connection breaks."""
        try:
            await self._look(waking=True)
            works = self._move(targets), self._keep_looking(), targets.watch()
            await _until_one_fails(*works)
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
        """Check whether we may move the robot; once we may, start from its actual pose."""
        why = await self._obstacle(waking=waking)
        if why is not None:
            self._motion = None
            if self._obstacle_now != why:
                self._notify(robot_error("busy", self._daemon.url, why))
        else:
            there = await self._daemon.pose()
            if self._motion is None or far(self._motion.pose, there):
                # We have just taken over, or someone moved it by hand. Starting from any other
                # pose would make it jerk.
                self._motion = Motion(there, self._prior.pose)
                self._last_step = self._clock()
        self._obstacle_now = why

    async def _obstacle(self, *, waking: bool) -> str | None:
        if holder := await self._daemon.holder():
            self._app_seen_at = self._clock()
            return f"an app holds the robot ({holder})"
        mode, plays = await self._daemon.motors(), await self._daemon.plays_a_move()
        if self._app_seen_at is not None:
            # Seconds after an app ends, the daemon folds the robot and switches its motors off
            # without reporting a move; moving meanwhile would fight it.
            is_folded = mode == "disabled" and not plays
            if not is_folded and self._clock() - self._app_seen_at < AFTER_APP_S:
                return self._obstacle_now
            self._app_seen_at = None
            waking, self._prior.let_go = True, False
        if plays:
            return "the daemon plays a move"
        if mode == "disabled" and waking and not self._prior.let_go:
            self._prior.motors_off = True
            self._prior.pose = await self._daemon.pose()
            await self._daemon.set_motors("enabled")  # holds its current pose
            return None
        self._prior.let_go = mode == "disabled"
        if mode == "enabled":
            return None
        by_hand = "its motors were switched off"
        return by_hand if mode == "disabled" else "it is being moved by hand"

    async def _move(self, targets: Targets) -> None:
        next_s = self._clock()
        while True:
            now = self._clock()
            if self._motion is not None:
                await self._step(targets, self._posture.target(now), now)
            next_s = max(next_s + PERIOD_S, now)
            await asyncio.sleep(next_s - self._clock())

    async def _step(self, targets: Targets, target: Pose, now: float) -> Pose:
        """Take one step towards ``target``; returns the pose sent."""
        seconds, self._last_step = now - self._last_step, now
        assert self._motion is not None
        pose = swayed(self._motion.step(target, seconds), self._posture.sway(now))
        if abs(self._motion.yaw_speed) > TURNING_RAD_PER_S:
            self._turned_at = now
        await targets.send(pose)
        return pose

    async def _rest(self, targets: Targets) -> None:
        """Return to neutral or, if its motors were off at first, fold it and switch them off again.
        Leaves alone a robot that another program holds."""
        home = self._prior.pose if self._prior.motors_off else NEUTRAL
        self._posture.wobble.hush(self._clock())
        while self._motion is not None:
            if near(await self._step(targets, home, self._clock()), home):
                break
            await asyncio.sleep(PERIOD_S)
        if self._motion is not None:
            await targets.send(home)
        if self._prior.motors_off and self._obstacle_now is None:
            await self._daemon.set_motors("disabled")
            self._prior.motors_off = False


async def _until_one_fails(*works: Coroutine[Any, Any, None]) -> None:
    """Run these endless tasks until one fails; raise its error. In a task group that error would
    override a simultaneous cancellation, and the caller could no longer be cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        failures, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failures.pop().result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
