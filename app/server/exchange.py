"""Exchanges one engine for another while clients talk: none is disconnected, no turn is lost.

Beside the old one where memory allows: answers and utterances that have begun end with the old
engine, those that begin then have the new one. Else one after the other: sessions are told in a
spoken sentence, and between two answers the old one is closed and the new one
loaded; what is said meanwhile is heard, and answered then. If the new one cannot be loaded, the old
one stays, or comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from app.compose import Assistant, described
from app.models.engine_set import Engine, Started, end
from pipeline.engines.registry import EngineOptions, Kind
from pipeline.errors import ConfigError, EngineError, ReachyVoiceError
from pipeline.workers.worker import Worker

OLD_ENDS_S = 120.0
"""So long an answer or an utterance that has begun may go on before its engine is unloaded."""
MOMENT_S = 60.0
"""How long a moment without an answer is waited for; after that new turns wait for it, too."""
NOTICE_S = 10.0

Tell = Callable[[str], None]


class Exchange:
    """Of one running assistant. Callers wait for one another."""

    def __init__(
        self, assistant: Assistant, has_room: Callable[[Kind, EngineOptions], bool]
    ) -> None:
        """``has_room``: whether memory allows an engine beside those that run; may block."""
        self._assistant = assistant
        self._engines = assistant.engines
        self._has_room = has_room
        self._one = asyncio.Lock()

    async def exchange(
        self, kind: Kind, options: EngineOptions, tell: Tell, unload_first: bool | None = None
    ) -> None:
        """``tell`` hears each step. ``unload_first``: ``None`` where memory asks for it; never for
        voice activity and turn detectors. Raises
        ``ReachyVoiceError`` if the new engine cannot be had; then the old one is in its place, or,
        if that could not be loaded again either, none."""
        async with self._one:
            if kind in (Kind.VAD, Kind.TURN):
                unload_first = False  # small, and sessions listen through them all the time
            elif unload_first is None:
                unload_first = not await asyncio.to_thread(self._has_room, kind, options)
            engine = await asyncio.to_thread(self._engines.build, options, kind)
            if unload_first:
                await self._after(kind, engine, options, tell)
            else:
                await self._beside(kind, engine, options, tell)

    # -- beside the old one

    async def _beside(self, kind: Kind, engine: Engine, options: EngineOptions, tell: Tell) -> None:
        tell(f"loading {described(options)} beside {self._assistant.describe(kind)}")
        started = await self._engines.start(engine, kind)
        try:
            _require_fit(kind, self._engines[kind], engine)
        except BaseException:
            engine.close()
            raise
        before = self._seat(kind, started, options)
        self._engines.retire(before, self._engines.stages.leases.ended)
        tell(f"{described(options)} is in place; what has begun ends with the old one")

    # -- after the old one

    async def _after(self, kind: Kind, engine: Engine, options: EngineOptions, tell: Tell) -> None:
        before = self._assistant.settings.engine(kind)
        leases = self._engines.stages.leases
        await self._notify()
        tell("waiting for a moment between two answers")
        await _at_most(MOMENT_S, leases.none)
        leases.close()
        try:
            await _at_most(OLD_ENDS_S, leases.none)
            tell(f"unloading {described(before)}; new turns wait")
            self._engines.exchanging = kind
            await end(Started(self._engines[kind], self._engines.life(kind)))
            tell(f"loading {described(options)}")
            try:
                started = await self._engines.start(engine, kind)
            except ReachyVoiceError as error:
                tell(f"it failed; loading {described(before)} again")
                await self._back(kind, before, error)
                raise
            self._seat(kind, started, options)
            tell(f"{described(options)} is in place")
        finally:
            self._engines.exchanging = None
            leases.open()

    async def _back(self, kind: Kind, options: EngineOptions, error: ReachyVoiceError) -> None:
        """Raises ``EngineError`` if the old one cannot be had either."""
        try:
            engine = await asyncio.to_thread(self._engines.build, options, kind)
            self._seat(kind, await self._engines.start(engine, kind), options)
        except ReachyVoiceError as second:
            self._engines[kind].problem = f"was exchanged, and nothing could be loaded: {second}"
            raise EngineError(
                f"There is no {kind} engine now",
                why=f"{error}; and the old one: {second}",
                fix="Choose another one with `reachy-voice models use`, or restart the server",
            ) from second

    async def _notify(self) -> None:
        """Say to all who can hear it now that there will be a pause."""
        sentence = self._assistant.settings.conversation.exchange_notice
        told = [session for session in list(self._assistant.sessions) if session.notify(sentence)]

        async def all_heard() -> None:
            for session in told:
                await session.quiet()

        await _at_most(NOTICE_S, all_heard)

    def _seat(self, kind: Kind, started: Started, options: EngineOptions) -> Started:
        settings = self._assistant.settings
        self._assistant.settings = settings.model_copy(update={str(kind): options})
        before = self._engines.seat(kind, started)
        if kind is Kind.LLM:
            for session in list(self._assistant.sessions):
                session.model_exchanged()
        return before


def _require_fit(kind: Kind, old: Engine, new: Engine) -> None:
    """Sessions cut their audio for the voice activity and turn detectors that they began with.
    Raises ``ConfigError``."""
    if not (isinstance(old, Worker) and isinstance(new, Worker) and old.info and new.info):
        return
    same_windows = old.info.window_samples == new.info.window_samples
    if not (same_windows and old.info.history_seconds >= new.info.history_seconds):
        raise ConfigError(
            f"{new.name} cannot take the place of {old.name} in a running server",
            why="it listens to audio in other pieces",
            fix="Restart the server with it",
        )


async def _at_most(seconds: float, wait: Callable[[], Awaitable[None]]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await wait()
    except TimeoutError:
        pass
