"""The child's side of a process worker; ``pipeline.process_worker`` starts it."""

from __future__ import annotations

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
from pipeline.host import EngineHost, build_engine, describe
from pipeline.process_worker import LENGTH_BYTES, Build, Built, encode

log = logging.getLogger("reachy_voice.worker")


def main() -> None:
    # The parent decides when this child ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Unbuffered: a thread that waits in a buffered read makes the interpreter's end fail.
    requests = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    # Libraries that print must not print into the pipe.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    build = _read(requests)
    if isinstance(build, Build):
        _serve(build, requests, answers)


def _serve(build: Build, requests: BinaryIO, answers: BinaryIO) -> None:
    built: Future[EngineHost] = Future()
    reader = threading.Thread(
        target=_receive, args=(requests, built, build.stop_timeout_s), daemon=True
    )
    reader.start()
    try:
        engine = build_engine(build.spec, build.options, build.weights)
    except ReachyVoiceError as error:
        _write(answers, Built(error, {}))
        return
    host = EngineHost(engine, lambda answer: _write(answers, answer), build.hang_timeout_s)
    built.set_result(host)
    _write(answers, Built(None, describe(engine)))
    host.run()


def _receive(requests: BinaryIO, built: Future[EngineHost], stop_timeout_s: float) -> None:
    try:
        while (request := _read(requests)) is not None:
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


def _write(answers: BinaryIO, answer: object) -> None:
    try:
        data = memoryview(encode(answer))
        while data:
            data = data[answers.write(data) :]
    except BrokenPipeError:
        os._exit(0)
