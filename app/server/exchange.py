"""Replaces an engine while clients talk: no client is disconnected, no turn is lost.

If memory allows, the new engine is loaded while the old one runs: answers and utterances already
begun finish with the old engine, later ones use the new one. Otherwise a spoken sentence warns the
sessions, and between two answers the old engine is closed and the new one loaded; speech in the
meantime is heard, and answered afterwards. If the new engine cannot be loaded, the old one stays,
or is loaded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from app.compose import Assistant, described
from app.models.engine_set import Engine, ReadyEngine, end
from pipeline.engines.registry import EngineOptions, Kind
from pipeline.errors import ConfigError, EngineError, ReachyVoiceError
from pipeline.workers.worker import Worker

OLD_ENDS_S = 120.0
"""How long an answer or utterance already begun may continue before its engine is unloaded."""
MOMENT_S = 60.0
"""How long to wait for a gap between answers; after that, new turns are held back as well."""
NOTICE_S = 10.0

Tell = Callable[[str], None]
Check = Callable[[Engine], Awaitable[None]]
Updated = Callable[[EngineOptions], EngineOptions]


async def _no_check(_: Engine) -> None:
    """For engines that need no check."""


class Exchange:
    """Replaces engines of one running assistant, one at a time."""

    def __init__(
        self, assistant: Assistant, has_room: Callable[[Kind, EngineOptions], bool]
    ) -> None:
        """``has_room``: whether memory has room for one more engine; may block."""
        self._assistant = assistant
        self._engines = assistant.engines
        self._has_room = has_room
        self._one = asyncio.Lock()

    async def exchange(
        self,
        kind: Kind,
        options: EngineOptions | None,
        tell: Tell,
        unload_first: bool | None = None,
        *,
        updated: Updated | None = None,
        check: Check = _no_check,
    ) -> None:
        """``options``: ``None`` takes those in use once earlier exchanges have ended. ``tell`` gets
        each step. ``unload_first``: ``None`` decides by memory; ignored for voice activity and turn
        detectors, which are never unloaded first. ``updated`` derives from ``options`` those to
        build with, which name other weights; may block. ``check`` raises ``ReachyVoiceError`` if
        the loaded engine is not good. Raises ``ReachyVoiceError`` if the new engine cannot be used;
        the old one is then back in place, unless it could not be reloaded either."""
        async with self._one:
            options = options or self._assistant.settings.engine(kind)
            weights = await asyncio.to_thread(updated, options) if updated else None
            if kind in (Kind.VAD, Kind.TURN):
                unload_first = False  # small, and sessions listen through them all the time
            elif unload_first is None:
                unload_first = not await asyncio.to_thread(self._has_room, kind, options)
            engine = await asyncio.to_thread(self._engines.build_substitute, options, kind, weights)
            if unload_first:
                await self._load_after(kind, engine, options, tell, check)
            else:
                await self._load_beside(kind, engine, options, tell, check)

    # -- beside the old one

    async def _load_beside(
        self, kind: Kind, engine: Engine, options: EngineOptions, tell: Tell, check: Check
    ) -> None:
        tell(f"loading {described(options)} beside {self._assistant.describe(kind)}")
        started = await self._engines.start(engine, kind)
        try:
            _require_fit(self._engines[kind], engine)
            await check(engine)
        except BaseException:
            engine.close()
            raise
        before = self._seat(kind, started, options)
        self._engines.retire(before, self._engines.stages.leases.ended)
        tell(f"{described(options)} is in place; turns already begun finish with the old one")

    # -- after the old one

    async def _load_after(
        self, kind: Kind, engine: Engine, options: EngineOptions, tell: Tell, check: Check
    ) -> None:
        before = self._assistant.settings.engine(kind)
        leases = self._engines.stages.leases
        await self._notify()
        tell("waiting for a gap between two answers")
        await _at_most(MOMENT_S, leases.none)
        leases.close()
        try:
            await _at_most(OLD_ENDS_S, leases.none)
            tell(f"unloading {described(before)}; new turns wait")
            self._engines.exchanging = kind
            await end(ReadyEngine(self._engines[kind], self._engines.life(kind)))
            tell(f"loading {described(options)}")
            try:
                started = await self._engines.start(engine, kind)
                try:
                    await check(engine)
                except BaseException:
                    await end(started)
                    raise
            except ReachyVoiceError as error:
                tell(f"it failed; loading {described(before)} again")
                await self._restore(kind, before, error)
                raise
            self._seat(kind, started, options)
            tell(f"{described(options)} is in place")
        finally:
            self._engines.exchanging = None
            leases.open()

    async def _restore(self, kind: Kind, options: EngineOptions, error: ReachyVoiceError) -> None:
        """Load the old engine again. Raises ``EngineError`` if that fails, too."""
        try:
            engine = await asyncio.to_thread(self._engines.build, options, kind)
            self._seat(kind, await self._engines.start(engine, kind), options)
        except ReachyVoiceError as second:
            self._engines[kind].problem = f"was replaced, and no engine could be loaded: {second}"
            raise EngineError(
                f"There is no {kind} engine now",
                why=f"{error}; and the old one: {second}",
                fix="Choose another one with `reachy-voice models use`, or restart the server",
            ) from second

    async def _notify(self) -> None:
        """Announce the pause in every session that can speak now."""
        sessions = list(self._assistant.sessions)
        notified = [s for s in sessions if s.notify(s.notices.exchange_notice)]

        async def all_heard() -> None:
            for session in notified:
                await session.quiet()

        await _at_most(NOTICE_S, all_heard)

    def _seat(self, kind: Kind, started: ReadyEngine, options: EngineOptions) -> ReadyEngine:
        settings = self._assistant.settings
        self._assistant.settings = settings.model_copy(update={str(kind): options})
        before = self._engines.seat(kind, started)
        if kind is Kind.LLM:
            for session in list(self._assistant.sessions):
                session.model_exchanged()
        return before


def _require_fit(old: Engine, new: Engine) -> None:
    """Sessions cut their audio to fit the voice activity and turn detectors that they began with.
    Raises ``ConfigError``."""
    if not (isinstance(old, Worker) and isinstance(new, Worker) and old.info and new.info):
        return
    same_windows = old.info.window_samples == new.info.window_samples
    if not (same_windows and old.info.history_seconds >= new.info.history_seconds):
        raise ConfigError(
            f"{new.name} cannot replace {old.name} in a running server",
            why="it takes audio windows of another size, or more of them",
            fix="Restart the server with it",
        )


async def _at_most(seconds: float, wait: Callable[[], Awaitable[None]]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await wait()
    except TimeoutError:
        pass
