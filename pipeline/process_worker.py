"""An engine in a child process: its own GIL, its own crash, and a licence of its own.

Parent and child speak in length-prefixed pickles over the child's stdin and stdout. The child
ends when its stdin closes, so it cannot outlive the parent, however that ends.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.engines import Cancelled, EngineOptions, EngineSpec
from pipeline.errors import EngineCrashed, EngineError, ReachyVoiceError
from pipeline.host import Request
from pipeline.worker import Worker

log = logging.getLogger("reachy_voice.worker")

START_TIMEOUT_S = 180.0
"""Importing and loading a big model on a busy machine takes minutes."""
HANG_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 3.0
RESTART_DELAYS_S = (0.0, 1.0, 5.0, 30.0)
"""Wait before the n-th restart in a row; the last one repeats."""
LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Build:
    """First message to the child: what to build."""

    build: Callable[[Any, Path | None], Any]
    options: EngineOptions
    weights: Path | None
    hang_timeout_s: float


@dataclass(frozen=True, slots=True)
class Built:
    """First message from the child: the engine's attributes, or why there is none."""

    error: BaseException | None
    attributes: dict[str, Any]


def encode(message: object) -> bytes:
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class ProcessWorker(Worker):
    """Runs the engine in a child, and starts a new one when it dies or hangs."""

    def __init__(
        self,
        spec: EngineSpec,
        options: EngineOptions,
        weights: Path | None,
        start_timeout_s: float = START_TIMEOUT_S,
        hang_timeout_s: float = HANG_TIMEOUT_S,
    ) -> None:
        super().__init__(spec, options, weights)
        self._start_timeout_s = start_timeout_s
        self._hang_timeout_s = hang_timeout_s
        self._child: Process | None = None
        self._closing = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    async def run(self, ready: Callable[[], None]) -> None:
        failures = 0
        while not self._closing.is_set():
            try:
                await self._live(ready)
                failures = 0
            except ReachyVoiceError as error:
                if self.generation == 0:
                    raise
                self.problem = str(error)
            if self._closing.is_set():
                break
            delay = RESTART_DELAYS_S[min(failures, len(RESTART_DELAYS_S) - 1)]
            failures += 1
            log.error("the %s engine ended; starting it again in %g s", self.name, delay)
            await self._pause(delay)

    def close(self) -> None:
        self._closing.set()
        if self._child and self._child.stdin:
            self._child.stdin.close()

    def post(self, request: Request) -> None:
        child = self._child
        if child and child.stdin and not child.stdin.is_closing():
            child.stdin.write(encode(request))

    async def _pause(self, delay_s: float) -> None:
        try:
            async with asyncio.timeout(delay_s):
                await self._closing.wait()
        except TimeoutError:
            pass

    async def _live(self, ready: Callable[[], None]) -> None:
        """One child's life: start, build, answer until it ends."""
        self._child = child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pipeline.worker_child", stdin=PIPE, stdout=PIPE
        )
        assert child.stdin
        try:
            child.stdin.write(
                encode(Build(self._spec.build, self._options, self._weights, self._hang_timeout_s))
            )
            await self._await_built()
            self.generation += 1
            self.problem = None
            ready()
            while (answer := await self._read()) is not None:
                self._answer(answer)
        finally:
            ended = "its process ended; it is being started again"
            self.problem = self.problem or ("is closed" if self._closing.is_set() else ended)
            self._fail_pending(
                Cancelled()
                if self._closing.is_set()
                else EngineCrashed(f"The {self.name} engine's process ended")
            )
            await self._reap(child)

    async def _await_built(self) -> None:
        try:
            async with asyncio.timeout(self._start_timeout_s):
                built = await self._read()
        except TimeoutError:
            raise EngineError(
                f"The {self.name} engine did not start within {self._start_timeout_s:g} s"
            ) from None
        if built is None:
            raise EngineError(f"The {self.name} engine's process ended while it was starting")
        if built.error:
            raise built.error
        self.attributes = built.attributes

    async def _read(self) -> Any:
        """The next message, or ``None`` when the child has closed its end."""
        assert self._child
        assert self._child.stdout
        try:
            header = await self._child.stdout.readexactly(LENGTH_BYTES)
            body = await self._child.stdout.readexactly(int.from_bytes(header, "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return pickle.loads(body)

    async def _reap(self, child: Process) -> None:
        """Wait for the child's end; kill it if it does not end by itself."""
        assert child.stdin
        child.stdin.close()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await child.wait()
        except (TimeoutError, asyncio.CancelledError):
            if child.returncode is None:
                child.kill()
            await child.wait()
        self._child = None
