"""An engine in a child process: it has its own GIL and licence, and a crash stays in the child.

Parent and child exchange length-prefixed pickles over the child's stdin and stdout. The child
ends soon after its stdin closes, and on Linux as soon as its parent ends for any reason. Processes
started by the child end with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pipeline.engines.registry import EngineOptions, EngineSpec
from pipeline.errors import EngineCrashed, EngineError, ReachyVoiceError, WrongProcessor
from pipeline.work import Cancelled
from pipeline.workers import tuning
from pipeline.workers.host import Request, readable
from pipeline.workers.worker import Worker

log = logging.getLogger("reachy_voice.worker")

LENGTH_BYTES = 4

_CHILD = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from pipeline.workers.worker_child import main; main(int(sys.argv[1]))"
)
"""Gives the child the parent's ``sys.path``, in any working directory. With ``-m``, it would import
packages from the current folder and lose the parent's additions to ``sys.path``."""


@dataclass(frozen=True, slots=True)
class Build:
    """First message to the child: what to build."""

    spec: EngineSpec
    options: EngineOptions
    weights: Path | None
    hang_timeout_s: float
    stop_timeout_s: float


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """Last message from a child whose engine cannot continue."""

    why: str


class Ping:
    """Asks whether the child is alive. The child's reading thread returns it even while the engine
    is working."""


