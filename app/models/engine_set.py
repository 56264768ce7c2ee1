"""The engines of one assistant: build them, run them, and replace one by another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from app.models.judged_engine import JudgedEngine
from app.models.memory_room import give_back, has_room
from app.models.updates import Updates
from app.models.weights import WeightsCache
from app.models.word_scales import Scales, WordScales
from app.settings.model import Settings
from app.setup.ran_here import RanHere
from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.options import UrlOptions
from pipeline.engines.by_url.pool import Pool
from pipeline.engines.registry import (
    CORE,
    EngineOptions,
    Kind,
    UrlEngineSpec,
    engine_spec,
    require_modules,
)
from pipeline.engines.stages import SpeakerStage, Stages
from pipeline.errors import (
    EngineCrashed,
    MissingExtra,
    ReachyVoiceError,
    WeightsError,
    one_error,
)
from pipeline.speaking.notices import KeptSentences
from pipeline.workers.batched import BatchedWorker
from pipeline.workers.placements import worker_for
from pipeline.workers.stages import (
    llm_stage,
    speaker_stage,
    stt_stage,
    tts_stage,
    turn_stage,
    vad_stage,
)
from pipeline.workers.worker import Worker

log = logging.getLogger("reachy_voice.llm")

Engine = Worker | UrlEngine | JudgedEngine
Wait = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, eq=False)
class ReadyEngine:
    """An engine that is ready. ``life`` ends after its ``close``."""

    engine: Engine
    life: asyncio.Task[None]
    word_scales: Scales = field(default_factory=dict)
    """Only for a language model."""


class EngineSet:
    """``run`` it in a TaskGroup; ``close`` ends it."""

    def __init__(
        self,
        settings: Settings,
        cache: WeightsCache,
        word_scales: WordScales,
        kept_sentences: Mapping[str, str],
    ) -> None:
        """``kept_sentences``: sentences to say even if the voice fails, and their languages.

        Raises ``MissingExtra`` or ``WeightsError`` before anything heavy is loaded."""
        self.cache = cache
        self.updates = Updates(cache)
        self.ready = asyncio.Event()
        """Set once every engine is ready or absent, and the language model's word scales are
        measured."""
        self._absent: set[Kind] = set()
        """Engines by URL whose servers did not answer in time."""
        self._word_scales = word_scales
        self._measured = False
        self._pool = Pool()
        self._instructions = settings.conversation.instructions
        self._engines = {kind: self.build(settings.engine(kind), kind) for kind in CORE}
        self.exchanging: Kind | None = None
        """The engine that was unloaded so that its replacement can be loaded."""
        self._starting: set[Engine] = set()
        self._speaker: ReadyEngine | None = None
        self._retired: set[Engine] = set()
        """Replaced engines that running work still uses."""
        self._lives: dict[Kind, asyncio.Task[None]] = {}
        self._kept_sentences = kept_sentences
        self.stages = Stages(
            vad_stage(self._engines[Kind.VAD]),
            turn_stage(self._engines[Kind.TURN]),
            stt_stage(self._engines[Kind.STT]),
            llm_stage(self._engines[Kind.LLM]),
            tts_stage(self._engines[Kind.TTS]),
        )
        self._voice = self.stages.notice_voice = KeptSentences(self.stages.tts, kept_sentences)

    def __getitem__(self, kind: Kind) -> Engine:
        return self._engines[kind]

    async def run(self, on_ready: Callable[[Kind], None], *, without_servers: bool = False) -> None:
        """Build and warm every engine, then live until ``close``. ``without_servers``: engines by
        URL may become ready later. Raises what a build raises."""

        def ready(kind: Kind) -> None:
            self._absent.discard(kind)
            on_ready(kind)
            self._keep_sentences(kind)
            if kind is Kind.LLM and not self._measured:
                self._tasks.create_task(measure())
            are_ready()

        async def measure() -> None:
            self.stages.word_scales.update(await self._scales(self._engines[Kind.LLM]))
            self._measured = True
            are_ready()

        def absent(kind: Kind) -> None:
            self._absent.add(kind)
            are_ready()

        def are_ready() -> None:
            missing = {kind for kind, each in self._engines.items() if each.problem}
            is_measured = self._measured or Kind.LLM in self._absent
            if is_measured and missing <= self._absent:
                self.ready.set()

        async with self._pool, asyncio.TaskGroup() as self._tasks:
            for kind, engine in self._engines.items():
                if without_servers and not isinstance(engine, Worker):
                    engine.on_absence = partial(absent, kind)
                self._lives[kind] = self._tasks.create_task(engine.run(partial(ready, kind)))

    def close(self) -> None:
        self.ready.clear()
        speaker = (self._speaker.engine,) if self._speaker else ()
        for engine in (*self._engines.values(), *speaker, *self._starting, *self._retired):
            engine.close()

    def readiness(self) -> Mapping[str, str | None]:
        """Why each engine is not ready, or ``None``."""
        problems = {str(kind): engine.problem for kind, engine in self._engines.items()}
        if self.exchanging:
            problems[str(self.exchanging)] = f"{EXCHANGED}; {problems[str(self.exchanging)]}"
        return problems

    # -- replacing an engine

    def build(
        self, options: EngineOptions, kind: Kind, new_options: EngineOptions | None = None
    ) -> Engine:
        """Like ``build_engine``, but a language model by URL also gets its word judge, and an
        engine that follows updates gets the newest weights, or those of ``new_options``."""
        new_options = new_options or self.updates.newest(options)
        engine = build_engine(new_options, kind, self.cache, self._pool)
        judge = options.judge
        if judge is None or not isinstance(engine, UrlEngine):
            return engine
        if not has_room(self.cache, kind, judge):
            log.warning("no memory for llm.word_judge: turns end without judging the words")
            return engine
        try:
            worker = build_engine(judge, kind, self.cache, self._pool)
        except (MissingExtra, WeightsError) as error:
            log.warning("turns end without judging the words (llm.word_judge): %s", error)
            return engine
        assert isinstance(worker, Worker)
        return JudgedEngine(engine, worker, self._instructions)

    def build_substitute(
        self, options: EngineOptions, kind: Kind, new_options: EngineOptions | None = None
    ) -> Engine:
        """Like ``build``, but a server is not waited for: the engine in use can go on."""
        return self.build(options, kind, at_once(new_options or self.updates.newest(options)))

    async def start(self, engine: Engine, kind: Kind) -> ReadyEngine:
        """Load an engine beside the others. Raises what loading raises, and ``EngineCrashed`` if it
        is closed meanwhile. A cancelled call leaves nothing running."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._starting.add(engine)
        life = self._tasks.create_task(self._live(engine, kind, ready))
        try:
            await ready
            scales = await self._scales(engine) if kind is Kind.LLM else {}
        except BaseException:
            engine.close()
            raise
        finally:
            self._starting.discard(engine)
        return ReadyEngine(engine, life, scales)

    async def engage_speaker(self, options: EngineOptions) -> SpeakerStage:
        """Run the speaker engine too, unless it runs already. Call it only while ``run`` runs.
        Raises what building and loading raise."""
        if self._speaker is None:
            engine = await asyncio.to_thread(self.build, options, Kind.SPEAKER)
            self._speaker = await self.start(engine, Kind.SPEAKER)
        stage = self.stages.speaker = speaker_stage(self._speaker.engine)
        return stage

    async def dismiss_speaker(self) -> None:
        """End the speaker engine, if it runs."""
        speaker, self._speaker, self.stages.speaker = self._speaker, None, None
        if speaker:
            await end(speaker)

    async def _live(self, engine: Engine, kind: Kind, ready: asyncio.Future[None]) -> None:
        def is_ready() -> None:
            if not ready.done():
                ready.set_result(None)
            elif engine is self._engines.get(kind):
                self._keep_sentences(kind)  # after a crash

        try:
            await engine.run(is_ready)
        except ReachyVoiceError as error:
            # Callers get the error if they still wait.
            if not ready.done():
                ready.set_exception(error)
        if not ready.done():
            what = f"The {engine.name} engine was closed while starting"
            ready.set_exception(EngineCrashed(what))

    def seat(self, kind: Kind, started: ReadyEngine) -> ReadyEngine:
        """Replace the current engine, which keeps running, by ``started``; return the old one."""
        scales = self.stages.word_scales
        before = ReadyEngine(self._engines[kind], self._lives[kind], dict(scales))
        self._engines[kind], self._lives[kind] = started.engine, started.life
        match kind:
            case Kind.VAD:
                self.stages.vad = vad_stage(started.engine)
            case Kind.TURN:
                self.stages.turn = turn_stage(started.engine)
            case Kind.STT:
                self.stages.stt = stt_stage(started.engine)
            case Kind.LLM:
                self.stages.llm = llm_stage(started.engine)
                scales.clear()
                scales.update(started.word_scales)
            case Kind.TTS:
                self.stages.tts = tts_stage(started.engine)
                self._voice = KeptSentences(self.stages.tts, self._kept_sentences)
                self.stages.notice_voice = self._voice
        self._keep_sentences(kind)
        return before

    def retire(self, started: ReadyEngine, unused: Wait) -> None:
        """Close an engine when ``unused`` returns, or earlier together with all others."""
        self._retired.add(started.engine)
        self._tasks.create_task(self._retire(started, unused))

    async def _retire(self, started: ReadyEngine, unused: Wait) -> None:
        waiting = asyncio.create_task(unused())
        try:
            await asyncio.wait({waiting, started.life}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})
            self._retired.discard(started.engine)
            await end(started)

    def life(self, kind: Kind) -> asyncio.Task[None]:
        """The task that ends after the engine's ``close``."""
        return self._lives[kind]

    # -- parts

    def _keep_sentences(self, kind: Kind) -> None:
        if kind is Kind.TTS:
            self._tasks.create_task(self._voice.keep())

    async def _scales(self, engine: Engine) -> Scales:
        judge = engine.judge if isinstance(engine, JudgedEngine) else engine
        if not isinstance(judge, Worker) or judge.problem:
            return {}
        identity = await asyncio.to_thread(lambda: judge.identity)
        return await self._word_scales.of(llm_stage(judge), identity)


