"""Runs code that has no steps of its own one step at a time, in a thread that waits in between.

``qwen_tts`` gives speech when all of it is made. Hooks in its network hand over each frame and
wait here until the next is wanted, so exactly one side runs at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

from pipeline.work import Cancelled, CancelToken

Value = TypeVar("Value")

_running = threading.local()


class Stepped(Generic[Value]):
    """One run of ``work``, which is in a thread of its own and calls ``give`` for each value."""

    def __init__(self, work: Callable[[], None], cancel: CancelToken) -> None:
        self._work = work
        self._cancel = cancel
        self._abandoned = False
        self._turns: SimpleQueue[None] = SimpleQueue()
        self._found: SimpleQueue[Value | BaseException | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="qwen3-tts", daemon=True)

    # -- the side that wants values

    def next(self) -> Value | None:
        """The next value, or ``None`` at the end. Raises what ``work`` raises, or ``Cancelled``."""
        if self._thread.ident is None:
            self._thread.start()
        self._turns.put(None)
        found = self._found.get()
        if isinstance(found, BaseException):
            self._thread.join()
            raise found
        return found

    def close(self) -> None:
        """End the thread, wherever it is, and wait for that. Harmless when it has ended."""
        self._abandoned = True
        if self._thread.is_alive():
            self._turns.put(None)
            self._thread.join()

    # -- the thread

    def give(self, value: Value) -> None:
        """Hand a value over, and wait until the next one is wanted."""
        self._found.put(value)
        self._turns.get()
        self.look()

    def look(self) -> None:
        """Raise ``Cancelled`` once the result is no longer wanted."""
        if self._abandoned or self._cancel.cancelled:
            raise Cancelled

    def _run(self) -> None:
        _running.it = self
        end: BaseException | None = None
        try:
            self._turns.get()
            self.look()
            self._work()
        except BaseException as error:
            end = error
        self._found.put(end)


def current() -> Stepped[object] | None:
    """The run whose thread this is; ``None`` in every other thread."""
    it: Stepped[object] | None = getattr(_running, "it", None)
    return it
