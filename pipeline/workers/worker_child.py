"""The child's side of a process worker; ``pipeline.workers.process_worker`` starts it."""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import signal
import sys
import threading
import time
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

from pipeline.errors import ReachyVoiceError
from pipeline.workers.host import EngineHost, build_engine
from pipeline.workers.process_worker import Build, EngineFailure, Ping

log = logging.getLogger("reachy_voice.worker")

_PR_SET_PDEATHSIG = 1
"""prctl(2)."""


def main(parent: int) -> None:
    """``parent``: process id of the parent."""
    # The parent decides when this child ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _end_with(parent)
    pipe = Pipe()
    build = pipe.read()
    if isinstance(build, Build):
        _serve(build, pipe)


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, even in the middle of a native step.

    Strictly speaking, when the thread that started it ends, which runs the parent's event loop. On
    systems other than Linux, a child ends when its stdin closes."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent has already ended


class Pipe:
    """Messages from and to the parent. One thread reads; any thread may send."""

    def __init__(self) -> None:
        self._requests = Connection(os.dup(sys.stdin.fileno()), writable=False)
        self._answers = Connection(os.dup(sys.stdout.fileno()), readable=False)
        # Libraries must not print into the pipe.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self._writing = threading.Lock()

    def read(self) -> Any:
        """The next message, or ``None`` once the parent has closed its end."""
        try:
            message = self._requests.recv_bytes()
        except (EOFError, OSError):
            return None
        return pickle.loads(message)

    def send(self, answer: object) -> None:
        try:
            with self._writing:
                self._answers.send_bytes(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
        except BrokenPipeError:
            os._exit(0)


def _serve(build: Build, pipe: Pipe) -> None:
    built: Future[EngineHost] = Future()
    threading.Thread(target=_receive, args=(pipe, built, build.stop_timeout_s), daemon=True).start()
    try:
        engine, info = build_engine(build.spec, build.options, build.weights)
    except ReachyVoiceError as error:
        pipe.send(error)
        return
    host = EngineHost(engine, pipe.send, build.hang_timeout_s)
    built.set_result(host)
    pipe.send(info)
    host.run()
    if host.broken:
        pipe.send(EngineFailure(host.broken))
        os._exit(1)  # its libraries may not survive a normal exit


def _receive(pipe: Pipe, built: Future[EngineHost], stop_timeout_s: float) -> None:
    try:
        while (request := pipe.read()) is not None:
            if isinstance(request, Ping):
                pipe.send(request)
            else:
                built.result().receive(request)
    except Exception:
        log.exception("a request could not be read; ending this engine's process")
    if built.done():
        built.result().close()
    # The parent is gone or waits for this process: a long step or build must not delay the exit.
    time.sleep(stop_timeout_s)
    os._exit(1)