async def end(started: ReadyEngine) -> None:
    """Close an engine and return its memory to the system."""
    started.engine.close()
    await asyncio.wait({started.life})
    await asyncio.to_thread(give_back)


def at_once(options: EngineOptions) -> EngineOptions:
    """The same, but a server is not waited for."""
    return options.model_copy(update={"start_s": 0.0} if isinstance(options, UrlOptions) else {})


def build_engine(options: EngineOptions, kind: Kind, cache: WeightsCache, pool: Pool) -> Engine:
    """Build an engine without loading it. Raises ``MissingExtra`` and ``WeightsError``."""
    spec = engine_spec(kind, options.engine)
    require_modules(spec)
    if isinstance(spec, UrlEngineSpec):
        engine: UrlEngine = spec.build(options, pool)
        return engine
    weights = cache.of(options)
    ran = RanHere(cache.directory)
    if options.batched:
        return BatchedWorker(spec, options, weights, ran=ran)
    return worker_for(spec, _with_directory(options, cache), weights, ran)


@asynccontextmanager
async def engines_alone(
    settings: Settings, cache: WeightsCache, *kinds: Kind
) -> AsyncIterator[list[Engine]]:
    """Engines of the settings without an assistant, loaded and then closed. Raises
    ``ReachyVoiceError``."""
    pool = Pool()
    engines = [
        await asyncio.to_thread(build_engine, settings.engine(kind), kind, cache, pool)
        for kind in kinds
    ]
    with one_error():
        async with pool, asyncio.TaskGroup() as group:
            loaded = [asyncio.Event() for _ in engines]
            for engine, is_loaded in zip(engines, loaded, strict=True):
                group.create_task(engine.run(is_loaded.set))
            for is_loaded in loaded:
                await is_loaded.wait()
            try:
                yield engines
            finally:
                for engine in engines:
                    engine.close()


def _with_directory(options: EngineOptions, cache: WeightsCache) -> EngineOptions:
    """Fill in the directory for an engine's own files."""
    if getattr(options, "saved_prefix_dir", "") is None:
        return options.model_copy(update={"saved_prefix_dir": cache.directory / "prefixes"})
    return options


EXCHANGED = "is being replaced by another one"
"""Prefix of the problem of an engine being replaced: clients can connect, and wait."""
