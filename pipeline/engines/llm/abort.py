"""Stops a llama.cpp computation from outside while it runs.

llama.cpp asks its abort callback after every node of the graph, some 600 times per token. A
callback in Python would have to take the interpreter lock each time: beside one busy Python
thread, a token took 1.8 s instead of 15 ms. So the callback is C code that reads one byte, and a
small thread checks the ``CancelToken`` every 2 ms and sets that byte. (Linux and macOS.)
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.engines.llm.llama_api import library
from pipeline.work import CancelToken

_POLL_SECONDS = 0.002
_IDLE_SECONDS = 1.0
"""The thread ends after this long without a computation; the next computation starts a new one."""


class AbortSwitch:
    """One context's abort flag, and the thread that sets it."""

    def __init__(self, context: object) -> None:
        api = library()
        self._flag = ctypes.create_string_buffer(2)
        # strlen() of our two bytes "\\0\\0" is 0 and of "\\1\\0" is 1: exactly what an abort
        # callback ``bool (*)(void *data)`` must return.
        strlen = ctypes.CDLL(None).strlen
        self._callback = ctypes.cast(strlen, api.ggml_abort_callback)
        self._changed = threading.Condition()
        self._token: CancelToken | None = None
        self._preemptible = False
        self._thread: threading.Thread | None = None
        address = ctypes.cast(self._flag, ctypes.c_void_p)
        api.llama_set_abort_callback(context, self._callback, address)

    @contextmanager
    def watching(self, cancel: CancelToken, *, preemptible: bool) -> Iterator[None]:
        """Abort computations inside the block once ``cancel`` is cancelled or, if ``preemptible``,
        preempted."""
        with self._changed:
            self._flag[0] = b"\0"
            self._token, self._preemptible = cancel, preemptible
            self._wake()
        try:
            yield
        finally:
            with self._changed:
                self._token = None

    def _wake(self) -> None:
        if self._thread:
            self._changed.notify()
            return
        self._thread = threading.Thread(target=self._watch, name="llama-abort", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        with self._changed:
            while self._token or self._changed.wait(_IDLE_SECONDS):
                if self._token and self._should_stop(self._token):
                    self._flag[0] = b"\1"
                self._changed.wait(_POLL_SECONDS)
            self._thread = None

    def _should_stop(self, cancel: CancelToken) -> bool:
        return cancel.cancelled or (self._preemptible and cancel.preempted)
