"""The engines of all profiles, for a page to offer, with what each needs and speaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import SecretStr

from app.access.api_errors import ApiError
from app.compose import Assistant, synthesize_alone
from app.models.engine_memory import EngineMemory
from app.models.engine_set import at_once
from app.models.gpu import Gpus, find_gpus
from app.models.memory_room import has_room
from app.models.weights import WeightsCache
from app.settings.load import profile_names
from app.settings.model import Settings
from pipeline.audio import wav
from pipeline.engines.registry import (
    CORE,
    AnyEngineSpec,
    EngineOptions,
    EngineSpec,
    Kind,
    engine_spec,
    require_modules,
)
from pipeline.errors import EngineError, MissingExtra
from pipeline.messages import SpeechRequest
from pipeline.work import Work

SENTENCE = "Hello, I am Reachy. It is good to talk with you."
AS_STARTED = ""
"""Stands for the settings with which the server was started, in place of a profile's name."""

Load = Callable[[str], Settings]
"""Reads the settings of a profile, or ``AS_STARTED``."""


class Choices:
    """All methods but ``speak`` block."""

    def __init__(self, assistant: Assistant, cache: WeightsCache, load: Load) -> None:
        self._assistant = assistant
        self._cache = cache
        self._load = load
        self._profiles: dict[str, Settings] = {}
        """Settings read so far: profiles take a tenth of a second each, and do not change."""

    def rows(self) -> list[dict[str, Any]]:
        """One row for each engine and its weights, from the first profile that has them."""
        gpus = find_gpus()
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        for profile in (AS_STARTED, *profile_names()):
            for kind, options in self._engines(profile):
                if (key := _key(kind, options)) not in rows:
                    rows[key] = {"profile": profile, **self._row(kind, options, gpus)}
        return list(rows.values())

    def standing(self, profile: str) -> dict[str, bool]:
        """Whether the engines and models of ``profile`` are running, and whether an engine needs
        packages that are not installed."""
        pairs, running = list(self._engines(profile)), self._assistant.settings
        return {
            "in_place": all(_key(k, each) == _key(k, running.engine(k)) for k, each in pairs),
            "needs_setup": any(_packages(engine_spec(k, each.engine)) for k, each in pairs),
        }

    def changed(self) -> bool:
        """Whether any engine's options differ from those at the start."""
        return not all(self._runs(*each) for each in self._engines(AS_STARTED))

    def plan(self, profile: str, only: str | None) -> tuple[list[str], list[str]]:
        """The weights to fetch, and the assignments (as for ``reachy-voice models use``) that
        replace the engine of kind ``only``, or all engines, by those of ``profile``. Raises
        ``MissingExtra``."""
        pairs = [pair for pair in self._engines(profile) if only in (None, pair[0])]
        for kind, each in pairs:
            require_modules(engine_spec(kind, each.engine))
        names = [name for _, each in pairs if (name := each.weights_name)]
        return self._cache.missing(names), [
            f"{kind}={json.dumps(each.model_dump(), ensure_ascii=False, default=_text)}"
            for kind, each in pairs
        ]

    async def speak(self, profile: str, voice: str) -> bytes:
        """A sentence as WAV from the voice engine of ``profile``, in ``voice`` or the default
        voice. Raises ``ReachyVoiceError``."""
        settings = await asyncio.to_thread(self._settings, profile)
        if self._runs(Kind.TTS, settings.tts):
            tts = self._assistant.stages.tts
            request = SpeechRequest(SENTENCE, voice)
            pieces = [pcm async for pcm in tts.synthesize(request, Work())]
            return wav(np.concatenate(pieces), tts.rate)
        if not await asyncio.to_thread(has_room, self._cache, Kind.TTS, settings.tts):
            raise EngineError(
                "This voice cannot be tried beside the one in use",
                why="memory has no room for both",
                fix="Use it, and try it then",
            )
        settings = settings.model_copy(update={"tts": at_once(settings.tts)})
        ((pcm, rate),) = await synthesize_alone(settings, self._cache, [SENTENCE])
        return wav(pcm, rate)

    def _settings(self, profile: str) -> Settings:
        """Takes names of profiles only: a path would let a page read files."""
        if profile not in (AS_STARTED, *profile_names()):
            raise ApiError(400, "unknown_profile", f"There is no profile called {profile!r}.")
        if profile == AS_STARTED:
            return self._load(profile)
        if profile not in self._profiles:
            self._profiles[profile] = self._load(profile)
        return self._profiles[profile]

    def _engines(self, profile: str) -> Iterator[tuple[Kind, EngineOptions]]:
        settings = self._settings(profile)
        return ((kind, settings.engine(kind)) for kind in CORE)

    def _runs(self, kind: Kind, options: EngineOptions) -> bool:
        return self._assistant.settings.engine(kind) == options

    def _row(self, kind: Kind, options: EngineOptions, gpus: Gpus) -> dict[str, Any]:
        spec = engine_spec(kind, options.engine)
        name = options.weights_name
        entry = self._cache.catalogue[name] if name else None
        running = _key(kind, options) == _key(kind, self._assistant.settings.engine(kind))
        row = {
            "kind": kind,
            "engine": options.engine,
            "name": name or options.engine,
            "url": getattr(options, "url", None) or "",
            "summary": entry.summary if entry else spec.summary,
            "languages": (entry.languages if entry else ()) or [*getattr(options, "languages", ())],
            "licence": entry.licence if entry else "",
            "size_bytes": entry.size if entry else 0,
            "here": not name or self._cache.state(name) == "present",
            "memory_mb": 0,
            "needs": _packages(spec),
            "running": running,
        }
        if isinstance(spec, EngineSpec):
            memory = EngineMemory(spec, options, self._cache.catalogue, None)
            row["memory_mb"] = sum(part.memory_mb for part in memory.parts())
            if memory.wants_gpu and not gpus.found:
                row["needs"] = row["needs"] or "a GPU"
        return row


def _packages(spec: AnyEngineSpec) -> str:
    """The packages that are not installed, and what installs them; else empty."""
    try:
        require_modules(spec)
    except MissingExtra as error:
        return f"{error.why}. {error.fix}"
    return ""


def _key(kind: Kind, options: EngineOptions) -> tuple[Any, ...]:
    """A key that is equal for the same engine with the same model, whatever its other options."""
    details = (getattr(options, key, None) for key in ("weights", "model_file", "url"))
    return kind, options.engine, *details


def _text(value: SecretStr | Path) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
