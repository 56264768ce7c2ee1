"""Where engines run: a host takes messages, runs jobs one step at a time, and answers.

A host owns one engine and the objects that were opened on it, and runs in exactly one thread:
in the server's process or in a child's main thread, with the same messages. The most urgent job
goes first; equals take turns. A generator is a job of many steps, so work is preempted between
its slices; ``CancelToken.preempted`` asks a long slice to end early.
"""

from __future__ import annotations

import faulthandler
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any

from pipeline.engines import Cancelled
from pipeline.errors import EngineError, ReachyVoiceError

STREAM_CREDIT = 16
"""How many items of a stream may be on their way before the reader must take one."""

# --- messages ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submit:
    """Call ``method`` of object ``target`` (0: the engine). ``keep_as`` stores the result there."""

    job: int
    target: int
    method: str
    args: tuple[Any, ...]
    priority: int
    cancellable: bool
    """Whether the method takes a ``CancelToken`` as its last argument."""
    keep_as: int | None = None


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
    """Close and forget an object that was kept."""

    target: int


Request = Submit | Cancel | Promote | Credit | Drop


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a stream."""

    job: int
    value: Any


@dataclass(frozen=True, slots=True)
class Done:
    """The job's one end; ``error`` is set if it failed, ``Cancelled`` if it was stopped."""

    job: int
    value: Any
    error: BaseException | None
    engine_seconds: float


Answer = Item | Done

ATTRIBUTES = ("rate", "window_samples", "history_seconds", "voices", "context_tokens")
"""Plain attributes of engines that the other side may read (see ``pipeline.engines``)."""


def describe(engine: Any) -> dict[str, Any]:
    """The engine's plain attributes, as they cross a process border."""
    return {name: getattr(engine, name) for name in ATTRIBUTES if hasattr(engine, name)}


# --- the host ----------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Job:
    """One submitted call; it is its own ``CancelToken``."""

    submit: Submit
    priority: int
    turn: int
    cancelled: bool = False
    preempted: bool = False
    credit: int = STREAM_CREDIT
    engine_seconds: float = 0.0
    steps: Iterator[Any] | None = field(default=None)

    @property
    def runnable(self) -> bool:
        return self.credit > 0 or self.cancelled


class EngineHost:
    """Runs one engine's jobs. ``receive`` may be called from any thread, ``run`` from one.

    ``send`` is called from the host's thread with each answer. ``hang_timeout_s`` (child
    processes only): a step that lasts longer dumps its traceback and ends the process.
    """

    def __init__(
        self, engine: Any, send: Callable[[Answer], None], hang_timeout_s: float | None = None
    ) -> None:
        self._objects: dict[int, Any] = {0: engine}
        self._send = send
        self._hang_timeout_s = hang_timeout_s
        self._jobs: dict[int, _Job] = {}
        self._drops: list[int] = []
        self._turns = itertools.count()
        self._running: _Job | None = None
        self._closed = False
        self._changed = threading.Condition()
        self.step_began: float | None = None
        """``time.monotonic()`` when the step that now runs began."""

    # -- any thread

    def receive(self, request: Request) -> None:
        with self._changed:
            match request:
                case Submit():
                    job = _Job(request, request.priority, next(self._turns))
                    self._jobs[request.job] = job
                    self._preempt_for(job)
                case Cancel():
                    if job := self._jobs.get(request.job):  # type: ignore[assignment]
                        job.cancelled = True
                case Promote():
                    if job := self._jobs.get(request.job):  # type: ignore[assignment]
                        job.priority = request.priority
                        self._preempt_for(job)
                case Credit():
                    if job := self._jobs.get(request.job):  # type: ignore[assignment]
                        job.credit += 1
                case Drop():
                    self._drops.append(request.target)
            self._changed.notify()

    def close(self) -> None:
        """Stop all jobs and let ``run`` return."""
        with self._changed:
            self._closed = True
            for job in self._jobs.values():
                job.cancelled = True
            self._changed.notify()

    # -- the host's thread

    def run(self) -> None:
        """Work until ``close``."""
        while True:
            with self._changed:
                while not (self._choose() or self._drops or self._closed):
                    self._changed.wait()
                if not self._running and not self._drops:
                    return
            self._work()

    def run_until_idle(self) -> None:
        """Work until nothing can be done now (the inline host)."""
        while self._choose() or self._drops:
            self._work()

    def _choose(self) -> bool:
        """Make the most urgent runnable job the running one.

        Under the lock that ``receive`` takes, so a more urgent job that arrives from here on
        finds whom to preempt.
        """
        runnable = (job for job in self._jobs.values() if job.runnable)
        job = min(runnable, key=lambda j: (not j.cancelled, j.priority, j.turn), default=None)
        self._running = job
        if job:
            job.preempted = False
            job.turn = next(self._turns)
        return job is not None

    def _work(self) -> None:
        job = self._running
        # A cancelled job closes its generator before the object under it is dropped.
        if job is None or not job.cancelled:
            self._drop_objects()
        if job:
            self._step(job)

    def _preempt_for(self, job: _Job) -> None:
        if self._running and job.priority < self._running.priority:
            self._running.preempted = True

    def _drop_objects(self) -> None:
        with self._changed:
            drops, self._drops = self._drops, []
        for target in drops:
            kept = self._objects.pop(target, None)
            if hasattr(kept, "close"):
                kept.close()

    def _step(self, job: _Job) -> None:
        began = self.step_began = time.monotonic()
        if self._hang_timeout_s:
            faulthandler.dump_traceback_later(self._hang_timeout_s, exit=True)
        try:
            finished, value = self._advance(job)
            error: BaseException | None = None
        except Cancelled as stopped:
            finished, value, error = True, None, stopped
        except Exception as problem:
            finished, value, error = True, None, _portable(problem)
        finally:
            if self._hang_timeout_s:
                faulthandler.cancel_dump_traceback_later()
            self.step_began = None
            self._running = None
        job.engine_seconds += time.monotonic() - began
        if finished:
            with self._changed:
                del self._jobs[job.submit.job]
            self._send(Done(job.submit.job, value, error, job.engine_seconds))
        elif value is not None:
            with self._changed:
                job.credit -= 1
            self._send(Item(job.submit.job, value))

    def _advance(self, job: _Job) -> tuple[bool, Any]:
        """Run one step: (finished?, value)."""
        if job.cancelled:
            if isinstance(job.steps, GeneratorType):
                job.steps.close()
            raise Cancelled
        if job.steps is not None:
            return self._next_item(job)
        value = self._call(job)
        if isinstance(value, GeneratorType):
            job.steps = value
            return self._next_item(job)
        if job.submit.keep_as is not None:
            self._objects[job.submit.keep_as] = value
            value = None
        return True, value

    def _call(self, job: _Job) -> Any:
        submit = job.submit
        if submit.target not in self._objects:
            raise EngineError("The engine no longer has the object that this call is for")
        method = getattr(self._objects[submit.target], submit.method)
        return method(*submit.args, job) if submit.cancellable else method(*submit.args)

    @staticmethod
    def _next_item(job: _Job) -> tuple[bool, Any]:
        assert job.steps is not None
        try:
            return False, next(job.steps)
        except StopIteration:
            return True, None


def _portable(problem: Exception) -> Exception:
    """The error as it may cross a process border: ours as they are, others as text."""
    if isinstance(problem, ReachyVoiceError):
        return problem
    error = EngineError("An engine failed", why=f"{type(problem).__name__}: {problem}")
    error.__cause__ = problem
    return error
