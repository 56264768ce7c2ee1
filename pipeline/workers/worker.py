"""Turns an engine's blocking code into something awaitable, bounded, cancellable, restartable.

A worker runs one engine inline, in a thread, or in a child process, behind the same ``Remote``.
``run()`` is the worker's life: it belongs into a TaskGroup and returns after ``close()``.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pipeline.engines.contract import EngineInfo
from pipeline.engines.readiness import Readiness
from pipeline.engines.registry import EngineOptions, EngineSpec
from pipeline.errors import EngineCrashed
from pipeline.work import Cancelled, Work
from pipeline.workers.host import (
    Answer,
    Cancel,
    Credit,
    Done,
    Drop,
    EngineHost,
    Item,
    Promote,
    Request,
    Submit,
    build_engine,
)
from pipeline.workers.left_threads import begin, leave, set_exception, set_result, teller
from pipeline.workers.watchdog import Watchdog

log = logging.getLogger("reachy_voice.worker")

Info = TypeVar("Info", bound=EngineInfo)

STOP_TIMEOUT_S = 3.0
"""How long an engine may go on with its step once it is told to end."""


class _Pending:
    """One job seen from the loop: a bounded stream of items and one end."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.items: deque[Any] = deque()
        self.done: Done | None = None
        self.changed = asyncio.Event()


class Remote:
    """An object inside a worker: the engine itself, or something that was opened on it."""

    def __init__(self, worker: Worker, target: int, generation: int) -> None:
        self._worker = worker
        self._target = target
        self._generation = generation

    @property
    def alive(self) -> bool:
        """False once the engine was restarted: what was opened on the old one is gone."""
        return self._target == 0 or self._generation == self._worker.generation

    @property
    def usable(self) -> bool:
        """Whether a call can be made now."""
        return self.alive and self._worker.problem is None

    async def call(self, method: str, *args: Any, work: Work, cancellable: bool = False) -> Any:
        """Run a method to its end. Raises what it raises, ``Cancelled``, or ``EngineCrashed``."""
        job, pending = self._submit(method, args, work, cancellable, None)
        try:
            while pending.done is None:
                pending.changed.clear()
                await pending.changed.wait()
        finally:
            self._worker.release(job)
        if pending.done.error:
            raise pending.done.error
        return pending.done.value

    async def stream(self, method: str, *args: Any, work: Work) -> AsyncGenerator[Any, None]:
        """Iterate over a generator method; leaving the loop cancels it."""
        await self._back()
        job, pending = self._submit(method, args, work, True, None)
        try:
            while True:
                while pending.items:
                    value = pending.items.popleft()
                    self._worker.post(Credit(job))
                    yield value
                if pending.done:
                    if pending.done.error:
                        raise pending.done.error
                    return
                pending.changed.clear()
                await pending.changed.wait()
        finally:
            self._worker.release(job)

    async def open(self, method: str, *args: Any, work: Work) -> Remote:
        """Call a method that returns an object, and keep that object inside the worker."""
        await self._back()
        target = self._worker.new_id()
        generation = self._worker.generation
        job, pending = self._submit(method, args, work, False, target)
        try:
            while pending.done is None:
                pending.changed.clear()
                await pending.changed.wait()
        except BaseException:
            # Cancel first: after it nothing is kept that this drop could come too early for.
            self._worker.release(job)
            self._worker.post(Drop(target))
            raise
        if pending.done.error:
            raise pending.done.error
        return Remote(self._worker, target, generation)

    def close(self) -> None:
        """Let go of the object; it is closed when the engine gets to it."""
        if self.alive:
            self._worker.post(Drop(self._target))

    async def _back(self) -> None:
        """Wait for an engine that is being restarted; what was opened on it does not come back."""
        if self._target == 0:
            await self._worker.back()

    def _submit(
        self, method: str, args: tuple[Any, ...], work: Work, cancellable: bool, keep: int | None
    ) -> tuple[int, _Pending]:
        if not self.alive:
            raise EngineCrashed(f"The {self._worker.name} engine was restarted under this call")
        return self._worker.submit(self._target, method, args, work, cancellable, keep)


