"""The child's side of a process worker: ``python -m pipeline.worker_child``."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from typing import Any, BinaryIO

from pipeline.errors import EngineError, ReachyVoiceError
from pipeline.host import EngineHost, describe
from pipeline.process_worker import LENGTH_BYTES, Build, Built, encode


def main() -> None:
    # Both reach the whole process group; the parent decides when this child ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    # Libraries that print must not print into the pipe.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    build = _read(requests)
    if not isinstance(build, Build):
        return
    try:
        engine = build.build(build.options, build.weights)
    except Exception as error:
        answers.write(encode(Built(_portable(error), {})))
        return
    host = EngineHost(engine, lambda answer: _write(answers, answer), build.hang_timeout_s)
    answers.write(encode(Built(None, describe(engine))))
    reader = threading.Thread(target=_receive, args=(requests, host), daemon=True)
    reader.start()
    host.run()


def _receive(requests: BinaryIO, host: EngineHost) -> None:
    while (request := _read(requests)) is not None:
        host.receive(request)
    host.close()


def _read(requests: BinaryIO) -> Any:
    header = requests.read(LENGTH_BYTES)
    if len(header) < LENGTH_BYTES:
        return None
    body = requests.read(int.from_bytes(header, "big"))
    return pickle.loads(body) if body else None


def _write(answers: BinaryIO, answer: object) -> None:
    try:
        data = memoryview(encode(answer))
        while data:
            data = data[answers.write(data) :]
    except BrokenPipeError:
        os._exit(0)


def _portable(error: Exception) -> ReachyVoiceError:
    if isinstance(error, ReachyVoiceError):
        return error
    return EngineError("The engine could not be built", why=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
