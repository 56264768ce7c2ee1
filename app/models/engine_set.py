"""The engines of one assistant: built, running, and one of them put in another's place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from app.models.judged_engine import JudgedEngine
from app.models.memory_room import give_back, has_room
from app.models.weights import WeightsCache
from app.models.word_scales import Scales, WordScales
from app.settings.model import Settings
from pipeline.engines.by_url.engine import UrlEngine
from pipeline.engines.by_url.pool import Pool
from pipeline.engines.registry import (
    EngineOptions,
    Kind,
    UrlEngineSpec,
    engine_spec,
    require_modules,
)
from pipeline.engines.stages import Stages
from pipeline.errors import EngineError, ReachyVoiceError
from pipeline.speaking.apology import KeptSentence
from pipeline.workers.placements import worker_for
from pipeline.workers.worker import Worker

log = logging.getLogger("reachy_voice.llm")

Engine = Worker | UrlEngine | JudgedEngine
Wait = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, eq=False)
class Started:
    """An engine that is ready. ``life`` ends after its ``close``."""

    engine: Engine
    life: asyncio.Task[None]
    word_scales: Scales = field(default_factory=dict)
    """Of a language model."""


class EngineSet:
    """``run`` it in a TaskGroup; ``close`` ends it."""

    def __init__(self, settings: Settings, cache: WeightsCache, word_scales: WordScales) -> None:
        """Raises ``MissingExtra`` or ``WeightsError`` before anything heavy is loaded."""
        self.cache = cache
        self.ready = asyncio.Event()
        """Set once every engine is ready, and the language model's opinion is measured."""
        self._word_scales = word_scales
        self._measured = False
        self._pool = Pool()
        self._instructions = settings.conversation.instructions
        self._engines = {kind: self.build(settings.engine(kind), kind) for kind in Kind}
        self.exchanging: Kind | None = None
        """Unloaded, for another one to be loaded in its place."""
        self._starting: set[Engine] = set()
        self._retired: set[Engine] = set()
        """Used by what began with them."""
        self._lives: dict[Kind, asyncio.Task[None]] = {}
        self._apology = (settings.conversation.apology, settings.conversation.language)
        self.stages = Stages(**{str(kind): self._engines[kind].stage for kind in Kind})
        self._voice = self.stages.kept = KeptSentence(self.stages.tts, *self._apology)
        """What sessions see."""

    def __getitem__(self, kind: Kind) -> Engine:
        return self._engines[kind]

    async def run(self, on_ready: Callable[[Kind], None]) -> None:
        """Build and warm every engine, then live until ``close``. Raises what a build raises."""

        def ready(kind: Kind) -> None:
            on_ready(kind)
            self._keep_apology(kind)
            if kind is Kind.LLM and not self._measured:
                self._tasks.create_task(measure())
            are_ready()

        async def measure() -> None:
            self.stages.word_scales.update(await self._scales(self._engines[Kind.LLM]))
            self._measured = True
            are_ready()

        def are_ready() -> None:
            if self._measured and not any(each.problem for each in self._engines.values()):
                self.ready.set()

        async with self._pool, asyncio.TaskGroup() as self._tasks:
            for kind, engine in self._engines.items():
                self._lives[kind] = self._tasks.create_task(engine.run(partial(ready, kind)))

    def close(self) -> None:
        self.ready.clear()
        for engine in (*self._engines.values(), *self._starting, *self._retired):
            engine.close()

    def readiness(self) -> Mapping[str, str | None]:
        """Per engine, why it is not ready, or ``None``."""
        problems = {str(kind): engine.problem for kind, engine in self._engines.items()}
        if self.exchanging:
            problems[str(self.exchanging)] = f"{EXCHANGED}; {problems[str(self.exchanging)]}"
        return problems

    # -- another engine in the place of one

    def build(self, options: EngineOptions, kind: Kind) -> Engine:
        """See ``build_engine``. A language model by URL comes with the one that judges words."""
        engine = build_engine(options, kind, self.cache, self._pool)
        judge = options.judge
        if judge is None or not isinstance(engine, UrlEngine):
            return engine
        if not has_room(self.cache, kind, judge):
            log.warning("turns end without an opinion of their words: no memory for llm.word_judge")
            return engine
        built = build_engine(judge, kind, self.cache, self._pool)
        assert isinstance(built, Worker)
        return JudgedEngine(engine, built, self._instructions)

    async def start(self, engine: Engine, kind: Kind) -> Started:
        """Load it beside the others. Raises what that raises, and ``EngineError`` if closed
        meanwhile. A cancelled call leaves nothing running."""
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
        return Started(engine, life, scales)

    async def _live(self, engine: Engine, kind: Kind, ready: asyncio.Future[None]) -> None:
        def is_ready() -> None:
            if not ready.done():
                ready.set_result(None)
            elif engine is self._engines[kind]:
                self._keep_apology(kind)  # after a crash

        try:
            await engine.run(is_ready)
        except ReachyVoiceError as error:
            # Its callers get the error, if any still wait.
            if not ready.done():
                ready.set_exception(error)
        if not ready.done():
            ready.set_exception(EngineError(f"The {engine.name} engine was closed before it began"))

    def seat(self, kind: Kind, started: Started) -> Started:
        """Put it into the place of the one that is there, which goes on; gives that one."""
        scales = self.stages.word_scales
        before = Started(self._engines[kind], self._lives[kind], dict(scales))
        self._engines[kind], self._lives[kind] = started.engine, started.life
        stage = started.engine.stage
        if kind is Kind.TTS:
            self._voice = self.stages.kept = KeptSentence(stage, *self._apology)
        setattr(self.stages, kind, stage)
        if kind is Kind.LLM:
            scales.clear()
            scales.update(started.word_scales)
        self._keep_apology(kind)
        return before

    def retire(self, started: Started, unused: Wait) -> None:
        """Close it when ``unused`` returns, and in any case with all others."""
        self._retired.add(started.engine)
        self._tasks.create_task(self._retire(started, unused))

    async def _retire(self, started: Started, unused: Wait) -> None:
        waiting = asyncio.create_task(unused())
        try:
            await asyncio.wait({waiting, started.life}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})
            self._retired.discard(started.engine)
            await end(started)

    def life(self, kind: Kind) -> asyncio.Task[None]:
        """It ends after the engine's ``close``."""
        return self._lives[kind]

    # -- parts

    def _keep_apology(self, kind: Kind) -> None:
        if kind is Kind.TTS:
            self._tasks.create_task(self._voice.keep())

    async def _scales(self, engine: Engine) -> Scales:
        judge = engine.judge if isinstance(engine, JudgedEngine) else engine
        if not isinstance(judge, Worker) or judge.problem:
            return {}
        identity = await asyncio.to_thread(lambda: judge.identity)
        return await self._word_scales.of(judge.stage, identity)


async def end(started: Started) -> None:
    """Close it, and see that the system has its memory back."""
    started.engine.close()
    await asyncio.wait({started.life})
    await asyncio.to_thread(give_back)


def build_engine(options: EngineOptions, kind: Kind, cache: WeightsCache, pool: Pool) -> Engine:
    """Nothing is loaded yet. Raises ``MissingExtra`` and ``WeightsError``."""
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


EXCHANGED = "is being exchanged for another one"
"""How the problem of such an engine begins: new clients can connect, and are answered later."""
