"""Workers with real threads and real child processes, and small engines written for the test."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.engines.contract import EngineInfo
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.errors import EngineCrashed, EngineError, WeightsError
from pipeline.work import Cancelled, CancelToken, Priority, Work
from pipeline.workers.host import STREAM_CREDIT, Answer, Cancel, Done, EngineHost, Item, Submit
from pipeline.workers.placements import InlineWorker, ThreadWorker
from pipeline.workers.process_worker import ProcessWorker
from pipeline.workers.worker import Remote, Worker


class Counter:
    """Something that is opened on an engine and has state."""

    def __init__(self, log: list[str]) -> None:
        self.count = 0
        self._log = log

    def add(self, n: int) -> int:
        self.count += n
        return self.count

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
    rate = 16_000
    voices = ("a", "b")

    def __init__(self) -> None:
        self.log: list[str] = []
        self.never = threading.Event()

    def echo(self, value: Any) -> Any:
        return value

    def fail(self) -> None:
        raise ValueError("boom")

    def fail_clearly(self) -> None:
        raise EngineError("It broke", fix="Mend it")

    def open(self) -> Counter:
        return Counter(self.log)

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
        """Says that it holds the engine, then blocks until it is cancelled or preempted."""
        yield "holding"
        while not cancel.cancelled:
            if cancel.preempted:
                yield "preempted"
                return
            self.never.wait(0.001)
        raise Cancelled

    def slices(self, n: int, name: str, cancel: CancelToken) -> Iterator[str | None]:
        for i in range(n):
            self.log.append(f"{name}{i}")
            yield None
        yield name

    def hang(self) -> None:
        time.sleep(60)

    def die(self) -> None:
        os._exit(3)


class Options(EngineOptions):
    engine: str = "toy"


def build(options: Options, weights: Path | None) -> ToyEngine:
    return ToyEngine()


def build_mute(options: Options, weights: Path | None) -> object:
    """A voice without voices."""
    return object()


def build_nothing(options: Options, weights: Path | None) -> ToyEngine:
    raise WeightsError("The weights are damaged", fix="Pull them again")


def build_crash(options: Options, weights: Path | None) -> ToyEngine:
    os._exit(1)


def spec(builder: Any = build) -> EngineSpec:
    return EngineSpec("toy", Kind.TTS, Options, builder)


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[Remote]:
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run(ready.set))
        await ready.wait()
        try:
            yield worker.engine
        finally:
            worker.close()


@asynccontextmanager
async def held(engine: Remote, work: Work) -> AsyncIterator[AsyncGenerator[Any, None]]:
    """The engine is busy with ``work`` until something more urgent comes."""
    async with aclosing(engine.stream("hold", work=work)) as stream:
        assert await anext(stream) == "holding"
        yield stream


KINDS = [InlineWorker, ThreadWorker, ProcessWorker]
SEPARATE = [ThreadWorker, ProcessWorker]


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_streams_and_objects(kind: type[Worker]) -> None:
    worker = kind(spec(), Options(), None)
    assert worker.problem
    async with running(worker) as engine:
        assert worker.problem is None
        assert worker.info == EngineInfo(rate=16_000, voices=("a", "b"))
        assert await engine.call("echo", {"x": [1, 2]}, work=Work()) == {"x": [1, 2]}
        items = [item async for item in engine.stream("count", 100, "s", work=Work())]
        assert items == list(range(100))
        counter = await engine.open("open", work=Work())
        assert await counter.call("add", 2, work=Work()) == 2
        assert await counter.call("add", 3, work=Work()) == 5
        counter.close()
        assert "closed" in await engine.call("read_log", work=Work())
        with pytest.raises(EngineError, match="no longer"):
            await counter.call("add", 1, work=Work())
    assert worker.problem == "is closed"


@pytest.mark.parametrize("kind", KINDS)
async def test_errors_arrive_as_errors_that_a_person_can_read(kind: type[Worker]) -> None:
    async with running(kind(spec(), Options(), None)) as engine:
        with pytest.raises(EngineError, match="ValueError: boom"):
            await engine.call("fail", work=Work())
        with pytest.raises(EngineError, match=r"It broke\. Mend it"):
            await engine.call("fail_clearly", work=Work())
        assert await engine.call("echo", 1, work=Work()) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failing_build_is_the_workers_failure(kind: type[Worker]) -> None:
    worker = kind(spec(build_nothing), Options(), None)
    with pytest.raises(WeightsError, match="Pull them again"):
        await worker.run(lambda: None)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_engine_that_does_not_say_what_it_can_do_is_not_built(kind: type[Worker]) -> None:
    worker = kind(spec(build_mute), Options(), None)
    with pytest.raises(EngineError, match=r"could not be built.*no attribute 'rate'"):
        await worker.run(lambda: None)


@pytest.mark.parametrize("kind", SEPARATE)
async def test_cancelled_work_stops_a_running_call(kind: type[Worker]) -> None:
    async with running(kind(spec(), Options(), None)) as engine:
        work = Work()
        async with held(engine, work) as stream:
            work.cancel()
            with pytest.raises(Cancelled):
                await anext(stream)
        assert work.engine_seconds > 0
        assert await engine.call("echo", 1, work=Work()) == 1


@pytest.mark.parametrize("kind", SEPARATE)
async def test_leaving_a_stream_closes_its_generator(kind: type[Worker]) -> None:
    async with running(kind(spec(), Options(), None)) as engine:
        async with aclosing(engine.stream("count", 1000, "s", work=Work())) as stream:
            async for item in stream:
                if item == 2:
                    break
        log = await engine.call("read_log", work=Work())
        assert log[-1] == "s ended"
        # The reader took 3 items; no more than the credit was made beyond them.
        assert len(log) <= 3 + STREAM_CREDIT + 1


@pytest.mark.parametrize("kind", SEPARATE)
async def test_urgent_work_preempts_a_running_slice(kind: type[Worker]) -> None:
    async with (
        running(kind(spec(), Options(), None)) as engine,
        held(engine, Work(Priority.WARM_UP)) as stream,
    ):
        preempted = asyncio.create_task(anext(stream))
        # The first call may come between two steps, where there is nothing to preempt.
        while not preempted.done():
            assert await engine.call("echo", "urgent", work=Work()) == "urgent"
        assert preempted.result() == "preempted"


@pytest.mark.parametrize("kind", SEPARATE)
async def test_promoted_work_overtakes(kind: type[Worker]) -> None:
    async def consume(name: str, work: Work) -> None:
        assert [item async for item in engine.stream("slices", 3, name, work=work)] == [name]

    promoted = Work(Priority.WARM_UP)
    async with running(kind(spec(), Options(), None)) as engine:
        async with asyncio.TaskGroup() as group, held(engine, Work(Priority.SPECULATIVE)):
            group.create_task(consume("speculative", Work(Priority.SPECULATIVE)))
            group.create_task(consume("promoted", promoted))
            await asyncio.sleep(0)
            promoted.promote(Priority.CONFIRMED)
        log = [entry[:-1] for entry in await engine.call("read_log", work=Work())]
        assert log == ["promoted"] * 3 + ["speculative"] * 3


@pytest.mark.parametrize("kind", SEPARATE)
async def test_equals_take_turns(kind: type[Worker]) -> None:
    async def consume(name: str) -> None:
        assert [item async for item in engine.stream("slices", 4, name, work=Work())] == [name]

    async with running(kind(spec(), Options(), None)) as engine:
        holder = Work(Priority.CONFIRMED)
        async with asyncio.TaskGroup() as group, held(engine, holder):
            group.create_task(consume("a"))
            group.create_task(consume("b"))
            await asyncio.sleep(0)
            holder.cancel()
        log = [entry[:-1] for entry in await engine.call("read_log", work=Work())]
        assert log == ["a", "b"] * 4


async def test_closing_a_worker_ends_what_waits() -> None:
    worker = ThreadWorker(spec(), Options(), None)
    async with running(worker) as engine, held(engine, Work()) as stream:
        worker.close()
        with pytest.raises(Cancelled):
            await anext(stream)
    assert not any(thread.name == worker.name for thread in threading.enumerate())


async def test_a_child_is_another_process_and_its_prints_do_not_disturb() -> None:
    async with running(ProcessWorker(spec(), Options(), None)) as engine:
        assert await engine.call("pid", work=Work()) != os.getpid()
        assert await engine.call("print_something", work=Work()) == "quiet"


async def test_a_dead_child_fails_its_calls_and_is_replaced() -> None:
    worker = ProcessWorker(spec(), Options(), None)
    ready: asyncio.Queue[None] = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run(lambda: ready.put_nowait(None)))
        await ready.get()
        engine, first_pid = worker.engine, worker.pid
        counter = await engine.open("open", work=Work())
        assert first_pid
        os.kill(first_pid, signal.SIGKILL)
        await ready.get()
        assert worker.pid != first_pid
        assert not counter.alive
        with pytest.raises(EngineCrashed):
            await counter.call("add", 1, work=Work())
        assert await engine.call("echo", 1, work=Work()) == 1
        with pytest.raises(EngineCrashed):
            await engine.call("die", work=Work())
        await ready.get()
        assert await engine.call("echo", 2, work=Work()) == 2
        worker.close()


async def test_a_hanging_child_is_ended_and_replaced() -> None:
    worker = ProcessWorker(spec(), Options(), None, hang_timeout_s=0.2)
    ready: asyncio.Queue[None] = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run(lambda: ready.put_nowait(None)))
        await ready.get()
        with pytest.raises(EngineCrashed):
            await worker.engine.call("hang", work=Work())
        await ready.get()
        assert await worker.engine.call("echo", 2, work=Work()) == 2
        worker.close()


async def test_a_child_that_cannot_start_says_so() -> None:
    worker = ProcessWorker(spec(build_crash), Options(), None)
    with pytest.raises(EngineError, match="ended while it was starting"):
        await worker.run(lambda: None)


async def test_no_child_outlives_the_worker() -> None:
    worker = ProcessWorker(spec(), Options(), None)
    async with running(worker):
        pid = worker.pid
        assert pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("n", [3, 1000])
def test_any_iterator_is_a_stream_and_is_closed_when_it_ends(n: int) -> None:
    answers: list[Answer] = []
    engine = ToyEngine()
    host = EngineHost(engine, answers.append)
    host.receive(Submit(1, 0, "countdown", (n,), 0, cancellable=True))
    host.run_until_idle()
    items = [answer.value for answer in answers if isinstance(answer, Item)]
    assert items == list(reversed(range(n)))[:STREAM_CREDIT]
    host.receive(Cancel(1))
    host.run_until_idle()
    assert engine.log == ["closed"]
    assert isinstance(answers[-1], Done)
