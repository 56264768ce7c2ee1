"""Which attempt it is, on its way from the reply to the engine, into a recording, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.commands import AddItem, CreateResponse
from pipeline.engines.registry import EngineOptions, EngineSpec, Kind
from pipeline.events import ClauseFault
from pipeline.items import MessageItem, TextPart
from pipeline.messages import SpeechRequest
from pipeline.recording.difference import compare
from pipeline.recording.plain import key_of, spoken_key
from pipeline.recording.replay import replay
from pipeline.recording.tape import Tape
from pipeline.speaking.replies import SessionSettings
from pipeline.work import CancelToken, Work
from pipeline.workers.process_worker import ProcessWorker
from pipeline.workers.remote_stages import RemoteTts
from pipeline.workers.worker import InlineWorker, ThreadWorker, Worker
from tests.server.test_metrics import observed
from tests.support.moody_voice import MoodyTts
from tests.support.recorded_scene import VOICE, recorded, recorded_scene
from tests.support.scripted import ScriptedLlm

SETTINGS = SessionSettings(watched=True, apology="Sorry.")


class Seeded:
    """Its sound is the number of the take."""

    rate = 16_000
    voices = ("joe",)

    def synthesize(self, request: SpeechRequest, cancel: CancelToken) -> Iterator[Pcm | None]:
        assert not cancel.cancelled
        yield np.full(10, request.take, np.int16)


class Seedless:
    """Its sound is the same each time."""

    rate = 16_000
    voices = ("joe",)

    def synthesize(self, request: SpeechRequest, cancel: CancelToken) -> Iterator[Pcm | None]:
        yield np.full(10, 7, np.int16)


def build_seeded(options: EngineOptions, weights: Path | None) -> Seeded:
    return Seeded()


def build_seedless(options: EngineOptions, weights: Path | None) -> Seedless:
    return Seedless()


async def sounds(kind: type[Worker], build: Any, *takes: int) -> list[int]:
    """The first sample of what the engine makes at each take."""
    spec = EngineSpec("seeded", Kind.TTS, EngineOptions, build)
    worker = kind(spec, EngineOptions(engine="seeded"), None)
    tts, ready, found = RemoteTts(worker), asyncio.Event(), []
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run(ready.set))
        await ready.wait()
        try:
            for take in takes:
                async for pcm in tts.synthesize(SpeechRequest("Hi.", take=take), Work()):
                    found.append(int(pcm[0]))
        finally:
            worker.close()
    return found


@pytest.mark.parametrize("kind", [InlineWorker, ThreadWorker, ProcessWorker])
async def test_an_engine_is_told_which_take_it_is(kind: type[Worker]) -> None:
    assert await sounds(kind, build_seeded, 0, 1) == [0, 1]


async def test_an_engine_may_ignore_the_take() -> None:
    assert await sounds(ThreadWorker, build_seedless, 0, 0) == [7, 7]


def test_recordings_from_before_are_found_by_the_same_key() -> None:
    request = SpeechRequest("Hi.", "joe")
    assert spoken_key(request) == key_of("Hi.", "joe", 1.0)
    assert spoken_key(replace(request, take=1)) != spoken_key(request)


@pytest.mark.parametrize("lost", [False, True])
def test_a_session_whose_voice_fails_is_played_again(lost: bool, tmp_path: Path) -> None:
    moods: Any = ["hum", "silent"] * 9 if lost else ["fine", "hum", "fine", "silent", "empty"]
    llm = ScriptedLlm(["I know a story. ", "It is long. ", "It is good. "] * 2, per_token_s=1.0)

    async def play(tape: Tape) -> None:
        tts = MoodyTts(moods, rtf=0.0513)  # no two things happen at exactly one time
        async with recorded_scene(tape, config=VOICE, settings=SETTINGS, llm=llm, tts=tts) as it:  # type: ignore[arg-type]
            await it.do(AddItem(MessageItem("u", "user", (TextPart("Hi"),))), CreateResponse())
            await it.hear(25.0)

    held = recorded(tmp_path / "r.jsonl", play)
    assert [event["is"] for _, event in held.events].count("ClauseFault") == (6 if lost else 3)
    replayed = replay(held)
    assert replayed.stopped is None
    assert compare(held.events, replayed.events).difference is None


async def test_faults_are_counted() -> None:
    again = ClauseFault("resp_1", "silence", 0, False)
    metrics = await observed(again, again, ClauseFault("resp_1", "runaway", 1, True))
    assert metrics("clause_faults_total", fault="silence", left_out="no") == 2
    assert metrics("clause_faults_total", fault="runaway", left_out="yes") == 1
