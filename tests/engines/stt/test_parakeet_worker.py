"""Parakeet where it is meant to run: in a separate process, which may die."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import numpy as np
import pytest

from pipeline.engines.stt.parakeet import SPEC
from pipeline.errors import EngineCrashed
from pipeline.work import Work
from pipeline.workers.placements import worker_for
from pipeline.workers.process_worker import ProcessWorker
from pipeline.workers.stages import stt_stage
from tests.support.tiny_parakeet import needs_nemo, options, say, talk
from tests.support.toy_engine import running

pytestmark = [pytest.mark.engines, pytest.mark.nemo, needs_nemo, pytest.mark.timeout(1200)]


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


async def test_it_recognises_two_streams_and_restarts_after_a_kill() -> None:
    """One test, since the child takes half a minute to start on a busy machine."""
    worker = worker_for(SPEC, options(), None)
    assert isinstance(worker, ProcessWorker)
    async with running(worker) as ready:
        assert stt_stage(worker).streams
        phrases = ["Turn your head to the left.", "How many days are there in a week?"]
        heard = await asyncio.gather(
            *(hear(stt_stage(worker), phrase, client) for client, phrase in enumerate(phrases))
        )
        for phrase, (text, seen) in zip(phrases, heard, strict=True):
            assert text == phrase
            assert seen[-1] == phrase

        utterance = await stt_stage(worker).open("en", True, Work())
        await utterance.feed(say("Tell me a short story."), Work())
        before = worker.pid
        assert before
        os.kill(before, signal.SIGSTOP)
        finishing = asyncio.create_task(utterance.finish(Work()))
        await asyncio.sleep(0)
        os.kill(before, signal.SIGKILL)
        with pytest.raises(EngineCrashed):
            await finishing
        await ready.get()
        with pytest.raises(EngineCrashed):
            await utterance.finish(Work())
        text, *_ = await hear(stt_stage(worker), "Go forward ten meters.")
        assert text == "Go forward ten meters."
