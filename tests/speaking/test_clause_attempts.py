"""The number of an attempt, passed from the reply to the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.events import ClauseFault
from pipeline.messages import SpeechRequest
from pipeline.settings import SessionSettings
from pipeline.work import CancelToken, Work
from pipeline.workers.placements import InlineWorker, ThreadWorker
from pipeline.workers.process_worker import ProcessWorker
from pipeline.workers.stages import tts_stage
from pipeline.workers.worker import Worker
from tests.server.test_metrics import observed
from tests.support.toy_engine import running

pytestmark = pytest.mark.engines

SETTINGS = SessionSettings(watched=True, apology="Sorry.")


class Seeded:
    """A voice whose samples are the take's number."""

    rate = 16_000
    voices = ("joe",)
    languages: Sequence[str] = ()

    def synthesize(self, request: SpeechRequest, cancel: CancelToken) -> Iterator[Pcm | None]:
        assert not cancel.cancelled
        yield np.full(10, request.take, np.int16)


def build_seeded(options: EngineOptions, weights: Path | None) -> Seeded:
    return Seeded()


@pytest.mark.parametrize("kind", [InlineWorker, ThreadWorker, ProcessWorker])
async def test_the_engine_gets_the_number_of_the_take(kind: type[Worker]) -> None:
    spec = EngineSpec("seeded", Kind.TTS, EngineOptions, build_seeded)
    worker = kind(spec, EngineOptions(engine="seeded"), None)
    tts, found = tts_stage(worker), []
    async with running(worker):
        for take in (0, 1):
            async for pcm in tts.synthesize(SpeechRequest("Hi.", take=take), Work()):
                found.append(int(pcm[0]))
    assert found == [0, 1]


async def test_faults_are_counted() -> None:
    again = ClauseFault("resp_1", "silence", 0, False)
    metrics = await observed(again, again, ClauseFault("resp_1", "runaway", 1, True))
    assert metrics("clause_faults_total", fault="silence", left_out="no") == 2
    assert metrics("clause_faults_total", fault="runaway", left_out="yes") == 1
