"""The settings of a running server, whose engines can be replaced without a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from app.compose import Assistant
from app.server.exchange import Exchange, Tell
from app.settings.model import LoadedSettings, Settings
from pipeline.engines.registry import CORE, Kind
from pipeline.errors import ConfigError, ReachyVoiceError

log = logging.getLogger("reachy_voice.settings")

STEP_MS, MOST_MS = 1000, 10_000
"""A changed file is read ``STEP_MS`` after the last write, but no later than ``MOST_MS`` after the
first: an editor may write it in pieces."""

Load = Callable[[Sequence[str]], LoadedSettings]
"""Reads the same files and options again, plus more assignments of ``section.key=value``."""


class LiveSettings:
    """``use`` carries out a request; ``watch`` follows the files until it is cancelled."""

    def __init__(
        self, loaded: LoadedSettings, load: Load, assistant: Assistant, exchange: Exchange
    ) -> None:
        self._loaded = loaded
        self._load = load
        self._assistant = assistant
        self._exchange = exchange
        self._files = _resolved(loaded)
        self._owed: set[Kind] = set()
        """Engines changed in the files but not yet replaced: one that failed is tried again at the
        next change."""
        self._used: dict[Kind, list[str]] = {}
        """What ``use`` was asked for; a later change of a file overrides it."""

    async def use(
        self, assignments: Sequence[str], tell: Tell, unload_first: bool | None = None
    ) -> None:
        """Replace the engines that ``tts=piper`` or ``llm.threads=2`` change. Raises
        ``ReachyVoiceError``; engines replaced before the error stay."""

        def say(step: str) -> None:
            _log_step(step)
            tell(step)

        asked: dict[Kind, list[str]] = {}
        for assignment in assignments:
            kind, key, whole = _in_full(assignment)
            anew = key in (kind, f"{kind}.engine")
            before = [] if anew else asked.get(kind, self._used.get(kind, []))
            asked[kind] = [*before, whole]
        loaded = await asyncio.to_thread(self._load, [line for of in asked.values() for line in of])
        changed = [kind for kind in asked if self._differs(kind, loaded.settings)]
        if not changed:
            say("nothing to do: that is already running")
        for kind in changed:
            await self._exchange.exchange(kind, loaded.settings.engine(kind), say, unload_first)
            self._used[kind] = asked[kind]

    def _differs(self, kind: Kind, wanted: Settings) -> bool:
        return wanted.engine(kind) != self._assistant.settings.engine(kind)

    async def watch(self) -> None:
        """Replace an engine when its section of a YAML file changes. Errors in a file are logged,
        and the engines stay."""
        while True:
            await self._follow(self._files)

    async def _follow(self, files: AbstractSet[Path]) -> None:
        """Follow these files until the set changes, because one now extends another."""
        from watchfiles import awatch

        # Watch the folders, because editors write a new file and rename it.
        folders = {file.parent for file in files}
        changes = awatch(
            *folders,
            watch_filter=lambda _, path: Path(path) in files,
            recursive=False,
            step=STEP_MS,
            debounce=MOST_MS,
        )
        async for _ in changes:
            try:
                await self._follow_files()
            except ReachyVoiceError as error:
                log.error("the changed settings are not used: %s", error)
            except Exception:
                log.exception("the changed settings are not used")
            if self._files != files:
                return

    async def _follow_files(self) -> None:
        before = self._loaded.settings
        self._loaded = await asyncio.to_thread(self._load, ())
        self._files = await asyncio.to_thread(_resolved, self._loaded)
        now = self._loaded.settings
        for section in _changed_sections(before, now):
            if section in _ENGINES:
                self._owed.add(Kind(section))
                self._used.pop(Kind(section), None)
            else:
                log.warning("%s was changed; this takes effect when the server restarts", section)
        for kind in [kind for kind in CORE if kind in self._owed]:
            try:
                if self._differs(kind, now):
                    await self._exchange.exchange(kind, now.engine(kind), _log_step)
                self._owed.discard(kind)
            except ReachyVoiceError as error:
                log.error("%s cannot be changed to what the file says: %s", kind, error)


_ENGINES = frozenset(map(str, CORE))


def _resolved(loaded: LoadedSettings) -> frozenset[Path]:
    """Also the owner's file that may come, where its folder can be watched."""
    own = [loaded.own] if loaded.own and loaded.own.parent.is_dir() else []
    return frozenset(file.resolve() for file in (*loaded.files, *own))


def _log_step(step: str) -> None:
    log.info("%s", step)


def _changed_sections(before: Settings, now: Settings) -> Iterator[str]:
    for section in Settings.model_fields:
        if getattr(before, section) != getattr(now, section):
            yield section


def _in_full(assignment: str) -> tuple[Kind, str, str]:
    """The engine, its key, and the assignment for ``--set``: ``tts=piper`` is short for
    ``tts.engine=piper``. Raises ``ConfigError``."""
    key, equals, value = assignment.partition("=")
    section = key.partition(".")[0]
    if section in _ENGINES:
        short = key == section and not value.lstrip().startswith("{")
        whole = f"{key}.engine{equals}{value}" if short else assignment
        return Kind(section), key, whole
    raise ConfigError(
        f"{section!r} cannot be changed while the server runs",
        why=f"only engines can: {', '.join(CORE)}",
        fix="Write it into the settings and restart the server",
    )
