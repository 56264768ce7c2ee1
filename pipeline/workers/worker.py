"""An engine's blocking code as sessions see it: awaitable, bounded, cancellable, restartable.

A worker runs one engine inline, in a thread or in a child process. ``run()`` is its whole life: it
belongs in a TaskGroup and returns after ``close()``. Each call of ``engine``, or of an object
opened on it, becomes a job of the ``EngineHost`` that runs beside the engine. Workers do not know
kinds of engines; ``pipeline.workers.stages`` gives their calls types.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from pipeline.engines.contract import EngineInfo
from pipeline.engines.registry import EngineOptions, EngineSpec
from pipeline.errors import EngineCrashed
from pipeline.work import CancelToken, Work
from pipeline.workers.host import (
    Answer,
    Cancel,
    Credit,
    Drop,
    Item,
    JobEnd,
    Promote,
    Request,
    Submit,
)

Args = TypeVarTuple("Args")
Result = TypeVar("Result")


class _Job:
    """One job seen from the loop: a bounded stream of items, then one result."""

    def __init__(self, number: int, work: Work) -> None:
        self.number = number
        self.work = work
        self.items: deque[Any] = deque()
        self.done: JobEnd | None = None
        self.changed = asyncio.Event()

    async def change(self) -> None:
        self.changed.clear()
        await self.changed.wait()

    async def result(self) -> Any:
        """Wait for the job to end. Raises what the engine raised."""
        while self.done is None:
            await self.change()
        if self.done.error:
            raise self.done.error
        return self.done.value


class Worker:
    """What the three placements share: jobs, answers, health."""

    def __init__(self, spec: EngineSpec, options: EngineOptions, weights: Path | None) -> None:
        self.name = f"{spec.kind} {spec.name}"
        self.ready = asyncio.Event()
        """Set while the engine is ready."""
        self.problem = "is starting"
        self.back_by: float | None = None
        """Until when it is worth waiting for a restarting engine, in loop time."""
        self.generation = 0
        """How many times the engine was built."""
        self.info: EngineInfo | None = None
        """What the engine can do; set when it is first ready."""
        self.engine = RemoteObject(self, 0, 0)
        self._spec = spec
        self._options = options
        self._weights = weights
        self._ids = itertools.count(1)
        self._jobs: dict[int, _Job] = {}

    async def run(self, ready: Callable[[], None]) -> None:
        """Build the engine, call ``ready`` (again after each restart), then live until ``close``.
        Raises what the first build raises."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def post(self, request: Request) -> None:
        """Send ``request`` to the engine's host."""
        raise NotImplementedError

    @property
    def known(self) -> EngineInfo:
        """What the engine can do. Raises ``EngineCrashed`` if it was never ready."""
        if self.info is None:
            raise EngineCrashed(f"The {self.name} engine is not ready", why=self.problem or "")
        return self.info

    @property
    def identity(self) -> str:
        """A key that survives restarts and changes with weights or options. Reads the disk."""
        parts = [self.name, self._options.model_dump_json()]
        paths = sorted(self._weights.iterdir()) if self._weights else []
        if own := getattr(self._options, "model_file", None):
            paths = [(self._weights or Path()) / Path(own).expanduser()]
        for path in (*paths, *(each.path for each in getattr(self._options, "adapters", ()))):
            with suppress(OSError):
                stat = path.stat()
                parts += [path.name, str(stat.st_size), str(stat.st_mtime_ns)]
        return "\n".join(parts)

    # -- readiness

    @property
    def problem(self) -> str | None:
        """Why the engine is not ready, and for how long it has been so; ``None``: it is ready."""
        if self._waiting_since is None:
            return self._problem
        seconds = asyncio.get_running_loop().time() - self._waiting_since
        return f"{self._problem}, for {seconds:.0f} s now"

    @problem.setter
    def problem(self, why: str | None) -> None:
        self._problem = why
        self._waiting_since: float | None = None
        if why:
            self.ready.clear()
        else:
            self.ready.set()

    def wait_for(self, what: str) -> None:
        """Set the problem to ``what``, which will pass, and note since when it lasts."""
        self.problem = what
        self._waiting_since = asyncio.get_running_loop().time()

    async def back(self) -> None:
        """Wait for a restarting engine, if it is likely to be ready soon."""
        if self.back_by is None or self.ready.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self.back_by):
                await self.ready.wait()

    # -- jobs

    def new_id(self) -> int:
        return next(self._ids)

    @contextmanager
    def job(
        self,
        target: int,
        method: str,
        args: tuple[Any, ...],
        work: Work,
        cancellable: bool,
        keep: int | None = None,
    ) -> Iterator[_Job]:
        """Submit a job (see ``Submit``). Leaving the block before the job ends cancels it."""
        if self.problem:
            raise EngineCrashed(f"The {self.name} engine is not ready", why=self.problem)
        number = self.new_id()
        job = self._jobs[number] = _Job(number, work)
        work.job_began()
        work.watch(number, lambda changed: self._work_changed(number, changed))
        priority = int(work.priority)
        call = (number, target, method, args, priority, cancellable, keep, work.client)
        self.post(Submit(*call))
        if work.cancelled:
            self.post(Cancel(number))
        try:
            yield job
        finally:
            if number in self._jobs:
                work.unwatch(number)
                self.post(Cancel(number))

    def _work_changed(self, number: int, work: Work) -> None:
        self.post(Cancel(number) if work.cancelled else Promote(number, int(work.priority)))

    def _answer(self, answer: Answer) -> None:
        job = self._jobs.get(answer.job)
        if job is None:
            return
        if isinstance(answer, Item):
            job.items.append(answer.value)
        else:
            del self._jobs[answer.job]
            job.done = answer
            job.work.unwatch(answer.job)
            job.work.job_ended(answer.engine_seconds)
        job.changed.set()

    def _fail_jobs(self, error: BaseException) -> None:
        for number in list(self._jobs):
            self._answer(JobEnd(number, None, error, 0.0))


