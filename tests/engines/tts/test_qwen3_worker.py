"""Qwen3-TTS where it is meant to run: in a separate process, which may die."""

from __future__ import annotations

import os
import signal
from contextlib import aclosing
from typing import Any

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
from pipeline.workers.stages import tts_stage
from tests.support.tiny_qwen import TEXT, needs_qwen, options
from tests.support.toy_engine import running

pytestmark = [
    pytest.mark.engines,
    pytest.mark.qwen,
    needs_qwen,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(1200),
]


async def say(tts: Any) -> Pcm:
    async with aclosing(tts.synthesize(SpeechRequest(TEXT), Work())) as chunks:
        return np.concatenate([chunk async for chunk in chunks])


async def test_it_speaks_stops_and_restarts_after_a_kill() -> None:
    """One test, since the child takes half a minute to start on a busy machine."""
    worker = worker_for(SPEC, options(seed=4), None)
    assert isinstance(worker, ProcessWorker)
    async with running(worker) as ready:
        tts = tts_stage(worker)
        assert (tts.rate, list(tts.voices)) == (24_000, ["aiden", "ryan", "serena"])
        whole = await say(tts)
        assert len(whole) % FRAME_SAMPLES == 0

        work = Work()
        async with aclosing(tts.synthesize(SpeechRequest(TEXT), work)) as chunks:
            assert len(await anext(chunks)) == FRAME_SAMPLES
            work.cancel()
            with pytest.raises(Cancelled):
                [chunk async for chunk in chunks]
        assert np.array_equal(await say(tts), whole)

        async with aclosing(tts.synthesize(SpeechRequest(TEXT), Work())) as chunks:
            await anext(chunks)
            assert worker.pid
            os.kill(worker.pid, signal.SIGKILL)
            with pytest.raises(EngineCrashed):
                [chunk async for chunk in chunks]
        await ready.get()
        assert np.array_equal(await say(tts), whole)
