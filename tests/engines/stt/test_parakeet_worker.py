"""Parakeet where it is meant to run: in a process of its own, which may die."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from pipeline.engines.stt.parakeet import SPEC
from pipeline.errors import EngineCrashed
from pipeline.work import Cancelled, Work
from pipeline.workers.placements import worker_for
from pipeline.workers.process_worker import ProcessWorker
from tests.support.tiny_parakeet import needs_nemo, options, say, talk

pytestmark = [pytest.mark.nemo, needs_nemo, pytest.mark.timeout(1200)]


class Running:
    """A worker with the tiny model."""

    def __init__(self) -> None:
        worker = worker_for(SPEC, options(), None)
        assert isinstance(worker, ProcessWorker)
        self.worker = worker
        self.stt = worker.stage
        self.ready: asyncio.Queue[None] = asyncio.Queue()

    def signal(self, number: signal.Signals) -> None:
        assert self.worker.pid
        os.kill(self.worker.pid, number)


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


async def hear(stt: Any, phrase: str, client: int = 0) -> tuple[str, list[str]]:
    """The final text of a phrase in 32 ms pieces, and the partial texts that came with them."""
    pcm, _ = talk(phrase)
    work = Work()
    work.client = client
    utterance = await stt.open("en", True, work)
    pieces = np.split(pcm, range(512, len(pcm), 512))
    seen = [(await utterance.feed(piece, work)).text for piece in pieces]
    transcript = await utterance.finish(work)
    utterance.close()
    return transcript.text, [text for text in seen if text]


async def test_it_hears_two_at_once_and_comes_back_each_time_it_is_killed() -> None:
    """One test, for the child takes half a minute to start on a busy machine."""
    async with running() as it:
        assert it.stt.streams
        phrases = ["Turn your head to the left.", "How many days are there in a week?"]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(hear(it.stt, phrase, client))
                for client, phrase in enumerate(phrases)
            ]
        for phrase, task in zip(phrases, tasks, strict=True):
            text, seen = task.result()
            assert text == phrase
            assert seen[-1] == phrase

        await a_call_that_is_cancelled(it)
        for _ in range(3):
            await a_death_in_the_middle_of_an_utterance(it)
            assert (await hear(it.stt, "Go forward ten meters."))[0] == "Go forward ten meters."
        pid = it.worker.pid
        assert pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def error_of(call: Awaitable[object]) -> Exception | None:
    try:
        await call
    except Exception as error:
        return error
    return None


async def a_call_that_is_cancelled(it: Running) -> None:
    utterance = await it.stt.open("en", False, Work())
    await utterance.feed(say("Stop, please."), Work())
    work = Work()
    # Stopped, so that the child has not answered when the call is cancelled.
    it.signal(signal.SIGSTOP)
    try:
        async with asyncio.TaskGroup() as group:
            finishing = group.create_task(error_of(utterance.finish(work)))
            await asyncio.sleep(0)
            work.cancel()
            it.signal(signal.SIGCONT)
    finally:
        it.signal(signal.SIGCONT)
    assert isinstance(finishing.result(), Cancelled)
    assert (await utterance.finish(Work())).text == "Stop, please."
    utterance.close()


async def a_death_in_the_middle_of_an_utterance(it: Running) -> None:
    before = it.worker.pid
    utterance = await it.stt.open("en", True, Work())
    await utterance.feed(say("Tell me a short story."), Work())
    it.signal(signal.SIGSTOP)
    async with asyncio.TaskGroup() as group:
        finishing = group.create_task(error_of(utterance.finish(Work())))
        await asyncio.sleep(0)
        it.signal(signal.SIGKILL)
    assert isinstance(finishing.result(), EngineCrashed)
    await it.ready.get()
    assert it.worker.pid != before
    with pytest.raises(EngineCrashed):
        await utterance.finish(Work())
    utterance.close()
