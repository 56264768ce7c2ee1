"""The composition root: settings in, a running assistant out; nothing else builds engines."""

from __future__ import annotations

import asyncio
import secrets
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from app.realtime_socket import MODEL
from app.settings import Settings
from app.weights import WeightsCache
from pipeline.apology import KeptSentence
from pipeline.audio import Pcm
from pipeline.bus import Bus
from pipeline.by_url.engine import UrlEngine
from pipeline.by_url.pool import Pool
from pipeline.commands import SessionConfig
from pipeline.echo.path import EchoPath
from pipeline.echo.rooms import Rooms
from pipeline.engines import EngineOptions, Kind, UrlEngineSpec, engine_spec, require_modules
from pipeline.errors import ReachyVoiceError
from pipeline.hearing import EchoHearing
from pipeline.memory import Memory
from pipeline.realtime.session_config import SessionDefaults
from pipeline.recording.recorded import RecordedSession
from pipeline.recording.tape import Tape
from pipeline.session import Session
from pipeline.session_settings import SessionSettings
from pipeline.stages import (
    RemoteLlm,
    RemoteStt,
    RemoteTts,
    RemoteTurn,
    RemoteVad,
    Stages,
    TtsStage,
)
from pipeline.work import Work
from pipeline.worker import ThreadWorker, Worker, worker_for


def new_id(prefix: str) -> str:
    """A fresh id in the style of the Realtime API, such as ``item_5f2c…``."""
    return f"{prefix}_{secrets.token_hex(10)}"


class Assistant:
    """Every engine, and sessions over them. ``run`` it in a TaskGroup; ``close`` ends it."""

    def __init__(self, settings: Settings, cache: WeightsCache) -> None:
        """Raises ``MissingExtra`` or ``WeightsError`` before anything heavy is loaded."""
        self.settings = settings
        cache.check(settings.weights())
        self._pool = Pool()
        self._workers = {kind: _engine(settings, cache, kind, self._pool) for kind in Kind}
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self.ready = asyncio.Event()
        self._rooms = Rooms()
        self.tape: Tape | None = None
        """Where sessions that begin now are recorded."""
        self._voice = KeptSentence(self._stage(Kind.TTS), settings.conversation.apology)
        self.stages = Stages(
            self._stage(Kind.VAD),
            self._stage(Kind.TURN),
            self._stage(Kind.STT),
            self._stage(Kind.LLM),
            self._voice,
        )

    async def run(self, on_engine_ready: Callable[[Kind], None] = lambda kind: None) -> None:
        """Build and warm every engine, then live until ``close``. Raises what a build raises."""

        def ready(kind: Kind) -> None:
            on_engine_ready(kind)
            if kind is Kind.TTS:
                group.create_task(self._voice.keep())
            if not any(worker.problem for worker in self._workers.values()):
                self.ready.set()

        try:
            async with self._pool, asyncio.TaskGroup() as group:
                for kind, worker in self._workers.items():
                    group.create_task(worker.run(partial(ready, kind)))
        except* ReachyVoiceError as errors:
            raise first_error(errors) from None

    def close(self) -> None:
        self.ready.clear()
        for worker in self._workers.values():
            worker.close()

    def readiness(self) -> Mapping[str, str | None]:
        """Per engine, why it is not ready, or ``None``."""
        return {str(kind): _problem(worker) for kind, worker in self._workers.items()}

    def describe(self, kind: Kind) -> str:
        """The engine of one kind and the weights it uses, for a person."""
        options = self.settings.engine(kind)
        detail = getattr(options, "weights", None) or getattr(options, "url", None)
        return f"{options.engine} ({detail})" if detail else options.engine

    def worker(self, kind: Kind) -> Worker | UrlEngine:
        """What runs the engine of one kind."""
        return self._workers[kind]

    def _stage(self, kind: Kind) -> Any:
        return _stage(kind, self._workers[kind])

    # -- sessions (app.realtime_socket.Assistant)

    def defaults(self) -> SessionDefaults:
        """What a session is before its client says anything. Engines must be ready."""
        conversation = self.settings.conversation
        voices = self.stages.tts.voices
        return SessionDefaults(
            model=MODEL,
            voice=getattr(self.settings.tts, "voice", None) or voices[0],
            voices=voices,
            instructions=conversation.instructions,
            language=conversation.language,
        )

    def session(
        self, bus: Bus, config: SessionConfig, memory: Memory | None = None, place: str = ""
    ) -> Session:
        settings = self.settings
        session_settings = SessionSettings(
            endpointing=settings.endpointing,
            speculation=settings.speculation,
            barge_in=settings.barge_in,
            echo=settings.echo,
            sampling=settings.conversation.sampling.build(),
            tool_instructions=settings.conversation.tool_instructions,
            max_items=settings.limits.max_items,
            partials=settings.conversation.partial_transcripts,
            lead_ms=settings.playback.lead_ms,
            chunk_ms=settings.playback.chunk_ms,
            watched=settings.playback.watch_voice,
            apology=settings.conversation.apology,
            filler=settings.conversation.filler,
        )
        room, keep = self._rooms.of(place), partial(self._rooms.keep, place)
        echo = EchoPath(self.stages.vad.window_samples, room, keep)
        hearing = EchoHearing(echo, settings.echo)
        begun = (self.stages, config, session_settings, bus, new_id, memory, hearing)
        session = RecordedSession(self.tape, *begun) if self.tape else Session(*begun)
        self._sessions.add(session)
        return session

    async def idle(self) -> None:
        """Wait until no reply is being given."""
        for session in list(self._sessions):
            await session.quiet()


