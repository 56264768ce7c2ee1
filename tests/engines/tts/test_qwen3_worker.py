"""Qwen3-TTS where it is meant to run: in a process of its own, which may die."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.engines.tts.qwen3_codes import FRAME_SAMPLES
from pipeline.engines.tts.qwen3_tts import SPEC
from pipeline.errors import EngineCrashed
from pipeline.messages import SpeechRequest
from pipeline.work import Cancelled, Work
from pipeline.workers.placements import worker_for
from pipeline.workers.process_worker import ProcessWorker
from tests.support.tiny_qwen import TEXT, needs_qwen, options

pytestmark = [
    pytest.mark.qwen,
    needs_qwen,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(1200),
]


class Running:
    """A worker with the tiny model."""

    def __init__(self) -> None:
        worker = worker_for(SPEC, options(seed=4), None)
        assert isinstance(worker, ProcessWorker)
        self.worker = worker
        self.tts = worker.stage
        self.ready: asyncio.Queue[None] = asyncio.Queue()

    async def say(self, work: Work) -> Pcm:
        async with aclosing(self.tts.synthesize(SpeechRequest(TEXT), work)) as chunks:
            return np.concatenate([chunk async for chunk in chunks])


@asynccontextmanager
async def running() -> AsyncIterator[Running]:
    it = Running()
    async with asyncio.TaskGroup() as group:
        group.create_task(it.worker.run(lambda: it.ready.put_nowait(None)))
        await it.ready.get()
        try:
            yield it
        finally:
            it.worker.close()


async def test_it_speaks_stops_and_comes_back_each_time_it_is_killed() -> None:
    """One test, for the child takes half a minute to start on a busy machine."""
    async with running() as it:
        assert it.tts.rate == 24_000
        assert list(it.tts.voices) == ["aiden", "ryan", "serena"]
        whole = await it.say(Work())
        assert len(whole) % FRAME_SAMPLES == 0

        await a_clause_that_is_cancelled(it)
        assert np.array_equal(await it.say(Work()), whole)
        for _ in range(3):
            await a_death_in_the_middle_of_a_clause(it)
            assert np.array_equal(await it.say(Work()), whole)
        pid = it.worker.pid
        assert pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def a_clause_that_is_cancelled(it: Running) -> None:
    work = Work()
    async with aclosing(it.tts.synthesize(SpeechRequest(TEXT), work)) as chunks:
        assert len(await anext(chunks)) == FRAME_SAMPLES
        work.cancel()
        with pytest.raises(Cancelled):
            async for _ in chunks:
                pass


async def a_death_in_the_middle_of_a_clause(it: Running) -> None:
    before = it.worker.pid
    assert before
    async with aclosing(it.tts.synthesize(SpeechRequest(TEXT), Work())) as chunks:
        await anext(chunks)
        os.kill(before, signal.SIGKILL)
        with pytest.raises(EngineCrashed):
            async for _ in chunks:
                pass
    await it.ready.get()
    assert it.worker.pid != before
