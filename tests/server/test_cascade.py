"""Every real engine in one process: transcripts, spoken answers and the order of events.

Audio comes faster than real time from a source with back-pressure; no test asserts what the
language model says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from app.compose import Assistant
from app.models.weights import WeightsCache
from app.settings.load import load_settings
from benchmarks.wer import total, word_errors
from pipeline import commands, events
from pipeline.audio import EMPTY, LISTEN_RATE, Pcm, resampled
from pipeline.commands import (
    AppendAudio,
    CommitAudio,
    CreateResponse,
    ResponseOptions,
    SessionConfig,
)
from pipeline.engines.registry import CORE
from pipeline.engines.word_scale import UNMEASURED
from pipeline.events import ReplyAudio, ReplyFinished, SpeechStarted, TranscriptReady
from pipeline.work import NEVER, Cancelled
from reachy_voice.testing import Scene, scene, write
from tests.support.recordings import Recording, real_recordings, recording

pytestmark = [pytest.mark.engines, pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]
QUICK = ("llm.threads=1", "conversation.sampling.max_tokens=24", "conversation.sampling.seed=1")
VOICE = SessionConfig(
    instructions="You are Reachy, a small robot. Answer in one short sentence.",
)
LISTEN_ONLY = replace(VOICE, turn_detection=commands.TurnDetection(create_response=False))
PUSH_TO_TALK = replace(VOICE, turn_detection=None)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def assistant(
    weights: Callable[[str], Path], cache: WeightsCache
) -> AsyncIterator[Assistant]:
    settings = load_settings(None, QUICK).settings
    for name in settings.weights():
        weights(name)
    built = await asyncio.to_thread(Assistant, settings, cache)
    async with asyncio.TaskGroup() as group:
        group.create_task(built.run())
        await built.ready.wait()
        yield built
        built.close()


def talk(assistant: Assistant, config: SessionConfig) -> AbstractAsyncContextManager[Scene]:
    settings = assistant.session_settings()
    return scene(stages=assistant.stages, settings=settings, config=config)


async def hear(talking: Scene, pcm: Pcm) -> None:
    for start in range(0, len(pcm), 320):
        await talking.session.submit(AppendAudio(pcm[start : start + 320], LISTEN_RATE))


async def until(talking: Scene, kind: Any, count: int = 1) -> None:
    """Wait until ``count`` events of this kind (or these kinds) were published."""
    while len(talking.events(kind)) < count:
        await talking.until(kind)


def answer_audio(talking: Scene) -> Pcm:
    return np.concatenate([EMPTY, *(event.pcm for event in talking.events(ReplyAudio))])


async def transcribe(assistant: Assistant, pcm: Pcm, rate: int) -> str:
    """The transcript of ``pcm`` by our own recogniser."""
    async with talk(assistant, PUSH_TO_TALK) as talking:
        await hear(talking, resampled(pcm, rate, LISTEN_RATE))
        await talking.do(CommitAudio())
        await until(talking, TranscriptReady)
    return talking.events(TranscriptReady)[0].text


def silence(seconds: float) -> Pcm:
    return np.random.default_rng(0).normal(0, 8, int(seconds * LISTEN_RATE)).astype(np.int16)


async def test_a_recorded_question_gets_a_spoken_answer(assistant: Assistant) -> None:
    asked = recording("librivox-0880")
    async with talk(assistant, VOICE) as talking:
        await hear(talking, np.concatenate((silence(0.5), asked.pcm, silence(1.2))))
        await until(talking, ReplyFinished)
    [finished] = talking.events(ReplyFinished)
    assert finished.status in ("completed", "incomplete")
    assert word_errors(asked.text, talking.events(TranscriptReady)[0].text).rate <= 0.2
    [timeline] = talking.events(events.Timeline)
    moments = [timeline.transcript, timeline.first_token, timeline.first_clause]
    assert all(moment is not None for moment in moments)
    assert moments == sorted(m for m in moments if m is not None)
    said = finished.items[0].text
    heard = await transcribe(assistant, answer_audio(talking), VOICE.output_format.rate)
    # It is speech and says what its transcript claims.
    assert word_errors(said, heard).rate <= 0.35, (said, heard)


async def test_the_language_models_opinion_is_measured_at_warm_up(assistant: Assistant) -> None:
    assert list(assistant.stages.word_scales) == ["en"]
    measured = assistant.stages.word_scales["en"]
    assert measured.slope == pytest.approx(UNMEASURED.slope, rel=0.1)
    assert measured.even == pytest.approx(UNMEASURED.even, rel=0.25)


async def test_the_final_transcript_equals_a_batch_pass(
    assistant: Assistant, weights: Callable[[str], Path]
) -> None:
    from pipeline.engines.stt.moonshine import SPEC, MoonshineOptions

    path = await asyncio.to_thread(weights, "moonshine-tiny-en")
    batch = await asyncio.to_thread(SPEC.build, MoonshineOptions(), path)
    errors = []
    for clip in real_recordings():
        said = np.concatenate((silence(0.6), clip.pcm, silence(1.5)))
        async with talk(assistant, LISTEN_ONLY) as talking:
            await hear(talking, said)
            await talking.do(commands.RetrieveItem("none"))
            await until(talking, events.Refused)  # now all audio is processed
            started = len(talking.events(SpeechStarted))
            await until(talking, (TranscriptReady, events.SpeechRejected), started)
        texts = talking.events(TranscriptReady)
        spans = {
            begun.item_id: said[begun.audio_ms * 16 : stopped.audio_ms * 16]
            for begun, stopped in zip(
                talking.events(SpeechStarted), talking.events(events.SpeechStopped), strict=True
            )
        }
        for final in texts:
            utterance = batch.open("en", False)
            utterance.feed(spans[final.item_id])
            assert utterance.finish(NEVER).text == final.text
        heard = " ".join(event.text for event in texts)
        errors.append(word_errors(clip.text, heard))
    assert len(errors) >= 13
    assert total(errors).rate <= 0.06, total(errors)


async def test_push_to_talk_and_a_text_turn(assistant: Assistant) -> None:
    asked: Recording = recording("goforward")
    async with talk(assistant, PUSH_TO_TALK) as talking:
        await hear(talking, asked.pcm)
        await talking.do(CommitAudio(), CreateResponse(ResponseOptions(modality="text")))
        await until(talking, ReplyFinished)
        await talking.do(write("And now turn around."), CreateResponse())
        await until(talking, ReplyFinished, 2)
    assert word_errors(asked.text, talking.events(TranscriptReady)[0].text).errors == 0
    first, second = talking.events(ReplyFinished)
    assert first.items[0].text
    assert len(answer_audio(talking)) > 0
    # The second prompt begins with the first one and its answer: read from the KV cache.
    assert second.usage.cached > first.usage.prompt
    assert second.usage.cached + second.usage.evaluated == second.usage.prompt


async def test_two_conversations_at_once_both_get_their_answers(assistant: Assistant) -> None:
    async def one(name: str) -> str:
        asked = recording(name)
        async with talk(assistant, VOICE) as talking:
            await hear(talking, np.concatenate((silence(0.5), asked.pcm, silence(1.2))))
            await until(talking, ReplyFinished)
        assert talking.events(ReplyFinished)[0].status in ("completed", "incomplete")
        return talking.events(TranscriptReady)[0].text

    async with asyncio.timeout(90):
        texts = await asyncio.gather(one("goforward"), one("cards-003"))
    assert word_errors(recording("goforward").text, texts[0]).errors == 0
    assert word_errors(recording("cards-003").text, texts[1]).errors <= 1


async def test_leaving_during_a_reply_stops_the_engines(assistant: Assistant) -> None:
    long = replace(PUSH_TO_TALK, max_output_tokens=2000)
    async with talk(assistant, long) as talking:
        await talking.do(write("Hi"), CreateResponse())
        await until(talking, ReplyAudio)
    # No work is left for a closed conversation.
    workers: list[Any] = [assistant.engines[kind] for kind in CORE]
    async with asyncio.timeout(10):
        for worker in workers:
            for job in list(worker._jobs.values()):
                with suppress(Cancelled):
                    await job.result()
    assert not any(worker._jobs for worker in workers)