async def synthesize_alone(
    settings: Settings, cache: WeightsCache, texts: Sequence[str]
) -> list[tuple[Pcm, int]]:
    """Each text spoken by the configured voice, without the rest: (int16 mono, rate in Hz)."""
    pool = Pool()
    worker = _engine(settings, cache, Kind.TTS, pool)
    tts: TtsStage = _stage(Kind.TTS, worker)
    ready = asyncio.Event()
    spoken = []
    async with pool, asyncio.TaskGroup() as group:
        group.create_task(worker.run(ready.set))
        await ready.wait()
        for text in texts:
            chunks = [pcm async for pcm in tts.synthesize(text, "", 1.0, Work())]
            spoken.append((np.concatenate(chunks), tts.rate))
        worker.close()
    return spoken


_REMOTE = {
    Kind.VAD: RemoteVad,
    Kind.TURN: RemoteTurn,
    Kind.STT: RemoteStt,
    Kind.LLM: RemoteLlm,
    Kind.TTS: RemoteTts,
}


def _stage(kind: Kind, engine: Worker | UrlEngine) -> Any:
    """An engine as sessions see it (``pipeline.stages``)."""
    return _REMOTE[kind](engine) if isinstance(engine, Worker) else engine.stage


def _engine(settings: Settings, cache: WeightsCache, kind: Kind, pool: Pool) -> Worker | UrlEngine:
    options = settings.engine(kind)
    spec = engine_spec(kind, options.engine)
    require_modules(spec)
    if isinstance(spec, UrlEngineSpec):
        engine: UrlEngine = spec.build(options, pool)
        return engine
    name = getattr(options, "weights", None)
    weights: Path | None = cache.path(name) if name else None
    return worker_for(spec, _placed(options, cache), weights)


def _placed(options: EngineOptions, cache: WeightsCache) -> EngineOptions:
    """Fill in where an engine may keep files of its own."""
    if getattr(options, "saved_prefix_dir", "") is None:
        return options.model_copy(update={"saved_prefix_dir": cache.directory / "prefixes"})
    return options


def _problem(worker: Worker | UrlEngine) -> str | None:
    if isinstance(worker, ThreadWorker) and worker.stuck:
        return "hangs"
    return worker.problem


def first_error(errors: BaseExceptionGroup[ReachyVoiceError]) -> ReachyVoiceError:
    """The first leaf of an exception group."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ReachyVoiceError)
    return error
