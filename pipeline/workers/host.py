"""Where engines run: a host takes messages, runs jobs one step at a time, and answers.

A host owns one engine and the objects opened on it. It runs in exactly one thread, in the server's
process or as a child's main thread, with the same messages. The most urgent job goes first; jobs of
equal urgency take turns. A generator (any iterator) is a job of many steps, so that work can be
preempted between its slices; ``CancelToken.preempted`` asks a long slice to end early.
"""

from __future__ import annotations

import faulthandler
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from pipeline.engines.contract import EngineInfo, info_of
from pipeline.engines.registry import EngineOptions, EngineSpec
from pipeline.errors import EngineError, ReachyVoiceError
from pipeline.work import Cancelled
from pipeline.workers import tuning
from pipeline.workers.fatal_errors import is_out_of_memory, lost_its_device

log = logging.getLogger("reachy_voice.worker")

# --- messages ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submit:
    """Call ``method`` of object ``target`` (0: the engine)."""

    job: int
    target: int
    method: str
    args: tuple[Any, ...]
    priority: int
    cancellable: bool
    """Whether the method takes a ``CancelToken`` as its last argument."""
    keep_as: int | None = None
    """Id for its result."""
    client: int = 0
    """The client it is for: first clients take turns, then each one's jobs."""


@dataclass(frozen=True, slots=True)
class Cancel:
    job: int


@dataclass(frozen=True, slots=True)
class Promote:
    job: int
    priority: int


@dataclass(frozen=True, slots=True)
class Credit:
    """The reader of a stream has taken one item."""

    job: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Close and forget a stored object."""

    target: int


Request = Submit | Cancel | Promote | Credit | Drop


@dataclass(frozen=True, slots=True)
class Item:
    job: int
    value: Any


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of a job; ``error`` is set if it failed, and is ``Cancelled`` if it was stopped."""

    job: int
    value: Any
    error: BaseException | None
    engine_seconds: float


Answer = Item | JobEnd


def build_engine(
    spec: EngineSpec, options: EngineOptions, weights: Path | None
) -> tuple[Any, EngineInfo]:
    """Build an engine and ask what it can do. Raises only user-readable errors."""
    try:
        engine = spec.build(options, weights)
        return engine, info_of(spec.kind, engine)
    except ReachyVoiceError:
        raise
    except Exception as problem:
        what = f"The {spec.kind} {spec.name} engine could not be built"
        raise readable(problem, what) from problem


def readable(problem: Exception, what: str) -> ReachyVoiceError:
    """Our own errors unchanged, others as text, so that all can cross a process boundary."""
    if isinstance(problem, ReachyVoiceError):
        return problem
    error = EngineError(what, why=f"{type(problem).__name__}: {problem}")
    error.__cause__ = problem
    return error


# --- the host ----------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Job:
    """One submitted call; it is its own ``CancelToken``."""

    submit: Submit
    priority: int
    turn: int
    cancelled: bool = False
    preempted: bool = False
    credit: int = tuning.STREAM_CREDIT
    engine_seconds: float = 0.0
    steps: Iterator[Any] | None = field(default=None)

    @property
    def runnable(self) -> bool:
        return self.credit > 0 or self.cancelled