def encode(message: object) -> bytes:
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class ProcessWorker(Worker):
    """Runs the engine in a child, and starts a new one when it dies or hangs."""

    def __init__(self, spec: EngineSpec, options: EngineOptions, weights: Path | None) -> None:
        super().__init__(spec, options, weights)
        self._child: Process | None = None
        self._heard_at = 0.0
        """When the last message from the child arrived, in loop time."""
        self._ready_at: float | None = None
        """When this child became ready."""
        self._start_s: float | None = None
        """How long the last start took."""
        self._failures = 0
        """Failures in a row."""
        self._why = ""
        """Why this child ended, if more is known than its exit code."""
        self._life: asyncio.Timeout | None = None
        self._closing = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    async def run(self, ready: Callable[[], None]) -> None:
        self.wait_for("is starting")
        while not self._closing.is_set():
            self._ready_at, self._why = None, ""
            try:
                how = await self._live(ready)
            except ReachyVoiceError as error:
                if self.generation == 0 and not self._closing.is_set():
                    raise
                how = str(error)
            if self._closing.is_set():
                break
            delay = self._delay_s()
            self._failures = 1 if self._was_steady() else self._failures + 1
            log.error("the %s engine: %s; restarting it in %g s", self.name, how, delay)
            self.wait_for(f"{how}; it restarts after {delay:g} s")
            await self._pause(delay)
            self.wait_for(f"{how}; it is restarting{self._last_start}")
        self.problem = "is closed"

    def close(self) -> None:
        """End the child, whatever it is doing; ``run`` then returns within seconds."""
        if not self._closing.is_set():
            self._closing.set()
            if self._life:
                self._life.reschedule(asyncio.get_running_loop().time())

    def post(self, request: Request | Ping) -> None:
        child = self._child
        if child and child.stdin and not child.stdin.is_closing():
            child.stdin.write(encode(request))

    # -- from one child to the next

    @property
    def _last_start(self) -> str:
        return "" if self._start_s is None else f" (the last start took {self._start_s:.1f} s)"

    def _delay_s(self) -> float:
        failures = 0 if self._was_steady() else self._failures
        return tuning.RESTART_DELAYS_S[min(failures, len(tuning.RESTART_DELAYS_S) - 1)]

    def _was_steady(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self._ready_at is not None and now - self._ready_at >= tuning.STEADY_LIFE_S

    async def _pause(self, delay_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._closing.wait()

    # -- one child

    async def _live(self, ready: Callable[[], None]) -> str:
        """Start a child and serve it until it ends or ``close``. Returns how it ended."""
        began = asyncio.get_running_loop().time()
        self._child = child = await self._start()
        exit_code = asyncio.create_task(child.wait())
        exit_code.add_done_callback(lambda _: _kill(child))
        try:
            # A timeout that only ``close`` sets ends the reading without a second task.
            async with asyncio.timeout(0 if self._closing.is_set() else None) as self._life:
                await self._serve(child, ready, began)
        except TimeoutError:
            if not self._closing.is_set():
                raise
        finally:
            self._life = None
            self._note_end()
            await self._reap(child, exit_code)
        return self._why or _how(exit_code.result())

    def _note_end(self) -> None:
        """The child no longer answers."""
        if self._closing.is_set():
            self.problem = "is closed"
            self._fail_jobs(Cancelled())
            return
        now = asyncio.get_running_loop().time()
        if self._ready_at is not None and self._start_s is not None:
            hopeless = self._delay_s() >= tuning.PATIENCE_S or self._start_s > tuning.HOPELESS_S
            self.back_by = None if hopeless else now + tuning.PATIENCE_S
        self.wait_for(f"{self._why or 'its process ended'}; it is restarting")
        what = f"The {self.name} engine's process ended"
        self._fail_jobs(EngineCrashed(what, why=self._why))

    async def _start(self) -> Process:
        path = [str(entry) for entry in sys.path if entry]
        try:
            # Pass the environment: otherwise the fork reads the C environment, which native
            # libraries may be changing in other threads as they load ("Bad address").
            return await asyncio.create_subprocess_exec(
                # The name is there for people who look at ps or nvidia-smi.
                *(sys.executable, "-P", "-c", _CHILD, str(os.getpid()), self.name, *path),
                stdin=PIPE,
                stdout=PIPE,
                env=dict(os.environ),
                # Ctrl-C goes to the terminal's group and must not end a child that is starting.
                # Processes that the child starts are in its group, and end with it.
                # (uvloop, which Ray Serve uses, does not support ``process_group``.)
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(
                f"The {self.name} engine's process could not be started",
                why=str(error),
                fix="Free memory or end other programs, then try again",
            ) from error

    async def _serve(self, child: Process, ready: Callable[[], None], began: float) -> None:
        assert child.stdin
        longest_s = self._spec.longest_step_s or tuning.LONGEST_STEP_S[self._spec.kind]
        build = Build(self._spec, self._options, self._weights, longest_s, tuning.STOP_TIMEOUT_S)
        try:
            message = encode(build)
        except Exception as problem:  # pickle raises many kinds
            what = f"The {self.name} engine cannot be sent to a process"
            raise readable(problem, what) from problem
        child.stdin.write(message)
        await self._await_built(child, began)
        self.generation += 1
        self._ready_at = asyncio.get_running_loop().time()
        self._start_s = self._ready_at - began
        self.problem = None
        log.info("the %s engine is ready after %.1f s", self.name, self._start_s)
        ready()
        watch = asyncio.create_task(self._watch(child))
        try:
            while (answer := await self._read()) is not None:
                if isinstance(answer, EngineFailure):
                    self._why = answer.why
                elif not isinstance(answer, Ping):
                    self._answer(answer)
        finally:
            watch.cancel()

    async def _watch(self, child: Process) -> None:
        """Kill a child that has work but does not answer a ping."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(tuning.QUIET_S)
            asked_at = loop.time()
            if not self._jobs or asked_at - self._heard_at < tuning.QUIET_S:
                continue
            self.post(Ping())
            await asyncio.sleep(tuning.ANSWER_S)
            late_s = loop.time() - asked_at - tuning.ANSWER_S
            if self._jobs and self._heard_at < asked_at and late_s < tuning.OWN_DELAY_S:
                self._why = "its process hung and was killed"
                _kill(child)
                return

    async def _await_built(self, child: Process, began: float) -> None:
        """A big model may take minutes to load on a busy machine, so a child may take as long as it
        keeps making progress. Raises ``EngineCrashed``, and what building raises."""
        message = asyncio.create_task(self._read())
        before = (0.0, 0.0, 0.0)
        try:
            while not (await asyncio.wait({message}, timeout=tuning.START_QUIET_S))[0]:
                usage = await asyncio.to_thread(_usage, child.pid)
                self._check_start(asyncio.get_running_loop().time() - began, before, usage)
                before = usage
            result = message.result()
        finally:
            message.cancel()
            await asyncio.wait({message})
        if result is None:
            raise _crashed_at_start(self.name, self._spec.modules, await child.wait())
        if isinstance(result, BaseException):
            raise result
        self.info = result

    def _check_start(self, seconds: float, before: Usage, usage: Usage) -> None:
        what = f"The {self.name} engine did not start within {seconds:.0f} s"
        if seconds >= tuning.START_S:
            raise EngineCrashed(what)
        if not _gets_on(before, usage, tuning.START_QUIET_S):
            raise EngineCrashed(what, why=f"its process did nothing for {tuning.START_QUIET_S:g} s")
        log.info("the %s engine is still starting, after %.0f s", self.name, seconds)

    async def _read(self) -> Any:
        """The next message, or ``None`` when the child has closed its end."""
        assert self._child
        assert self._child.stdout
        try:
            header = await self._child.stdout.readexactly(LENGTH_BYTES)
            body = await self._child.stdout.readexactly(int.from_bytes(header, "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self._heard_at = asyncio.get_running_loop().time()
        return pickle.loads(body)

    async def _reap(self, child: Process, exit_code: asyncio.Task[int]) -> None:
        """Wait for the child to end; kill it if it does not."""
        assert child.stdin
        child.stdin.close()
        # A child that is still building its engine reads nothing, and has nothing to finish.
        patience_s = 0.0 if self._ready_at is None else tuning.STOP_TIMEOUT_S
        try:
            async with asyncio.timeout(patience_s):
                # Read the rest, so that a child in the middle of an answer can end.
                await child.communicate()
        except TimeoutError:
            log.info("the %s engine is busy; killing its process", self.name)
        finally:
            if child.returncode is None:
                _kill(child)
            await exit_code
            self._child = None


def _kill(child: Process) -> None:
    """Kill the child and every process in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


Usage = tuple[float, float, float]
"""CPU seconds, MiB read from disk, MiB of memory: of a process and its children, so far."""


def _gets_on(before: Usage, usage: Usage, seconds: float) -> bool:
    """Whether a process made progress in the ``seconds`` between two measurements."""
    cpu, read, memory = (now - then for then, now in zip(before, usage, strict=True))
    return cpu >= tuning.LEAST_CPU * seconds or read >= 1 or abs(memory) >= 1


def _usage(pid: int) -> Usage:
    cpu, read, memory = 0.0, 0, 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.Error), each.oneshot():
                times = each.cpu_times()
                cpu += times.user + times.system
                memory += each.memory_info().rss
                if hasattr(each, "io_counters"):
                    read += each.io_counters().read_bytes
    return cpu, read / 2**20, memory / 2**20


def _crashed_at_start(name: str, modules: Sequence[str], exit_code: int) -> EngineCrashed:
    if exit_code == -signal.SIGILL:
        return WrongProcessor(
            f"The {name} engine does not run on this processor",
            why="its process met an illegal instruction (SIGILL): a library was built for another "
            f"processor ({', '.join(modules) or 'its own'})",
            fix="Set up again on this machine (script/serve in a checkout, else reachy-voice "
            "setup), or choose another engine (reachy-voice config profiles)",
        )
    what = f"The {name} engine's process ended while it was starting"
    return EngineCrashed(what, why=_how(exit_code))


def _how(exit_code: int) -> str:
    """How a process with this exit code ended."""
    if exit_code >= 0:
        return f"its process ended with code {exit_code}"
    name = next((each.name for each in signal.Signals if each == -exit_code), "an unknown signal")
    if name == "SIGKILL":
        return "its process was killed (SIGKILL: by hand, or because memory ran out)"
    return f"its process crashed ({name})"
