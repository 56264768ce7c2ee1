"""Engines in this process: in their own thread, or on the event loop itself."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from pipeline.engines.registry import EngineOptions, EngineSpec
from pipeline.errors import EngineCrashed, ReachyVoiceError
from pipeline.work import Cancelled
from pipeline.workers import tuning
from pipeline.workers.host import Answer, Cancel, EngineHost, Request, build_engine
from pipeline.workers.process_worker import ProcessWorker
from pipeline.workers.worker import Worker

log = logging.getLogger("reachy_voice.worker")

_leftovers: list[threading.Thread] = []


class Trials(Protocol):
    """Remembers what has run on this processor with the libraries installed now. Blocks."""

    def has(self, part: str, packages: Sequence[str]) -> bool: ...

    def add(self, part: str, packages: Sequence[str]) -> None: ...


class ThreadWorker(Worker):
    """Runs the engine in its own thread: for native code that releases the GIL.

    A thread cannot be killed. If it hangs, its jobs fail; it works again if the step ever ends. If
    it does not stop in time, it is left running and dies with the process.

    A library built for another processor would end this process (SIGILL). So an engine that never
    ``ran`` here is first started in a separate process.
    """

    def __init__(
        self,
        spec: EngineSpec,
        options: EngineOptions,
        weights: Path | None,
        ran: Trials | None = None,
    ) -> None:
        super().__init__(spec, options, weights)
        self._ran = ran
        self._trial: ProcessWorker | None = None
        self._host: EngineHost | None = None
        self._built: asyncio.Future[None] | None = None
        self._closed = asyncio.Event()

    async def run(self, ready: Callable[[], None]) -> None:
        await self._try()
        if self._closed.is_set():
            return
        self._loop = asyncio.get_running_loop()
        self._built = self._loop.create_future()
        # A daemon, because the interpreter waits for the loop's own threads at exit.
        thread = threading.Thread(target=self._thread, name=self.name, daemon=True)
        thread.start()
        try:
            await self._built
            if not self._closed.is_set():
                self.problem = None
                ready()
            await self._until_closed()
        finally:
            self.close()
            self.problem = "is closed"
            self._fail_jobs(Cancelled())
            await self._end(thread)

    def close(self) -> None:
        self._closed.set()
        if self._trial:
            self._trial.close()
        self._settle(None)
        if self._host:
            self._host.close()

    def post(self, request: Request) -> None:
        if self._host:
            self._host.receive(request)

    async def _try(self) -> None:
        """Try the engine in a child, if it never ran here. Raises ``EngineCrashed`` if that dies;
        other failures will show at the real start."""
        ran, spec = self._ran, self._spec
        part, packages = f"{spec.kind}-{spec.name}", spec.modules
        if ran is None or await asyncio.to_thread(ran.has, part, packages) or self._closed.is_set():
            return
        self._trial = ProcessWorker(spec, self._options, self._weights)
        try:
            await self._trial.run(self._trial.close)
        except EngineCrashed:
            raise
        except ReachyVoiceError:
            return
        if not self._closed.is_set():
            await asyncio.to_thread(ran.add, part, packages)

    # -- the thread

    def _thread(self) -> None:
        try:
            engine, self.info = build_engine(self._spec, self._options, self._weights)
        except BaseException as error:
            self._tell(self._settle, error)
            return
        self._host = self._host_of(engine)
        if self._closed.is_set():
            self._host.close()
        self._tell(self._settle, None)
        self._serve(self._host)

    def _host_of(self, engine: Any) -> EngineHost:
        return EngineHost(engine, self._send)

    def _serve(self, host: EngineHost) -> None:
        try:
            host.run()
            host.let_go()
        finally:
            self._tell(self._closed.set)

    def _send(self, answer: Answer) -> None:
        self._tell(self._receive, answer)

    def _tell(self, function: Callable[..., None], *args: Any) -> None:
        """Call ``function`` on the loop, which the thread may outlive."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    # -- the loop

    def _settle(self, error: BaseException | None) -> None:
        if self._built and not self._built.done():
            if error:
                self._built.set_exception(error)
            else:
                self._built.set_result(None)

    async def _until_closed(self) -> None:
        """A hanging thread cannot answer a ping, so watch the age of its step instead."""
        while not self._closed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(tuning.QUIET_S):
                    await self._closed.wait()
            began = self._host.step_began if self._host else None
            hangs = began is not None and time.monotonic() - began > tuning.LONGEST_THREAD_STEP_S
            if hangs and self.problem is None:
                self._give_up()

    def _give_up(self) -> None:
        self.problem = "hangs; restart the server if this persists"
        log.error("the %s engine hangs: one of its steps does not end", self.name)
        for number in self._jobs:
            self.post(Cancel(number))
        self._fail_jobs(EngineCrashed(f"The {self.name} engine hangs"))

    def _receive(self, answer: Answer) -> None:
        if self.problem and not self._closed.is_set():
            self.problem = None
            log.info("the %s engine works again", self.name)
        self._answer(answer)

    async def _end(self, thread: threading.Thread) -> None:
        # An engine that is still being built has nothing to finish.
        if self._host:
            await asyncio.to_thread(thread.join, tuning.STOP_TIMEOUT_S)
            if thread.is_alive():
                log.error("the %s engine does not end; leaving its thread running", self.name)
        if thread.is_alive():
            _leftovers.append(thread)


class InlineWorker(ThreadWorker):
    """Builds the engine in a thread, but runs each call on the loop itself: for engines whose calls
    take less time than a context switch."""

    def post(self, request: Request) -> None:
        super().post(request)
        if self._host:
            self._host.run_until_idle()

    def _serve(self, host: EngineHost) -> None:
        if self._closed.is_set():
            host.let_go()

    def _send(self, answer: Answer) -> None:
        self._answer(answer)

    async def _until_closed(self) -> None:
        await self._closed.wait()

    async def _end(self, thread: threading.Thread) -> None:
        if self._host:
            self._host.let_go()
        elif thread.is_alive():
            _leftovers.append(thread)


def worker_for(
    spec: EngineSpec, options: EngineOptions, weights: Path | None, ran: Trials | None = None
) -> Worker:
    """A worker in the place that the options name, or else the engine's spec."""
    place = options.run_in or spec.run_in
    if place == "process":
        return ProcessWorker(spec, options, weights)
    kind = InlineWorker if place == "inline" else ThreadWorker
    return kind(spec, options, weights, ran=ran)


def leave_now_if_threads_were_left(exit_code: int) -> None:
    """End the process at once if an engine's thread still runs. A normal exit would tear down what
    the thread uses, and its libraries would print errors or crash."""
    if not any(thread.is_alive() for thread in _leftovers):
        return
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # closed, or nothing reads it
    os._exit(exit_code)