class Worker(Readiness):
    """What the three placements share: jobs, answers, health."""

    def __init__(self, spec: EngineSpec, options: EngineOptions, weights: Path | None) -> None:
        super().__init__()
        self.name = f"{spec.kind} {spec.name}"
        self.generation = 0
        self.info: EngineInfo = None
        """What the engine can do, once it is ready."""
        self.engine = Remote(self, 0, 0)
        self._spec = spec
        self._options = options
        self._weights = weights
        self._ids = itertools.count(1)
        self._pending: dict[int, _Pending] = {}

    @property
    def identity(self) -> str:
        """Tells engines of other weights or options apart, over restarts, too. Reads the disk."""
        told = [self.name, self._options.model_dump_json()]
        paths = sorted(self._weights.iterdir()) if self._weights else []
        if own := getattr(self._options, "model_file", None):
            paths = [(self._weights or Path()) / Path(own).expanduser()]
        for path in paths:
            with suppress(OSError):
                stat = path.stat()
                told += [path.name, str(stat.st_size), str(stat.st_mtime_ns)]
        return "\n".join(told)

    def info_as(self, kind: type[Info]) -> Info:
        """Raises ``EngineCrashed`` if the engine was never ready."""
        if not isinstance(self.info, kind):
            raise EngineCrashed(f"The {self.name} engine is not ready", why=self.problem or "")
        return self.info

    async def run(self, ready: Callable[[], None]) -> None:
        """Build the engine, call ``ready``, then live until ``close``."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def post(self, request: Request) -> None:
        raise NotImplementedError

    def new_id(self) -> int:
        return next(self._ids)

    def submit(
        self,
        target: int,
        method: str,
        args: tuple[Any, ...],
        work: Work,
        cancellable: bool,
        keep: int | None,
    ) -> tuple[int, _Pending]:
        if self.problem:
            raise EngineCrashed(f"The {self.name} engine is not ready", why=self.problem)
        job = self.new_id()
        pending = self._pending[job] = _Pending(work)
        work.job_began()
        work.watch(job, lambda changed: self._work_changed(job, changed))
        priority = int(work.priority)
        call = (job, target, method, args, priority, cancellable, keep, work.client)
        self.post(Submit(*call))
        if work.cancelled:
            self.post(Cancel(job))
        return job, pending

    def release(self, job: int) -> None:
        """The caller no longer waits: stop the job if it still runs."""
        pending = self._pending.get(job)
        if pending:
            pending.work.unwatch(job)
            self.post(Cancel(job))

    def _work_changed(self, job: int, work: Work) -> None:
        self.post(Cancel(job) if work.cancelled else Promote(job, int(work.priority)))

    def _answer(self, answer: Answer) -> None:
        pending = self._pending.get(answer.job)
        if pending is None:
            return
        if isinstance(answer, Item):
            pending.items.append(answer.value)
        else:
            del self._pending[answer.job]
            pending.done = answer
            pending.work.unwatch(answer.job)
            pending.work.job_ended(answer.engine_seconds)
        pending.changed.set()

    def _fail_pending(self, error: BaseException) -> None:
        for job in list(self._pending):
            self._answer(Done(job, None, error, 0.0))


class InlineWorker(Worker):
    """Runs each call on the loop itself: for engines that take less than a context switch."""

    def __init__(self, spec: EngineSpec, options: EngineOptions, weights: Path | None) -> None:
        super().__init__(spec, options, weights)
        self._host: EngineHost | None = None
        self._built: asyncio.Future[Any] | None = None
        self._closed = asyncio.Event()

    async def run(self, ready: Callable[[], None]) -> None:
        built = await self._build()
        if self._closed.is_set():
            self.problem = "is closed"
            return
        engine, self.info = built
        self._host = EngineHost(engine, self._answer)
        self.problem = None
        ready()
        try:
            await self._closed.wait()
        finally:
            self.problem = "is closed"
            self._fail_pending(Cancelled())
            self._host.let_go()
            self._host = None

    def close(self) -> None:
        self._closed.set()
        if self._built:
            set_result(self._built)

    def post(self, request: Request) -> None:
        if self._host:
            self._host.receive(request)
            self._host.run_until_idle()

    async def _build(self) -> Any:
        def work() -> Any:
            return build_engine(self._spec, self._options, self._weights)

        # Not the loop's own threads: their end is waited for, whoever is cancelled.
        thread, self._built = begin(self.name, work)
        try:
            return await self._built
        finally:
            leave(thread)


class ThreadWorker(Worker):
    """Runs the engine in a thread of its own: for native code that releases the GIL.

    A thread cannot be killed. One that hangs fails what waits for it, and works again if its step
    ever ends; one that does not end in time is left behind, and dies with us.
    """

    def __init__(
        self,
        spec: EngineSpec,
        options: EngineOptions,
        weights: Path | None,
        hang_timeout_s: float = 30.0,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        super().__init__(spec, options, weights)
        self._hang_timeout_s = hang_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._host: EngineHost | None = None
        self._built: asyncio.Future[None] | None = None
        self._watchdog: Watchdog | None = None
        self._closed = asyncio.Event()

    @property
    def stuck(self) -> bool:
        """True while one step lasts longer than the hang time-out; a thread cannot be killed."""
        began = self._host.step_began if self._host else None
        return began is not None and time.monotonic() - began > self._hang_timeout_s

    async def run(self, ready: Callable[[], None]) -> None:
        if self._closed.is_set():
            return
        loop = asyncio.get_running_loop()
        self._built = built = loop.create_future()

        thread = threading.Thread(
            target=self._thread, args=(teller(loop), built), name=self.name, daemon=True
        )
        thread.start()
        try:
            await built
            if not self._closed.is_set():
                self._watchdog = Watchdog(
                    lambda: bool(self._pending), self._look, self._give_up, answer_s=0
                )
                self.problem = None
                ready()
            await self._closed.wait()
        finally:
            self.close()
            if self._watchdog:
                self._watchdog.stop()
            self.problem = "is closed"
            self._fail_pending(Cancelled())
            await self._join(thread)

    async def _join(self, thread: threading.Thread) -> None:
        # One that is still being built has nothing to bring to an end.
        if self._host:
            await asyncio.to_thread(thread.join, self._stop_timeout_s)
            if thread.is_alive():
                log.error("the %s engine does not end; leaving it behind", self.name)
        leave(thread)

    def _thread(self, tell: Callable[..., None], built: asyncio.Future[None]) -> None:
        try:
            engine, self.info = build_engine(self._spec, self._options, self._weights)
        except BaseException as error:
            tell(set_exception, built, error)
        else:
            self._host = host = EngineHost(engine, lambda answer: tell(self._heard, answer))
            if self._closed.is_set():
                host.close()
            tell(set_result, built)
            host.run()
            host.let_go()
        finally:
            tell(self._closed.set)

    def close(self) -> None:
        self._closed.set()
        if self._built:
            set_result(self._built)
        if self._host:
            self._host.close()

    def post(self, request: Request) -> None:
        if self._host:
            self._host.receive(request)
        if self._watchdog and isinstance(request, Submit):
            self._watchdog.begin()

    def _look(self) -> None:
        """The thread cannot be asked; the age of its step is the answer."""
        if self._watchdog and not self.stuck:
            self._watchdog.heard()

    def _give_up(self) -> None:
        self.problem = "hangs; if that lasts, start the server again"
        log.error("the %s engine hangs: a step of it does not end", self.name)
        for job in self._pending:
            self.post(Cancel(job))
        self._fail_pending(EngineCrashed(f"The {self.name} engine hangs"))

    def _heard(self, answer: Answer) -> None:
        if self.problem and not self._closed.is_set():
            self.problem = None
            log.info("the %s engine works again", self.name)
        self._answer(answer)


def worker_for(spec: EngineSpec, options: EngineOptions, weights: Path | None) -> Worker:
    """The worker that the options, or else the engine's author, ask for."""
    match options.run_in or spec.run_in:
        case "inline":
            return InlineWorker(spec, options, weights)
        case "thread":
            return ThreadWorker(spec, options, weights)
        case "process":
            from pipeline.workers.process_worker import ProcessWorker

            return ProcessWorker(spec, options, weights)
