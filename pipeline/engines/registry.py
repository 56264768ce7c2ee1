"""The known engines: what each needs, where it runs, and how it is built."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from pipeline.errors import ConfigError, MissingExtra


class Kind(StrEnum):
    VAD = "vad"
    TURN = "turn"
    STT = "stt"
    LLM = "llm"
    TTS = "tts"


Placement = Literal["inline", "thread", "process"]


class EngineOptions(BaseModel):
    """Base of every engine's own YAML section; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    retired: ClassVar[tuple[str, ...]] = ()
    """Keys of earlier versions: accepted, but without effect."""

    engine: str
    run_in: Placement | None = None
    """Where the engine runs; unset: where its author recommends."""

    @property
    def judge(self) -> EngineOptions | None:
        """Options of the local model that judges words for an LLM that cannot (``llm.judged``)."""
        return None

    @property
    def batched(self) -> bool:
        """Whether ``pipeline.workers.batched`` runs the engine."""
        return False


@dataclass(frozen=True, slots=True)
class _Spec:
    """What every engine declares. ``options``: its section of the YAML; the option ``weights``
    names a catalogue entry."""

    name: str
    kind: Kind
    options: type[EngineOptions]
    build: Callable[[Any, Any], Any]
    summary: str = ""
    extra: str = ""
    """The optional dependency group that it needs, e.g. ``embedded``."""
    modules: tuple[str, ...] = ()
    """Import names of its packages, so that a missing one is noticed before it is needed."""


@dataclass(frozen=True, slots=True)
class EngineSpec(_Spec):
    """How to build one engine: ``build(options, weights)`` runs where the engine runs (maybe in a
    child process) and gets the directory of its weights, or ``None``."""

    run_in: Placement = "thread"
    longest_step_s: float | None = None
    """If a step in a child process takes longer, it counts as hung and the child is replaced.
    ``None``: the default of its kind (``pipeline.workers.tuning.LONGEST_STEP_S``)."""


@dataclass(frozen=True, slots=True)
class UrlEngineSpec(_Spec):
    """How to build an engine that is reached by URL.

    It is asynchronous and needs no worker: ``build(options, pool)`` returns a
    ``pipeline.engines.by_url.engine.UrlEngine``, whose ``stage`` sessions use on the event loop.
    ``pool`` is the HTTP client that all such engines share (``pipeline.engines.by_url.pool.Pool``).
    """


AnyEngineSpec = EngineSpec | UrlEngineSpec

_BUILT_IN: dict[tuple[Kind, str], str] = {
    (Kind.VAD, "silero"): "pipeline.engines.vad.silero",
    (Kind.TURN, "smart-turn"): "pipeline.engines.turn.smart_turn",
    (Kind.TURN, "turn-1-mini"): "pipeline.engines.turn.turn_1_mini",
    (Kind.TURN, "silence"): "pipeline.engines.turn.silence",
    (Kind.STT, "moonshine"): "pipeline.engines.stt.moonshine",
    (Kind.STT, "parakeet"): "pipeline.engines.stt.parakeet",
    (Kind.STT, "whisper"): "pipeline.engines.stt.whisper",
    (Kind.STT, "openai-transcriptions"): "pipeline.engines.stt.openai_transcriptions",
    (Kind.LLM, "llama-cpp"): "pipeline.engines.llm.llama_cpp",
    (Kind.LLM, "openai-chat"): "pipeline.engines.llm.openai_chat",
    (Kind.TTS, "piper"): "pipeline.engines.tts.piper",
    (Kind.TTS, "espeak-ng"): "pipeline.engines.tts.espeak_ng",
    (Kind.TTS, "openai-speech"): "pipeline.engines.tts.openai_speech",
    (Kind.TTS, "qwen3-tts"): "pipeline.engines.tts.qwen3_tts",
}
"""Modules with a ``SPEC``. Importing one imports nothing heavy."""

REPLACED = {(Kind.LLM, "openai-responses"): "openai-chat"}
"""Removed engines, and the engine that settings naming them get instead."""


def engine_names(kind: Kind) -> list[str]:
    """Built-in and third-party engines of one kind (entry points ``reachy_voice.<kind>``)."""
    from pipeline.engines.third_party import names

    return sorted({name for k, name in _BUILT_IN if k is kind} | names(kind))


def engine_spec(kind: Kind, name: str) -> AnyEngineSpec:
    """Look an engine up. Raises ``ConfigError`` with the known names."""
    from pipeline.engines.third_party import find

    if module := _BUILT_IN.get((kind, name)):
        spec: AnyEngineSpec = importlib.import_module(module).SPEC
        return spec
    try:
        return find(kind, name)
    except LookupError:
        raise ConfigError(
            f"There is no {kind} engine called {name!r}",
            why=f"known are: {', '.join(engine_names(kind))}",
            fix=f"Set {kind}.engine to one of them",
        ) from None


def require_modules(spec: AnyEngineSpec) -> None:
    """Raise ``MissingExtra`` if a package that the engine imports is not installed."""
    missing = [name for name in spec.modules if importlib.util.find_spec(name) is None]
    if missing:
        ours = (spec.kind, spec.name) in _BUILT_IN
        command = f"reachy-voice setup --set {spec.kind}.engine={spec.name}"
        raise MissingExtra(
            f"The {spec.kind} engine {spec.name!r} needs packages that are not installed",
            why=f"cannot import {', '.join(missing)}",
            fix=f"Run: {command} (with your --config, if you have one)"
            if ours
            else "Install the packages that its makers list into this environment",
        )
