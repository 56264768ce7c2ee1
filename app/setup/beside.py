"""Runs the slow part of a later step in parallel with the steps before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from app.setup.commands import POLL_S, Log
from app.setup.steps import Step


class Beside:
    """Prepares steps in one thread. Made by ``beside``."""

    def __init__(self, pool: ThreadPoolExecutor, log_for: Callable[[Step], Log]) -> None:
        self._pool = pool
        self._log_for = log_for
        self._runs: dict[str, tuple[Log, Future[None]]] = {}

    def start(self, step: Step) -> bool:
        """Prepare the step, only once for the same inputs. Returns whether it has a slow part."""
        key = step.inputs()
        if step.prepare is not None and key not in self._runs:
            log = self._log_for(step)
            self._runs[key] = log, self._pool.submit(step.prepare, log)
        return step.prepare is not None

    def finish(self, step: Step, log: Log) -> None:
        """Wait until the step is prepared, if ``start`` began that. Raises what that raised."""
        _, running = self._runs.get(step.inputs(), (None, None))
        while running is not None and not running.done():
            wait([running], POLL_S)
            log.show()
        if running is not None:
            running.result()

    def stop(self) -> None:
        for log, _ in self._runs.values():
            log.stopped.set()


@contextmanager
def beside(log_for: Callable[[Step], Log]) -> Iterator[Beside]:
    """Yields a ``Beside``, which has stopped when the context is left."""
    with ThreadPoolExecutor(1) as pool:
        running = Beside(pool, log_for)
        try:
            yield running
        finally:
            running.stop()