class RemoteObject:
    """An object inside a worker: the engine itself (``target`` 0), or an object opened on it.

    Its methods are those of ``pipeline.engines.contract``. Each call raises what the method raises,
    ``Cancelled``, or ``EngineCrashed``.
    """

    def __init__(self, worker: Worker, target: int, generation: int) -> None:
        self._worker = worker
        self._target = target
        self._generation = generation

    @property
    def alive(self) -> bool:
        """False after an engine restart: objects opened on the old engine are gone."""
        return self._target == 0 or self._generation == self._worker.generation

    @property
    def usable(self) -> bool:
        """Whether a call can be made now."""
        return self.alive and self._worker.problem is None

    async def call(
        self, method: Callable[[Any, *Args], Result], work: Work, *args: *Args
    ) -> Result:
        """Run a method to its end."""
        with self._job(method.__name__, args, work, False) as job:
            result: Result = await job.result()
            return result

    async def call_cancellable(
        self,
        method: Callable[[Any, *Args, CancelToken], Result],
        work: Work,
        *args: *Args,
    ) -> Result:
        """Run a method that can be cancelled to its end."""
        with self._job(method.__name__, args, work, True) as job:
            result: Result = await job.result()
            return result

    async def stream(
        self,
        method: Callable[[Any, *Args, CancelToken], Iterator[Result | None]],
        work: Work,
        *args: *Args,
    ) -> AsyncGenerator[Result, None]:
        """Iterate over a generator method; leaving the loop cancels it."""
        await self._back()
        with self._job(method.__name__, args, work, True) as job:
            while True:
                while job.items:
                    value: Result = job.items.popleft()
                    self._worker.post(Credit(job.number))
                    yield value
                if job.done:
                    await job.result()
                    return
                await job.change()

    async def open(
        self, method: Callable[[Any, *Args], object], work: Work, *args: *Args
    ) -> RemoteObject:
        """Call a method that returns an object, and keep that object inside the worker."""
        await self._back()
        target, generation = self._worker.new_id(), self._worker.generation
        try:
            with self._job(method.__name__, args, work, False, target) as job:
                await job.result()
        except BaseException:
            # The job is already cancelled, so it cannot store the object after this drop.
            self._worker.post(Drop(target))
            raise
        return RemoteObject(self._worker, target, generation)

    def close(self) -> None:
        """Release the object; the host closes it when it has time."""
        if self.alive:
            self._worker.post(Drop(self._target))

    async def _back(self) -> None:
        """Wait for an engine that is restarting; do not wait for objects opened on it, which are
        lost."""
        if self._target == 0:
            await self._worker.back()

    def _job(
        self,
        method: str,
        args: tuple[Any, ...],
        work: Work,
        cancellable: bool,
        keep: int | None = None,
    ) -> AbstractContextManager[_Job]:
        if not self.alive:
            raise EngineCrashed(f"The {self._worker.name} engine was restarted during this call")
        return self._worker.job(self._target, method, args, work, cancellable, keep)
