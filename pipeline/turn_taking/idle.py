"""The idle timeout: after a silence behind an answer the server speaks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class IdleTimer:
    """Calls ``on_idle`` once, a time after it was armed, unless it is disarmed before."""

    def __init__(self, on_idle: Callable[[], None]) -> None:
        self._on_idle = on_idle
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, after_s: float) -> None:
        """Count from now, whatever was counted before."""
        self.disarm()
        self._timer = asyncio.get_running_loop().call_later(after_s, self._fire)

    def disarm(self) -> bool:
        """Whether it was armed."""
        timer, self._timer = self._timer, None
        if timer:
            timer.cancel()
        return timer is not None

    def _fire(self) -> None:
        self._timer = None
        self._on_idle()