class EngineHost:
    """Runs one engine's jobs. ``receive`` may be called from any thread, ``run`` from one.

    ``receive`` takes no lock, so it cannot block an event loop. ``send`` is called from the
    host's thread with each answer. ``hang_timeout_s`` (child processes only): a step that takes
    longer dumps its traceback and ends the process, and ``run`` returns if the engine breaks.
    """

    def __init__(
        self, engine: Any, send: Callable[[Answer], None], hang_timeout_s: float | None = None
    ) -> None:
        self._objects: dict[int, Any] = {0: engine}
        self._send = send
        self._hang_timeout_s = hang_timeout_s
        self._inbox: SimpleQueue[Request | None] = SimpleQueue()
        self._jobs: dict[int, Job] = {}
        self._drops: list[int] = []
        self._turns = itertools.count()
        self._last_turns: dict[int, int] = {}
        """Client -> when it was last served, for clients with jobs. New clients queue behind all
        waiting ones: otherwise a steady flow of new clients would starve them."""
        self._job: Job | None = None
        self._closed = False
        self._short_of_memory = False
        """Whether it has run out of memory since the last job that succeeded."""
        self.broken: str | None = None
        """Why the engine cannot continue after a failed step."""
        self.step_began: float | None = None
        """``time.monotonic()`` when the current step began."""

    # -- any thread

    def receive(self, request: Request) -> None:
        self._inbox.put(request)
        # Read once: the host's thread may set it to None at any time.
        job = self._job
        if job:
            _interrupt(job, request)

    def close(self) -> None:
        """Stop all jobs and let ``run`` return."""
        self._inbox.put(None)
        job = self._job
        if job:
            job.cancelled = True

    # -- the host's thread

    def run(self) -> None:
        """Work until ``close``, or until the engine breaks."""
        while not (self.broken and self._hang_timeout_s):
            while not (self._choose() or self._drops):
                if self._closed:
                    return
                self._take(self._inbox.get())
            self._work()

    def let_go(self) -> None:
        """After ``run``: close and forget the engine and everything opened on it, so that it is
        freed even if something still holds this host."""
        self._drops = [*reversed(self._objects)]
        self._drop_objects()

    def run_until_idle(self) -> None:
        """Work until nothing is runnable (inline engines)."""
        while self._choose() or self._drops:
            self._work()

    def _take(self, request: Request | None) -> None:
        """Record a request without running its job; ``None`` closes the host."""
        match request:
            case None:
                self._closed = True
                for job in self._jobs.values():
                    job.cancelled = True
            case Submit():
                self._last_turns.setdefault(request.client, next(self._turns))
                job = Job(request, request.priority, next(self._turns), cancelled=self._closed)
                self._jobs[request.job] = job
            case Drop():
                self._drops.append(request.target)
            case Cancel() | Promote() | Credit():
                if target := self._jobs.get(request.job):
                    _change(target, request)

    def _choose(self) -> bool:
        """Read the inbox and make the most urgent runnable job the current one. False if there is
        none."""
        while True:
            while not self._inbox.empty():
                self._take(self._inbox.get())
            runnable = (job for job in self._jobs.values() if job.runnable)
            job = min(runnable, key=self._urgency, default=None)
            if job:
                job.preempted = False
            self._job = job
            # A request that arrived before the line above found no job to interrupt: read it now.
            if self._inbox.empty():
                break
        if job:
            job.turn = self._last_turns[job.submit.client] = next(self._turns)
        return job is not None

    def _urgency(self, job: Job) -> tuple[bool, int, int, int]:
        """A sort key; the lowest is served first. Cancelled jobs lead, to free what others need."""
        last_turn = self._last_turns[job.submit.client]
        return not job.cancelled, job.priority, last_turn, job.turn

    def _work(self) -> None:
        job = self._job
        # A cancelled job closes its generator before the object under it is dropped.
        if job is None or not job.cancelled:
            self._drop_objects()
        if job:
            self._step(job)

    def _drop_objects(self) -> None:
        drops, self._drops = self._drops, []
        for target in drops:
            try:
                _close(self._objects.pop(target, None))
            except Exception:
                # The object's user has gone, and the engine itself may still work.
                log.exception("an engine failed to close an object")

    def _step(self, job: Job) -> None:
        began = self.step_began = time.monotonic()
        if self._hang_timeout_s:
            faulthandler.dump_traceback_later(self._hang_timeout_s, exit=True)
        value: Any = None
        try:
            finished, value = self._advance(job)
            error: BaseException | None = None
        except Cancelled as stopped:
            finished, error = True, stopped
        except Exception as problem:
            finished, error = True, readable(problem, "An engine failed")
            self._look_at(problem)
        finally:
            if self._hang_timeout_s:
                faulthandler.cancel_dump_traceback_later()
            self.step_began = None
            self._job = None
        job.engine_seconds += time.monotonic() - began
        if finished:
            if error is None:
                self._short_of_memory = False
            del self._jobs[job.submit.job]
            self._forget(job.submit.client)
            self._send(JobEnd(job.submit.job, value, error, job.engine_seconds))
        elif value is not None:
            job.credit -= 1
            self._send(Item(job.submit.job, value))

    def _look_at(self, problem: Exception) -> None:
        """Set ``broken`` if only a new process can help: after a lost GPU, or a second memory error
        in a row. After one, the next, smaller job may still fit."""
        why = None
        if lost_its_device(problem):
            why = "its process has lost the GPU"
        elif is_out_of_memory(problem):
            why = "it ran out of memory twice in a row" if self._short_of_memory else None
            self._short_of_memory = True
        if why and not self.broken:
            self.broken = why
            log.error("an engine must be rebuilt: %s", why)

    def _forget(self, client: int) -> None:
        if all(job.submit.client != client for job in self._jobs.values()):
            del self._last_turns[client]

    def _advance(self, job: Job) -> tuple[bool, Any]:
        """Run one step: (finished?, value)."""
        if job.cancelled:
            _close(job.steps)
            raise Cancelled
        if job.steps is not None:
            return _next_item(job.steps)
        value = self._call(job)
        if job.submit.keep_as is not None:
            self._keep(job, job.submit.keep_as, value)
            return True, None
        if isinstance(value, Iterator):
            job.steps = value
            return _next_item(value)
        return True, value

    def _keep(self, job: Job, target: int, value: Any) -> None:
        if job.cancelled:
            _close(value)
            raise Cancelled
        self._objects[target] = value

    def _call(self, job: Job) -> Any:
        submit = job.submit
        if submit.target not in self._objects:
            raise EngineError("The engine no longer has the object this call belongs to")
        method = getattr(self._objects[submit.target], submit.method)
        args = (*submit.args, job) if submit.cancellable else submit.args
        return method(*args)


def _interrupt(job: Job, request: Request) -> None:
    """Signal the current step; the host reads the request itself after the step."""
    match request:
        case Cancel() | Promote() if request.job == job.submit.job:
            _change(job, request)
        case Submit() | Promote() if request.priority < job.priority:
            job.preempted = True


def _change(job: Job, request: Cancel | Promote | Credit) -> None:
    match request:
        case Cancel():
            job.cancelled = True
        case Promote():
            job.priority = request.priority
        case Credit():
            job.credit += 1


def _next_item(steps: Iterator[Any]) -> tuple[bool, Any]:
    try:
        return False, next(steps)
    except StopIteration:
        _close(steps)
        return True, None


def _close(thing: Any) -> None:
    if hasattr(thing, "close"):
        thing.close()
