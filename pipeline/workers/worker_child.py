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
from typing import Any, BinaryIO

from pipeline.errors import ReachyVoiceError
from pipeline.workers.host import EngineHost, Ping, Pong, build_engine
from pipeline.workers.process_worker import LENGTH_BYTES, Broken, Build, Built, encode

log = logging.getLogger("reachy_voice.worker")

_PR_SET_PDEATHSIG = 1
"""prctl(2)."""


def main(parent: int) -> None:
    """``parent``: process id of who started us."""
    # The parent decides when this child ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _end_with(parent)
    # Unbuffered: a thread that waits in a buffered read makes the interpreter's end fail.
    requests = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    # Libraries that print must not print into the pipe.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    build = _read(requests)
    if isinstance(build, Build):
        _serve(build, requests, Answers(answers))


def _end_with(parent: int) -> None:
    """Have the kernel end this process with its parent, even in the middle of a native step.

    Strictly, with the thread that has started it: that of the parent's event loop. Elsewhere than
    on Linux a child ends when it finds its stdin closed."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it was faster


class Answers:
    """The way to the parent, for two threads."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._writing = threading.Lock()

    def send(self, answer: object) -> None:
        data = memoryview(encode(answer))
        try:
            with self._writing:
                while data:
                    data = data[self._pipe.write(data) :]
        except BrokenPipeError:
            os._exit(0)


def _serve(build: Build, requests: BinaryIO, answers: Answers) -> None:
    built: Future[EngineHost] = Future()
    reader = threading.Thread(
        target=_receive, args=(requests, answers, built, build.stop_timeout_s), daemon=True
    )
    reader.start()
    try:
        engine, info = build_engine(build.spec, build.options, build.weights)
    except ReachyVoiceError as error:
        answers.send(Built(error))
        return
    host = EngineHost(engine, answers.send, build.hang_timeout_s)
    built.set_result(host)
    answers.send(Built(None, info))
    host.run()
    if host.broken:
        answers.send(Broken(host.broken))
        os._exit(1)  # its libraries may not be able to end in order


def _receive(
    requests: BinaryIO, answers: Answers, built: Future[EngineHost], stop_timeout_s: float
) -> None:
    try:
        while (request := _read(requests)) is not None:
            if isinstance(request, Ping):
                answers.send(Pong())
            else:
                built.result().receive(request)
    except Exception:
        log.exception("a request could not be read; this engine's process ends")
    if built.done():
        built.result().close()
    # The parent is gone, or waits for us: neither a long step nor a build may hold us.
    time.sleep(stop_timeout_s)
    os._exit(1)


def _read(requests: BinaryIO) -> Any:
    """The next message, or ``None`` when the parent has closed its end."""
    header = _read_exactly(requests, LENGTH_BYTES)
    body = _read_exactly(requests, int.from_bytes(header, "big")) if header else b""
    return pickle.loads(body) if body else None


def _read_exactly(requests: BinaryIO, count: int) -> bytes:
    """``count`` bytes, or none if the end comes before."""
    data = bytearray()
    while len(data) < count:
        try:
            more = requests.read(count - len(data))
        except ConnectionError:
            return b""
        if not more:
            return b""
        data += more
    return bytes(data)
