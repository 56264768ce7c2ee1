"""An engine for the tests of workers that misbehaves on request."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pipeline.engines.contract import Warmed
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.errors import WeightsError
from pipeline.messages import Usage
from pipeline.work import Cancelled, CancelToken
from pipeline.workers import tuning
from pipeline.workers.worker import Worker

W = TypeVar("W", bound=Worker)

BUSY = threading.Event()
"""Set while an engine of this process is in its long step."""
FREED = threading.Event()
"""Ends all long steps and builds of this process."""


class Opened:
    """An object with state, opened on an engine; serves as conversation and as stream."""

    def __init__(self, log: list[str]) -> None:
        self.count = 0
        self._log = log
        log.append("opened")

    def add(self, n: int) -> int:
        self.count += n
        return self.count

    def score(self, pcm: Any) -> float:
        return float(self.add(1))

    def warm(self, request: Any, cancel: CancelToken) -> Iterator[Warmed]:
        yield Warmed(Usage(3, 0, 3))

    def close(self) -> None:
        self._log.append("closed")


class Countdown:
    """An iterator that is not a generator, as a third-party engine may return it."""

    def __init__(self, n: int, log: list[str]) -> None:
        self._n = n
        self._log = log

    def __iter__(self) -> Countdown:
        return self

    def __next__(self) -> int:
        if self._n == 0:
            raise StopIteration
        self._n -= 1
        return self._n

    def close(self) -> None:
        self._log.append("closed")


class ToyEngine:
    rate, voices, languages = 16_000, ("a", "b"), ()
    window_samples, least_movement_db = 512, 0.0

    def __init__(self) -> None:
        self.log: list[str] = []

    def echo(self, value: Any) -> Any:
        return value

    def fail(self, error: Exception) -> None:
        raise error

    def open(self) -> Opened:
        return Opened(self.log)

    def read_log(self) -> list[str]:
        return list(self.log)

    def pid(self) -> int:
        return os.getpid()

    def print_something(self) -> str:
        print("noise on stdout", flush=True)  # noqa: T201
        return "quiet"

    def count(self, n: int, name: str, cancel: CancelToken) -> Iterator[int | None]:
        try:
            for i in range(n):
                self.log.append(f"{name}{i}")
                yield i
        finally:
            self.log.append(f"{name} ended")

    def countdown(self, n: int, cancel: CancelToken) -> Countdown:
        return Countdown(n, self.log)

    def hold(self, cancel: CancelToken) -> Iterator[str | None]:
        """Yields once it holds the engine, then blocks until cancelled or preempted."""
        yield "holding"
        while not cancel.cancelled:
            if cancel.preempted:
                yield "preempted"
                return
            time.sleep(0.001)
        raise Cancelled

    def slices(self, n: int, name: str, cancel: CancelToken) -> Iterator[str | None]:
        for i in range(n):
            self.log.append(f"{name}{i}")
            yield None
        yield name

    def block(self, cancel: CancelToken) -> Iterator[str]:
        """Yields once it is busy, then ignores cancellation."""
        yield "busy"
        BUSY.set()
        FREED.wait()

    def hold_the_interpreter(self, cancel: CancelToken) -> Iterator[str]:
        yield "busy"
        print("held", file=sys.stderr, flush=True)  # noqa: T201
        ctypes.PyDLL(None).sleep(600)

    def wait(self) -> str:
        FREED.wait()
        return "done"

    def die(self) -> None:
        os._exit(3)

    def start_program(self, pipe: str) -> None:
        """Start a lasting program, which holds the pipe open."""
        with open(pipe, "wb") as end:
            subprocess.Popen(("sleep", "600"), stdout=end)


class Options(EngineOptions):
    engine: str = "toy"


def build(options: Options, weights: Path | None) -> ToyEngine:
    return ToyEngine()


def build_mute(options: Options, weights: Path | None) -> object:
    """A voice without voices."""
    return object()


def build_nothing(options: Options, weights: Path | None) -> ToyEngine:
    raise WeightsError("The weights are damaged", fix="Pull them again")


def build_broken(options: Options, weights: Path | None) -> ToyEngine:
    raise OSError("libllama.so: cannot open shared object file")


def build_crash(options: Options, weights: Path | None) -> ToyEngine:
    os._exit(1)


def build_for_another_processor(options: Options, weights: Path | None) -> ToyEngine:
    os.kill(os.getpid(), signal.SIGILL)
    return ToyEngine()


def build_for_ever(options: Options, weights: Path | None) -> ToyEngine:
    FREED.wait()
    return ToyEngine()


def build_busily(options: Options, weights: Path | None) -> ToyEngine:
    """Three quarters of a second of work."""
    while os.times().user + os.times().system < 0.75:
        sum(range(10_000))
    return ToyEngine()


def spec(builder: Any = build, kind: Kind = Kind.TTS) -> EngineSpec:
    return EngineSpec("toy", kind, Options, builder)


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[asyncio.Queue[None]]:
    """Run the worker. Yields a queue that gets one entry each time it is ready again."""
    ready: asyncio.Queue[None] = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run(lambda: ready.put_nowait(None)))
        await ready.get()
        try:
            yield ready
        finally:
            worker.close()


@asynccontextmanager
async def toy(
    placed: type[W], kind: Kind = Kind.TTS, builder: Any = build, **limits: Any
) -> AsyncIterator[tuple[W, asyncio.Queue[None]]]:
    """A running worker with a toy engine. ``limits``: constants of ``tuning`` in the meantime."""
    worker = placed(spec(builder, kind), Options(), None)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(tuning, name, value)
        async with running(worker) as ready:
            yield worker, ready
