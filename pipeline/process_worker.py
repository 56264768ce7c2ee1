"""An engine in a child process: its own GIL, its own crash, and a licence of its own.

Parent and child speak in length-prefixed pickles over the child's stdin and stdout. The child
ends soon after its stdin closes, so it does not outlive the parent, however that ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.engines import Cancelled, EngineOptions, EngineSpec
from pipeline.errors import EngineCrashed, EngineError, ReachyVoiceError
from pipeline.host import Request, readable
from pipeline.worker import STOP_TIMEOUT_S, Worker

log = logging.getLogger("reachy_voice.worker")

START_TIMEOUT_S = 180.0
"""Importing and loading a big model on a busy machine takes minutes."""
HANG_TIMEOUT_S = 60.0
RESTART_DELAYS_S = (0.0, 1.0, 5.0, 30.0)
"""Wait before the n-th restart in a row; the last one repeats."""
STEADY_LIFE_S = 60.0
"""A child that was ready for so long ends the row of restarts."""
LENGTH_BYTES = 4

_CHILD = "import sys; sys.path[:] = sys.argv[1:]; from pipeline.worker_child import main; main()"
"""The child finds what the parent finds, wherever it is started. Without this, ``-m`` would take
the packages of the current folder, and a parent's own additions to ``sys.path`` were lost."""


@dataclass(frozen=True, slots=True)
class Build:
    """First message to the child: what to build."""

    spec: EngineSpec
    options: EngineOptions
    weights: Path | None
    hang_timeout_s: float
    stop_timeout_s: float


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
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        super().__init__(spec, options, weights)
        self._start_timeout_s = start_timeout_s
        self._hang_timeout_s = hang_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._child: Process | None = None
        self._ready_at: float | None = None
        """When this child became ready, in the loop's time."""
        self._life: asyncio.Timeout | None = None
        self._closing = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    async def run(self, ready: Callable[[], None]) -> None:
        failures = 0
        while not self._closing.is_set():
            self._ready_at = None
            try:
                await self._live(ready)
            except ReachyVoiceError as error:
                if self.generation == 0 and not self._closing.is_set():
                    raise
                self.problem = str(error)
            if self._closing.is_set():
                break
            failures = 0 if self._was_steady() else failures
            delay = RESTART_DELAYS_S[min(failures, len(RESTART_DELAYS_S) - 1)]
            failures += 1
            log.error("the %s engine ended; starting it again in %g s", self.name, delay)
            await self._pause(delay)
        self.problem = "is closed"

    def close(self) -> None:
        """End the child's life, whatever it does now; ``run`` then returns within seconds."""
        if not self._closing.is_set():
            self._closing.set()
            if self._life:
                self._life.reschedule(asyncio.get_running_loop().time())

    def post(self, request: Request) -> None:
        child = self._child
        if child and child.stdin and not child.stdin.is_closing():
            child.stdin.write(encode(request))

    def _was_steady(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self._ready_at is not None and now - self._ready_at >= STEADY_LIFE_S

    async def _pause(self, delay_s: float) -> None:
        try:
            async with asyncio.timeout(delay_s):
                await self._closing.wait()
        except TimeoutError:
            pass

    async def _live(self, ready: Callable[[], None]) -> None:
        """One child's life: start, build, answer until it ends, or until ``close``."""
        self._child = child = await self._start()
        try:
            # A time-out that only ``close`` sets ends the reading without a second task.
            async with asyncio.timeout(0 if self._closing.is_set() else None) as self._life:
                await self._serve(child, ready)
        except TimeoutError:
            if not self._closing.is_set():
                raise
        finally:
            self._life = None
            ended = "its process ended; it is being started again"
            self.problem = self.problem or ("is closed" if self._closing.is_set() else ended)
            self._fail_pending(
                Cancelled()
                if self._closing.is_set()
                else EngineCrashed(f"The {self.name} engine's process ended")
            )
            await self._reap(child)

    async def _start(self) -> Process:
        path = [str(entry) for entry in sys.path if entry]
        try:
            # The environment is given, because without it the fork reads the C one, which native
            # libraries change in other threads while they load ("Bad address").
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", _CHILD, *path),
                stdin=PIPE,
                stdout=PIPE,
                env=dict(os.environ),
                # Ctrl-C goes to the terminal's group, and must not end a child that still starts.
                process_group=0,
            )
        except OSError as error:
            raise EngineError(
                f"The {self.name} engine's process could not be started",
                why=str(error),
                fix="Free memory or end other programs, then try again",
            ) from error

    async def _serve(self, child: Process, ready: Callable[[], None]) -> None:
        assert child.stdin
        build = Build(
            self._spec, self._options, self._weights, self._hang_timeout_s, self._stop_timeout_s
        )
        try:
            message = encode(build)
        except Exception as problem:  # pickle raises many kinds
            what = f"The {self.name} engine cannot be handed to a process"
            raise readable(problem, what) from problem
        child.stdin.write(message)
        await self._await_built()
        self.generation += 1
        self._ready_at = asyncio.get_running_loop().time()
        self.problem = None
        ready()
        while (answer := await self._read()) is not None:
            self._answer(answer)

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
            async with asyncio.timeout(self._stop_timeout_s):
                # Reads what is left, so that a child in the middle of an answer can end.
                await child.communicate()
        except TimeoutError:
            log.info("the %s engine is busy; its process is ended", self.name)
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.kill()
            await child.wait()
            self._child = None
