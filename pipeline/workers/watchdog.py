"""When to give a child process up: it has work, and does not even answer a question.

A child answers ``host.Ping`` from a thread that does nothing else, so one that is busy answers at
once, and one that is stopped, or holds its interpreter for ever, does not. Timers run only while
there is work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

QUIET_S = 1.0
"""A child that has said nothing for so long is asked."""
ANSWER_S = 4.0
"""Native code may hold the interpreter for a moment, and a machine be very busy."""
OWN_DELAY_S = 1.0
"""A timer that is so late: we slept ourselves, and the child's answer may wait to be read."""


class Watchdog:
    """One child's. ``busy``: whether it has work. ``ask`` sends the question, ``give_up`` is called
    once, when it was not answered."""

    def __init__(
        self,
        busy: Callable[[], bool],
        ask: Callable[[], None],
        give_up: Callable[[], None],
        answer_s: float = ANSWER_S,
    ) -> None:
        self._busy = busy
        self._ask = ask
        self._give_up = give_up
        self._answer_s = answer_s
        self._loop = asyncio.get_running_loop()
        self._heard_at = 0.0
        self._asked_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """There is work."""
        if self._timer is None:
            self.heard()
            self._wait(QUIET_S)

    def heard(self) -> None:
        """The child has said something."""
        self._heard_at = self._loop.time()
        self._asked_at = None

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _wait(self, delay_s: float) -> None:
        self._timer = self._loop.call_later(delay_s, self._look, self._loop.time() + delay_s)

    def _look(self, due: float) -> None:
        self._timer = None
        now = self._loop.time()
        quiet_s = now - self._heard_at
        if not self._busy():
            return
        if now - due > OWN_DELAY_S:
            self._asked_at = None
        if self._asked_at is not None:
            self._give_up()
        elif quiet_s >= QUIET_S:
            self._asked_at = now
            self._ask()
            self._wait(self._answer_s)
        else:
            self._wait(QUIET_S - quiet_s)
