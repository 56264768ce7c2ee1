"""The robot's body in a conversation: looks at the speaker, listens, thinks, speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hardware.robot.daemon import open_daemon
from hardware.robot.errors import Problem, RobotError
from hardware.robot.gaze import unturned
from hardware.robot.posture import Posture
from hardware.robot.presence import Presence, PriorState
from hardware.settings import Robot
from pipeline.commands import Direction
from pipeline.events import Event

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 10.0
"""Delay before the next search for an absent daemon; doubles each time."""
STEADY_S = 1.0
"""A connection that lasts this long resets the delay and the reported problems."""


class RobotBody:
    """Moves with a conversation while ``run`` runs; without a robot the conversation goes on.
    ``note``, ``heard`` and ``played`` are called from the event loop that ``run`` runs on; they
    never wait. ``run`` calls ``notify`` once for each problem until it is over."""

    def __init__(
        self,
        settings: Robot,
        notify: Callable[[RobotError], None],
        *,
        array_in_head: bool = True,
    ) -> None:
        self._settings = settings
        self._notify = notify
        self.array_in_head = array_in_head
        """The microphone array turns with the head, like the Reachy Mini's; false for a fixed array
        that faces the same way as the robot."""
        self._posture = Posture()
        self.played = self._posture.played
        """``Wobble.played``, with times on the loop's clock; up to a minute ahead."""
        self._prior = PriorState()
        self._presence: Presence | None = None
        self._problems: set[Problem] = set()
        self._moved_at: float | None = None

    async def run(self) -> None:
        """Run until cancelled, then bring the robot to rest, which takes up to 4 s. Returns at
        once if ``moves`` is false or ``url`` is null."""
        if not self._settings.moves or self._settings.url is None:
            return
        wait_s = FIRST_WAIT_S
        clock = asyncio.get_running_loop().time
        while True:
            self._moved_at = None
            try:
                await self._embody(self._settings.url)
            except RobotError as error:
                if self._moved_at is not None and clock() - self._moved_at >= STEADY_S:
                    wait_s = FIRST_WAIT_S
                    self._problems.clear()
                self._tell(error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def _embody(self, url: str) -> None:
        async with open_daemon(url) as daemon:
            await daemon.check()
            async with daemon.targets() as targets:
                presence = Presence(daemon, self._posture, self._prior, self._notify)
                self._presence = presence
                self._moved_at = asyncio.get_running_loop().time()
                try:
                    await presence.run(targets)
                finally:
                    self._presence = None

    def _tell(self, error: RobotError) -> None:
        if error.problem not in self._problems:
            self._notify(error)
        self._problems.add(error.problem)
        if error.problem == "lost":
            self._problems.add("not found")  # "lost" implies it

    def note(self, event: Event) -> None:
        """Take an event of the conversation as it happens."""
        self._posture.note(event, asyncio.get_running_loop().time())

    def heard(self, direction: Direction) -> None:
        """Take the array's latest reading, about 10 times a second."""
        now = asyncio.get_running_loop().time()
        if not self.array_in_head:
            self._posture.heard(direction, now, 0.0)
        elif self._presence is not None:
            head_yaw = self._presence.head_yaw()
            if head_yaw is None:
                self._posture.gaze.forget_readings()
            else:
                self._posture.heard(direction, now, head_yaw)

    def unturned(self, direction: Direction) -> Direction:
        """The direction relative to the robot's foot instead of its head; while the head turns,
        computed from the last pose sent."""
        if not self.array_in_head or self._presence is None:
            return direction
        return unturned(direction, self._presence.yaw)
