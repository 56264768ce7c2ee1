"""Children that hang, run out of memory, start processes, or lose their parent: all are real."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.engines.contract import Warmed
from pipeline.engines.registry import Kind
from pipeline.errors import EngineCrashed, EngineError
from pipeline.messages import LlmRequest, Usage
from pipeline.work import Cancelled, Priority, Work
from pipeline.workers import process_worker, tuning
from pipeline.workers.fatal_errors import is_out_of_memory, lost_its_device
from pipeline.workers.host import EngineHost
from pipeline.workers.placements import ThreadWorker
from pipeline.workers.process_worker import ProcessWorker
from pipeline.workers.stages import llm_stage, vad_stage
from tests.support.toy_engine import (
    FREED,
    Opened,
    Options,
    ToyEngine,
    build_busily,
    build_for_ever,
    running,
    spec,
    toy,
)

pytestmark = pytest.mark.machine


@pytest.fixture(autouse=True)
def freed() -> Iterator[None]:
    FREED.clear()
    yield
    FREED.set()


def send(worker: ProcessWorker, number: signal.Signals) -> None:
    assert worker.pid
    os.kill(worker.pid, number)


# --- hanging -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["stopped", "hold_the_interpreter"])
async def test_a_silent_child_is_replaced(method: str) -> None:
    async with toy(ProcessWorker, QUIET_S=0.05, ANSWER_S=1.0) as (worker, ready):
        before = worker.pid
        if method == "stopped":
            send(worker, signal.SIGSTOP)
            with pytest.raises(EngineCrashed, match="hung"):
                await worker.engine.call(ToyEngine.pid, Work())
        else:
            with pytest.raises(EngineCrashed, match="hung"):
                [
                    item
                    async for item in worker.engine.stream(ToyEngine.hold_the_interpreter, Work())
                ]
        assert "hung" in str(worker.problem)
        await ready.get()
        assert worker.pid != before
        assert await worker.engine.call(ToyEngine.pid, Work()) == worker.pid


async def test_a_child_is_pinged_while_it_is_busy_only() -> None:
    asked = asyncio.Queue[None]()

    class Noted(ProcessWorker):
        def post(self, request: Any) -> None:
            super().post(request)
            if isinstance(request, process_worker.Ping):
                asked.put_nowait(None)

    limits = {"QUIET_S": 0.01, "ANSWER_S": 2.0, "STOP_TIMEOUT_S": 0.1}
    async with toy(Noted, **limits) as (worker, ready):
        await asyncio.sleep(0.1)
        assert asked.empty()
        stream = worker.engine.stream(ToyEngine.block, Work())
        assert await anext(stream) == "busy"
        for _ in range(2):
            await asked.get()
        assert ready.empty()
        assert worker.problem is None
        await stream.aclose()


async def test_a_child_is_pinged_again_after_the_machine_slept() -> None:
    again = asyncio.Event()

    class Sleepy(ProcessWorker):
        asked = 0

        def post(self, request: Any) -> None:
            super().post(request)
            if isinstance(request, process_worker.Ping):
                self.asked += 1
                if self.asked == 1:
                    send(self, signal.SIGSTOP)
                    until = time.monotonic() + 0.6
                    while time.monotonic() < until:  # the loop sleeps as well
                        pass
                    send(self, signal.SIGCONT)
                else:
                    again.set()

    limits = {"QUIET_S": 0.05, "OWN_DELAY_S": 0.2, "ANSWER_S": 0.1, "STOP_TIMEOUT_S": 0.1}
    async with toy(Sleepy, **limits) as (worker, ready):
        stream = worker.engine.stream(ToyEngine.block, Work())
        assert await anext(stream) == "busy"
        async with asyncio.timeout(10):
            await again.wait()
        assert ready.empty()
        await stream.aclose()


async def test_a_thread_that_hangs_fails_its_work_and_may_come_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with toy(ThreadWorker, QUIET_S=0.05, LONGEST_THREAD_STEP_S=0.1) as (worker, _):
        for _ in range(2):  # the second fails at once
            with pytest.raises(EngineCrashed, match="hangs"):
                await worker.engine.call(ToyEngine.wait, Work())
        assert "hangs" in str(worker.problem)
        FREED.set()
        await worker.ready.wait()
        assert await worker.engine.call(ToyEngine.wait, Work()) == "done"
    assert "one of its steps does not end" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_thread_whose_host_fails_ends_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: EngineHost) -> None:
        raise MemoryError

    monkeypatch.setattr(EngineHost, "run", fail)
    async with asyncio.timeout(5):
        await ThreadWorker(spec(), Options(), None).run(lambda: None)


async def test_a_step_that_takes_too_long_ends_the_child() -> None:
    async with toy(ProcessWorker, LONGEST_STEP_S={Kind.TTS: 0.2}) as (worker, ready):
        with pytest.raises(EngineCrashed):
            await worker.engine.call(ToyEngine.wait, Work())
        await ready.get()
        assert await worker.engine.call(ToyEngine.echo, Work(), 2) == 2


# --- memory ------------------------------------------------------------------------------------


async def test_short_memory_fails_a_job_and_finally_the_child() -> None:
    async with toy(ProcessWorker) as (worker, ready):
        before = worker.pid
        for _ in range(2):
            with pytest.raises(EngineError, match="MemoryError: full"):
                await worker.engine.call(ToyEngine.fail, Work(), MemoryError("full"))
            assert await worker.engine.call(ToyEngine.pid, Work()) == before
        for _ in range(2):
            with pytest.raises(EngineError, match="MemoryError: full") as failed:
                await worker.engine.call(ToyEngine.fail, Work(), MemoryError("full"))
            assert not isinstance(failed.value, EngineCrashed)
        await ready.get()
        assert await worker.engine.call(ToyEngine.pid, Work()) != before


async def test_a_lost_device_ends_the_child_at_once() -> None:
    async with toy(ProcessWorker) as (worker, ready):
        error = RuntimeError("CUDA error: device-side assert triggered")
        failing = asyncio.create_task(worker.engine.call(ToyEngine.fail, Work(), error))
        waiting = asyncio.create_task(worker.engine.call(ToyEngine.pid, Work()))
        with pytest.raises(EngineError, match="device-side assert"):
            await failing
        with pytest.raises(EngineCrashed, match="has lost the GPU"):
            await waiting
        await ready.get()
        assert await worker.engine.call(ToyEngine.pid, Work()) == worker.pid


@pytest.mark.parametrize(
    ("error", "lost", "short"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB."), False, True),
        (MemoryError(), False, True),
        (RuntimeError("std::bad_alloc"), False, True),
        (RuntimeError("CUDA error: device-side assert triggered"), True, False),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), True, False),
        (RuntimeError("cudaErrorIllegalAddress"), True, False),
        (RuntimeError("CUDA error: unspecified launch failure"), True, False),
        (ValueError("bad text"), False, False),
    ],
)
def test_errors_are_classified_by_text_and_cause(error: Exception, lost: bool, short: bool) -> None:
    caused = EngineError("The voice failed")
    caused.__cause__ = error
    for each in (error, caused):
        assert (lost_its_device(each), is_out_of_memory(each)) == (lost, short)


# --- who ends with whom ------------------------------------------------------------------------


async def main_with_a_held_child() -> None:
    async with toy(ProcessWorker) as (worker, _):
        stream = worker.engine.stream(ToyEngine.hold_the_interpreter, Work())
        assert await anext(stream) == "busy"
        print(worker.pid, flush=True)  # noqa: T201
        await anext(stream)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can end a child with its parent")
async def test_a_child_in_native_code_does_not_outlive_a_killed_parent() -> None:
    code = f"import sys, asyncio; sys.path[:] = sys.argv[1:]; import {__name__} as m; "
    code += "asyncio.run(m.main_with_a_held_child())"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, *sys.path), stdout=PIPE, stderr=PIPE
    )
    assert process.stdout
    assert process.stderr
    pid = int(await process.stdout.readline())
    try:
        await process.stderr.readuntil(b"held\n")
        process.kill()
        # The child inherited this pipe: it closes only when both have ended.
        await process.stderr.read()
        await process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise


async def test_a_child_whose_parent_has_just_gone_ends_at_once() -> None:
    code = (
        "import sys; sys.path[:] = sys.argv[1:]\n"
        "import pipeline.workers.worker_child as w; w.main(0)"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, *sys.path), stdin=PIPE, stdout=PIPE
    )
    assert await process.wait() == 1
    await process.communicate()


@pytest.mark.parametrize("end", ["killed", "closed"])
async def test_programs_started_by_a_child_end_with_it(end: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = asyncio.create_task(asyncio.to_thread(pipe.read_bytes))
    async with toy(ProcessWorker) as (worker, ready):
        await worker.engine.call(ToyEngine.start_program, Work(), str(pipe))
        assert not reading.done()
        if end == "killed":
            send(worker, signal.SIGKILL)
            await ready.get()
            await reading  # it closes only when the program has ended
    await reading


# --- starting ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("builder", "limits", "why"),
    [
        (build_for_ever, {"START_QUIET_S": 0.5}, r"within .* did nothing"),
        (build_busily, {"START_QUIET_S": 0.25, "START_S": 0.5}, r"within \d s$"),
    ],
)
async def test_a_start_without_progress_or_end_is_given_up(
    builder: Any, limits: dict[str, float], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(tuning, name, value)
    with pytest.raises(EngineError, match=f"tts toy engine did not start {why}"):
        await ProcessWorker(spec(builder), Options(), None).run(lambda: None)


@pytest.mark.parametrize(
    ("before", "gets_on"),
    [
        ((10.0, 0.0, 5.0), False),
        ((9.0, 0.0, 5.0), True),
        ((10.0, -1.0, 5.0), True),
        ((10.0, 0.0, 6.0), True),
        ((9.9, -0.1, 5.1), False),
    ],
)
def test_progress_of_a_start(before: process_worker.Usage, gets_on: bool) -> None:
    assert process_worker._gets_on(before, (10.0, 0.0, 5.0), 60.0) is gets_on


async def test_a_start_with_progress_may_take_long(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with toy(ProcessWorker, builder=build_busily, START_QUIET_S=0.25):
        assert "still starting" in caplog.text


async def test_a_slow_start_names_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    worker = ProcessWorker(spec(), Options(), None)
    caplog.set_level("INFO")
    problems = []
    async with asyncio.TaskGroup() as group:
        ready: asyncio.Queue[None] = asyncio.Queue()
        group.create_task(worker.run(lambda: ready.put_nowait(None)))
        await asyncio.sleep(0)
        problems.append(worker.problem)
        await ready.get()
        send(worker, signal.SIGKILL)
        with pytest.raises(EngineCrashed):
            await worker.engine.call(ToyEngine.pid, Work())
        problems.append(worker.problem)
        await worker.back()
        assert worker.problem is None
        assert await worker.engine.call(ToyEngine.pid, Work()) == worker.pid
        worker.close()
    assert problems[0] == "is starting, for 0 s now"
    assert "it is restarting, for 0 s now" in str(problems[1])
    assert "SIGKILL" in caplog.text
    assert caplog.text.count("toy engine is ready after") == 2


# --- coming back -------------------------------------------------------------------------------


async def test_a_dead_child_fails_its_calls_and_is_replaced() -> None:
    async with toy(ProcessWorker) as (worker, ready):
        engine, first_pid = worker.engine, worker.pid
        opened = await engine.open(ToyEngine.open, Work())
        send(worker, signal.SIGKILL)
        await ready.get()
        assert worker.pid != first_pid
        assert not opened.alive
        with pytest.raises(EngineCrashed):
            await opened.call(Opened.add, Work(), 1)
        assert await engine.call(ToyEngine.echo, Work(), 1) == 1


async def test_callers_do_not_wait_for_a_slow_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuning, "HOPELESS_S", 0.0)
    async with toy(ProcessWorker) as (worker, _):
        send(worker, signal.SIGKILL)
        with pytest.raises(EngineCrashed):
            await worker.engine.call(ToyEngine.pid, Work())
        await worker.back()
        assert worker.problem


async def test_reading_ahead_waits_for_an_engine_until_it_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuning, "HOPELESS_S", 0.0)
    async with toy(ProcessWorker, Kind.LLM) as (worker, _):
        conversation = llm_stage(worker).open()
        send(worker, signal.SIGKILL)
        with pytest.raises(EngineCrashed):
            await worker.engine.call(ToyEngine.pid, Work())
        works = [Work(Priority.WARM_UP), Work(Priority.WARM_UP)]
        reading = [asyncio.create_task(conversation.warm(LlmRequest(()), work)) for work in works]
        await asyncio.sleep(0)
        works[0].cancel()
        with pytest.raises(Cancelled):
            await reading[0]
        assert worker.problem
        assert await reading[1] == Warmed(Usage(3, 0, 3))
        conversation.close()


async def test_a_window_lost_with_its_stream_is_scored_by_the_next() -> None:
    worker = ProcessWorker(spec(kind=Kind.VAD), Options(), None)
    window = np.zeros(512, np.int16)
    async with running(worker):
        stream = await vad_stage(worker).open(Work())
        assert [await stream.score(window) for _ in range(3)] == [1.0, 2.0, 3.0]
        send(worker, signal.SIGSTOP)
        scoring = asyncio.create_task(stream.score(window))
        await asyncio.sleep(0)
        send(worker, signal.SIGKILL)
        assert await scoring == 1.0
        assert await stream.score(window) == 2.0
        stream.close()
