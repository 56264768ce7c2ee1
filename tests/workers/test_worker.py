"""Workers with real threads and real child processes: calls, streams, priorities."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from pipeline.engines.contract import EngineInfo
from pipeline.engines.registry import Kind
from pipeline.errors import EngineError, WeightsError
from pipeline.messages import LlmRequest
from pipeline.work import Cancelled, Priority, Work
from pipeline.workers.host import Answer, Cancel, Drop, EngineHost, Item, JobEnd, Request, Submit
from pipeline.workers.placements import InlineWorker, ThreadWorker
from pipeline.workers.process_worker import ProcessWorker
from pipeline.workers.stages import llm_stage, stt_stage, tts_stage, turn_stage, vad_stage
from pipeline.workers.tuning import STREAM_CREDIT
from pipeline.workers.worker import RemoteObject, Worker
from reachy_voice.testing import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedTurn
from tests.support.toy_engine import (
    Opened,
    Options,
    ToyEngine,
    build_broken,
    build_crash,
    build_mute,
    build_nothing,
    running,
    spec,
    toy,
)

pytestmark = pytest.mark.machine


@asynccontextmanager
async def held(engine: RemoteObject, work: Work) -> AsyncIterator[AsyncGenerator[Any, None]]:
    """Keep the engine busy with ``work`` until more urgent work comes."""
    async with aclosing(engine.stream(ToyEngine.hold, work)) as stream:
        assert await anext(stream) == "holding"
        yield stream


KINDS = [InlineWorker, ThreadWorker, ProcessWorker]
SEPARATE = [ThreadWorker, ProcessWorker]


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_streams_and_objects(kind: type[Worker]) -> None:
    worker = kind(spec(), Options(), None)
    assert worker.problem
    async with running(worker):
        engine = worker.engine
        assert worker.problem is None
        assert worker.info == EngineInfo(rate=16_000, voices=("a", "b"))
        assert await engine.call(ToyEngine.echo, Work(), {"x": [1, 2]}) == {"x": [1, 2]}
        items = [item async for item in engine.stream(ToyEngine.count, Work(), 100, "s")]
        assert items == list(range(100))
        counter = await engine.open(ToyEngine.open, Work())
        assert await counter.call(Opened.add, Work(), 2) == 2
        assert await counter.call(Opened.add, Work(), 3) == 5
        counter.close()
        assert "closed" in await engine.call(ToyEngine.read_log, Work())
        with pytest.raises(EngineError, match="no longer"):
            await counter.call(Opened.add, Work(), 1)
    assert worker.problem == "is closed"


@pytest.mark.parametrize("kind", KINDS)
async def test_errors_arrive_in_readable_form(kind: type[Worker]) -> None:
    async with toy(kind) as (worker, _):
        engine = worker.engine
        with pytest.raises(EngineError, match="ValueError: boom"):
            await engine.call(ToyEngine.fail, Work(), ValueError("boom"))
        with pytest.raises(EngineError, match=r"It broke\. Mend it"):
            await engine.call(ToyEngine.fail, Work(), EngineError("It broke", fix="Mend it"))
        assert await engine.call(ToyEngine.echo, Work(), 1) == 1


@pytest.mark.parametrize(
    ("build", "error", "says"),
    [
        (build_nothing, WeightsError, "Pull them again"),
        (build_mute, EngineError, r"could not be built.*no attribute 'rate'"),
        (build_broken, EngineError, r"tts toy engine could not be built: OSError: libllama"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_failing_build_is_the_workers_failure(
    kind: type[Worker], build: Any, error: type[EngineError], says: str
) -> None:
    with pytest.raises(error, match=says):
        await kind(spec(build), Options(), None).run(lambda: None)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (build_crash, "ended while it was starting"),
        (lambda options, weights: None, "cannot be sent to a process"),
    ],
)
async def test_a_child_that_cannot_start_says_why(build: Any, says: str) -> None:
    with pytest.raises(EngineError, match=says):
        await ProcessWorker(spec(build), Options(), None).run(lambda: None)


@pytest.mark.parametrize("kind", SEPARATE)
async def test_cancelled_work_stops_a_running_call(kind: type[Worker]) -> None:
    async with toy(kind) as (worker, _):
        engine = worker.engine
        work = Work()
        async with held(engine, work) as stream:
            work.cancel()
            with pytest.raises(Cancelled):
                await anext(stream)
        assert work.engine_seconds > 0
        assert await engine.call(ToyEngine.echo, Work(), 1) == 1


@pytest.mark.parametrize("kind", SEPARATE)
async def test_leaving_a_stream_closes_its_generator(kind: type[Worker]) -> None:
    async with toy(kind) as (worker, _):
        engine = worker.engine
        async with aclosing(engine.stream(ToyEngine.count, Work(), 1000, "s")) as stream:
            async for item in stream:
                if item == 2:
                    break
        log = await engine.call(ToyEngine.read_log, Work())
        assert log[-1] == "s ended"
        # The reader took 3 items; at most the credit was made beyond them.
        assert len(log) <= 3 + STREAM_CREDIT + 1


@pytest.mark.parametrize("kind", SEPARATE)
async def test_urgent_work_preempts_a_running_slice(kind: type[Worker]) -> None:
    async with toy(kind) as (worker, _), held(worker.engine, Work(Priority.WARM_UP)) as stream:
        engine = worker.engine
        preempted = asyncio.create_task(anext(stream))
        # The first call may fall between two steps, where nothing can be preempted.
        while not preempted.done():
            assert await engine.call(ToyEngine.echo, Work(), "urgent") == "urgent"
        assert preempted.result() == "preempted"


@pytest.mark.parametrize("kind", SEPARATE)
async def test_promoted_work_overtakes(kind: type[Worker]) -> None:
    async def consume(name: str, work: Work) -> None:
        assert [item async for item in engine.stream(ToyEngine.slices, work, 3, name)] == [name]

    promoted = Work(Priority.WARM_UP)
    async with toy(kind) as (worker, _):
        engine = worker.engine
        async with asyncio.TaskGroup() as group, held(engine, Work(Priority.SPECULATIVE)):
            group.create_task(consume("speculative", Work(Priority.SPECULATIVE)))
            group.create_task(consume("promoted", promoted))
            await asyncio.sleep(0)
            promoted.promote(Priority.CONFIRMED)
        log = [entry[:-1] for entry in await engine.call(ToyEngine.read_log, Work())]
        assert log == ["promoted"] * 3 + ["speculative"] * 3


@pytest.mark.parametrize("kind", SEPARATE)
async def test_equals_take_turns(kind: type[Worker]) -> None:
    async def consume(name: str) -> None:
        assert [item async for item in engine.stream(ToyEngine.slices, Work(), 4, name)] == [name]

    async with toy(kind) as (worker, _):
        engine = worker.engine
        holder = Work(Priority.CONFIRMED)
        async with asyncio.TaskGroup() as group, held(engine, holder):
            group.create_task(consume("a"))
            group.create_task(consume("b"))
            await asyncio.sleep(0)
            holder.cancel()
        log = [entry[:-1] for entry in await engine.call(ToyEngine.read_log, Work())]
        assert log == ["a", "b"] * 4


async def test_a_child_is_a_separate_process_whose_prints_are_harmless() -> None:
    async with toy(ProcessWorker) as (worker, _):
        engine = worker.engine
        assert await engine.call(ToyEngine.pid, Work()) != os.getpid()
        assert await engine.call(ToyEngine.print_something, Work()) == "quiet"


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
    assert isinstance(answers[-1], JobEnd)


# --- what is opened ----------------------------------------------------------------------------


async def test_two_first_uses_of_a_conversation_share_one_object() -> None:
    async with toy(ThreadWorker, Kind.LLM) as (worker, _):
        conversation = llm_stage(worker).open()
        await asyncio.gather(*(conversation.warm(LlmRequest(()), Work()) for _ in range(2)))
        conversation.close()
        assert await worker.engine.call(ToyEngine.read_log, Work()) == ["opened", "closed"]


async def test_a_conversation_closed_while_it_opens_leaves_nothing_open() -> None:
    async with toy(ThreadWorker, Kind.LLM) as (worker, _):
        conversation = llm_stage(worker).open()
        opening = asyncio.create_task(conversation.warm(LlmRequest(()), Work()))
        await asyncio.sleep(0)
        conversation.close()
        with pytest.raises(Cancelled):
            await opening
        assert await worker.engine.call(ToyEngine.read_log, Work()) == ["opened", "closed"]


class Mailbox(Worker):
    """A worker that only records its requests."""

    def __init__(self) -> None:
        super().__init__(spec(), Options(), None)
        self.problem = None
        self.requests: list[Request] = []

    def post(self, request: Request) -> None:
        self.requests.append(request)


async def test_an_abandoned_opening_is_cancelled_before_it_is_dropped() -> None:
    worker = Mailbox()
    opening = asyncio.create_task(worker.engine.open(ToyEngine.open, Work()))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert [type(request) for request in worker.requests] == [Submit, Cancel, Drop]


def test_objects_opened_by_a_cancelled_job_are_closed() -> None:
    class Interrupted(ToyEngine):
        def open(self) -> Opened:
            host.receive(Cancel(1))
            return super().open()

    answers: list[Answer] = []
    engine = Interrupted()
    host = EngineHost(engine, answers.append)
    host.receive(Submit(1, 0, "open", (), 0, cancellable=False, keep_as=1))
    host.run_until_idle()
    assert engine.log == ["opened", "closed"]
    assert isinstance(answers[0], JobEnd)
    assert isinstance(answers[0].error, Cancelled)


@pytest.mark.parametrize(
    ("stage_of", "engine"),
    [
        (vad_stage, ScriptedTts()),
        (turn_stage, ScriptedTts()),
        (stt_stage, ScriptedLlm()),
        (llm_stage, ScriptedStt()),
        (tts_stage, ScriptedTurn()),
    ],
)
def test_an_engine_of_another_kind_is_an_error(
    stage_of: Callable[[Any], object], engine: Any
) -> None:
    engine.name = "far"
    with pytest.raises(EngineError, match=r"far engine.*lacks what sessions call.*engines\.md"):
        stage_of(engine)
