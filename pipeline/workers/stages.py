"""The stages of engines: typed and awaitable, whether a worker runs the engine or a server does.

Until this point, nothing knows what kind of engine a name in the settings means. ``vad_stage`` and
its siblings return an engine's stage of one kind, or raise if it is not of that kind.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol, TypeVar

from pipeline.audio import Pcm
from pipeline.engines.contract import (
    Delta,
    Embedding,
    Llm,
    LlmSession,
    Partial,
    PhraseListener,
    SpeakerEncoder,
    Stt,
    Transcript,
    Tts,
    TurnDetector,
    Utterance,
    Vad,
    VadStream,
    Warmed,
)
from pipeline.engines.stages import (
    LanguageChoice,
    LlmStage,
    SpeakerStage,
    SttStage,
    TtsStage,
    TurnStage,
    VadStage,
)
from pipeline.errors import EngineCrashed, EngineError
from pipeline.messages import LlmRequest, SpeechRequest
from pipeline.work import Cancelled, Work
from pipeline.workers.worker import RemoteObject, Worker

StageT = TypeVar("StageT")


def _probability(score: float) -> float:
    """``score`` as a plain float. Raises ``EngineError`` if it is no number, as after 0 / 0."""
    if math.isnan(score):
        raise EngineError("The sound was not judged", why="the engine's score is not a number")
    return float(score)


class _VadStream:
    """Opened on first use and again after an engine restart; the new engine then scores the window
    that was lost with the old one."""

    def __init__(self, worker: Worker, work: Work) -> None:
        self._worker = worker
        self._work = work
        self._remote: RemoteObject | None = None

    async def score(self, pcm: Pcm) -> float:
        try:
            return await self._score(pcm)
        except EngineCrashed:
            return await self._score(pcm)

    def close(self) -> None:
        if self._remote:
            self._remote.close()
            self._remote = None

    async def _score(self, pcm: Pcm) -> float:
        if self._remote is None or not self._remote.usable:
            self._remote = await self._worker.engine.open(Vad.open, self._work)
        return _probability(await self._remote.call(VadStream.score, self._work, pcm))


class _WorkerStage:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker


class WorkerVad(_WorkerStage):
    @property
    def window_samples(self) -> int:
        return self._worker.known.window_samples

    @property
    def least_movement_db(self) -> float:
        return self._worker.known.least_movement_db

    async def open(self, work: Work) -> _VadStream:
        return _VadStream(self._worker, work)


class WorkerTurn(_WorkerStage):
    @property
    def history_seconds(self) -> float:
        return self._worker.known.history_seconds

    async def score(self, pcm: Pcm, text: str, work: Work) -> float:
        return _probability(await self._worker.engine.call(TurnDetector.score, work, pcm, text))


class _Utterance:
    def __init__(self, remote: RemoteObject) -> None:
        self._remote = remote
        self.close = remote.close

    async def feed(self, pcm: Pcm, work: Work) -> Partial:
        return await self._remote.call(Utterance.feed, work, pcm)

    async def finish(self, work: Work) -> Transcript:
        return await self._remote.call_cancellable(Utterance.finish, work)


class WorkerStt(_WorkerStage):
    @property
    def streams(self) -> bool:
        return self._worker.known.streams

    @property
    def languages(self) -> Sequence[str]:
        return self._worker.info.languages if self._worker.info else ()

    async def open(self, language: str, partials: bool, work: Work) -> _Utterance:
        return _Utterance(await self._worker.engine.open(Stt.open, work, language, partials))

    async def begins_with(self, pcm: Pcm, phrase: str, work: Work) -> bool | None:
        if not self._worker.known.hears_phrases:
            return None
        return await self._worker.engine.call(PhraseListener.begins_with, work, pcm, phrase)


class WorkerSpeaker(_WorkerStage):
    async def embed(self, pcm: Pcm, work: Work) -> Embedding:
        return await self._worker.engine.call_cancellable(SpeakerEncoder.embed, work, pcm)


class _Conversation:
    """Opened on first use, and again after an engine restart."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._remote: RemoteObject | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    async def warm(self, request: LlmRequest, work: Work) -> Warmed:
        await self._until_ready(work)
        remote = await self._open(work)
        async with aclosing(remote.stream(LlmSession.warm, work, request)) as steps:
            results = [each async for each in steps]
        return results[-1] if results else Warmed()

    async def reply(self, request: LlmRequest, work: Work) -> AsyncGenerator[Delta, None]:
        remote = await self._open(work)
        stream: AsyncGenerator[Delta, None] = remote.stream(LlmSession.reply, work, request)
        async with aclosing(stream) as deltas:
            async for delta in deltas:
                yield delta

    def close(self) -> None:
        """Close for good; an ``open`` in progress ends with ``Cancelled``."""
        self._closed = True
        if self._remote:
            self._remote.close()
            self._remote = None

    async def _until_ready(self, work: Work) -> None:
        """Wait until the engine is ready. Reading ahead is not urgent, so it waits for a restart;
        the new engine then has read the conversation when it must reply. Raises ``Cancelled``."""
        if self._worker.ready.is_set():
            return
        stop = asyncio.Event()
        work.watch(stop, lambda _: stop.set() if work.cancelled else None)
        tasks = [asyncio.create_task(event.wait()) for event in (self._worker.ready, stop)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.unwatch(stop)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if work.cancelled:
            raise Cancelled

    async def _open(self, work: Work) -> RemoteObject:
        # A warm-up and a reply may arrive together; they share one object.
        async with self._lock:
            if self._remote is None or not self._remote.usable:
                self._remote = await self._worker.engine.open(Llm.open, work)
            if self._closed:
                self.close()
                raise Cancelled
            return self._remote


class WorkerLlm(_WorkerStage):
    may_load = False

    def open(self) -> _Conversation:
        return _Conversation(self._worker)


class WorkerTts(_WorkerStage):
    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self._language = LanguageChoice()

    @property
    def rate(self) -> int:
        return self._worker.known.rate

    @property
    def voices(self) -> Sequence[str]:
        return self._worker.known.voices

    def synthesize(self, request: SpeechRequest, work: Work) -> AsyncGenerator[Pcm, None]:
        language = self._language.choose(request.language, self._worker.known.languages)
        request = replace(request, language=language)
        return self._worker.engine.stream(Tts.synthesize, work, request)


# --- the stage of an engine of each kind -------------------------------------------------------


class LoopEngine(Protocol):
    """An engine that runs on the event loop, such as one used by URL, and is itself a stage."""

    name: str


def vad_stage(engine: Worker | LoopEngine) -> VadStage:
    return _stage(engine, VadStage, WorkerVad)


def turn_stage(engine: Worker | LoopEngine) -> TurnStage:
    return _stage(engine, TurnStage, WorkerTurn)


def stt_stage(engine: Worker | LoopEngine) -> SttStage:
    return _stage(engine, SttStage, WorkerStt)


def speaker_stage(engine: Worker | LoopEngine) -> SpeakerStage:
    return _stage(engine, SpeakerStage, WorkerSpeaker)


def llm_stage(engine: Worker | LoopEngine) -> LlmStage:
    return _stage(engine, LlmStage, WorkerLlm)


def tts_stage(engine: Worker | LoopEngine) -> TtsStage:
    return _stage(engine, TtsStage, WorkerTts)


def _stage(
    engine: Worker | LoopEngine, protocol: type[StageT], adapter: Callable[[Worker], StageT]
) -> StageT:
    """The engine's stage. Raises ``EngineError`` if the engine is of another kind."""
    if isinstance(engine, Worker):
        return adapter(engine)
    if isinstance(engine, protocol):
        return engine
    raise EngineError(
        f"The {engine.name} engine cannot be used",
        why=f"{type(engine).__name__} lacks what sessions call of an engine of this kind",
        fix="Report this to its author (see docs/engines.md), or choose another engine",
    )
