"""An event loop whose clock jumps to the next timer: every wait is exact and takes no time."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _JumpingSelector(selectors.SelectSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("deadlock: no timer and no input will ever wake this loop")
        self.loop.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at time 0. Real threads and processes do not work on it."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def run_virtual(main: Coroutine[Any, Any, Any]) -> Any:
    """Run ``main`` in virtual time; fail if it leaves a task behind."""
    loop = VirtualLoop()
    try:
        result = loop.run_until_complete(main)
        tasks = asyncio.all_tasks(loop)
        assert not tasks, f"leaked tasks: {tasks}"
        return result
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Decorator: run a coroutine test in virtual time."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtual(test(*args, **kwargs))

    return run
