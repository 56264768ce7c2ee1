"""One thread for a library whose calls block, and sometimes never return."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

T = TypeVar("T")
_Job = Callable[[], None]


class DriverThread:
    """Runs calls one after the other, off the event loop.

    It is a daemon thread: a driver that hangs must not keep the program from ending. A call runs on
    after its caller is cancelled, and the next call waits for it.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._name = name
        self._thread: Thread | None = None

    async def call(self, work: Callable[[], T], patience_s: float) -> T:
        """The result of ``work``. Raises ``TimeoutError`` if it, or a call before it, takes longer
        than ``patience_s``."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                result = work()
            except BaseException as error:
                _tell(loop, done, partial(done.set_exception, error))
            else:
                _tell(loop, done, partial(done.set_result, result))

        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)
        return await asyncio.wait_for(done, patience_s)

    def end(self) -> None:
        """End the thread after the calls already queued."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread = None

    def _run(self) -> None:
        jobs = self._jobs
        while (job := jobs.get()) is not None:
            job()


def _tell(
    loop: asyncio.AbstractEventLoop, done: asyncio.Future[T], how: Callable[[], None]
) -> None:
    def tell() -> None:
        if not done.done():
            how()

    # The loop may be gone by now.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(tell)
