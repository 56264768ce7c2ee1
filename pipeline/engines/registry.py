"""The known engines: what each needs, where it runs, and how it is built."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model
from pydantic.errors import PydanticUserError

from pipeline.errors import ConfigError, MissingExtra


class Kind(StrEnum):
    VAD = "vad"
    TURN = "turn"
    STT = "stt"
    LLM = "llm"
    TTS = "tts"
    SPEAKER = "speaker"
    """Runs only while someone is enrolled (``app.people``)."""


CORE = (Kind.VAD, Kind.TURN, Kind.STT, Kind.LLM, Kind.TTS)
"""The kinds that every conversation needs."""

Placement = Literal["inline", "thread", "process"]

Word = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=50)]


class EngineOptions(BaseModel):
    """Base of every engine's own YAML section; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    retired: ClassVar[tuple[str, ...]] = ()
    """Keys of earlier versions: accepted, but without effect."""

    engine: str
    run_in: Placement | None = None
    """Where the engine runs; unset: where its author recommends."""

    @property
    def weights_name(self) -> str | None:
        """Its weights in the catalogue, if it has any there."""
        return getattr(self, "weights", None)

    @property
    def judge(self) -> EngineOptions | None:
        """Options of the local model that judges whether words are complete, for an LLM that cannot
        (``llm.judged``)."""
        return None

    @property
    def batched(self) -> bool:
        """Whether ``pipeline.workers.batched`` runs the engine."""
        return False


class SttOptions(EngineOptions):
    """Base of every recogniser's section."""

    words: Annotated[tuple[Word, ...], Field(max_length=100)] = ("Reachy",)
    """Names and odd words of this household, which take the place of what sounds like them
    (``pipeline.hearing.keywords``); the engine itself does not know them."""


@dataclass(frozen=True, slots=True)
class _Spec:
    """What every engine declares."""

    name: str
    kind: Kind
    options: type[EngineOptions]
    """Its section of the YAML, whose ``weights`` names a catalogue entry."""
    build: Callable[[Any, Any], Any]
    summary: str = ""
    extra: str = ""
    """The optional dependency group that it needs, e.g. ``embedded``."""
    modules: tuple[str, ...] = ()
    """Import names of the packages it needs, checked before the engine is built."""


@dataclass(frozen=True, slots=True)
class EngineSpec(_Spec):
    """How to build one engine: ``build(options, weights)`` runs where the engine runs (maybe in a
    child process) and gets the path of its weights directory, or ``None``."""

    run_in: Placement = "thread"
    longest_step_s: float | None = None
    """A child process whose step takes longer counts as hung and is replaced.
    ``None``: the default of its kind (``pipeline.workers.tuning.LONGEST_STEP_S``)."""


@dataclass(frozen=True, slots=True)
class UrlEngineSpec(_Spec):
    """How to build an engine that is reached by URL.

    It is asynchronous and needs no worker: ``build(options, pool)`` returns a
    ``pipeline.engines.by_url.engine.UrlEngine``, which sessions call on the event loop.
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
    (Kind.SPEAKER, "resemblyzer"): "pipeline.engines.speaker.resemblyzer",
}
"""Modules with a ``SPEC``. Importing one imports nothing heavy."""

REPLACED = {(Kind.LLM, "openai-responses"): "openai-chat"}
"""Removed engines, and what replaces them in settings that still name them."""


def engine_names(kind: Kind) -> list[str]:
    """Built-in and third-party engines of one kind (entry points ``reachy_voice.<kind>``)."""
    return sorted({name for k, name in _BUILT_IN if k is kind} | _third_party_names(kind))


def engine_spec(kind: Kind, name: str) -> AnyEngineSpec:
    """Look an engine up. Raises ``ConfigError`` with the known names."""
    if module := _BUILT_IN.get((kind, name)):
        spec: AnyEngineSpec = importlib.import_module(module).SPEC
        return spec
    try:
        return find_third_party(kind, name)
    except LookupError:
        known = engine_names(kind)
        near = get_close_matches(name, known, n=1)
        raise ConfigError(
            f"There is no {kind} engine {name!r}",
            why=f"known are: {', '.join(known)}",
            fix=f"Did you mean {near[0]!r}?" if near else f"Set {kind}.engine to one of them",
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


def require_package(name: str, what: str, choice: str = "") -> None:
    """Raise ``MissingExtra`` if the package that ``what`` needs is not installed. ``choice``: the
    setting for which ``setup`` installs it, if the owner may not have it in a file."""
    if importlib.util.find_spec(name) is None:
        command = f"reachy-voice setup --set {choice}" if choice else "reachy-voice setup"
        raise MissingExtra(
            f"{what} needs packages that are not installed",
            why=f"cannot import {name}",
            fix=f"Run: {command} (with your --config, if you have one)",
        )


# --- engines of others ---------------------------------------------------------------------------
#
# Third-party engines are found by entry point, and need not import anything from this package. An
# entry point in the group ``reachy_voice.<kind>`` names an object (usually a module) with
#
#     build(options, weights)   -> the engine; see the protocols in ``pipeline.engines.contract``
#     Options                   a class whose annotated attributes are the keys of the YAML section,
#                               with their defaults; optional
#     run_in                    "thread" (the default), "process" or "inline"; optional
#     summary                   one line; optional
#
# or an ``EngineSpec`` or ``UrlEngineSpec``. See docs/engines.md.


class TheirOptions(EngineOptions):
    """Base of all third-party options. Unpickled by name: a child process has no such class until
    it loads the engine."""

    kind: ClassVar[Kind]

    def __reduce__(self) -> tuple[Callable[..., EngineOptions], tuple[Kind, dict[str, Any]]]:
        return _options_again, (self.kind, self.model_dump())


class TheirSttOptions(TheirOptions, SttOptions):
    """Base of the options of third-party recognisers."""


class TheirSpec(EngineSpec):
    """A spec that a child process looks up again by name."""

    def __reduce__(self) -> tuple[Callable[..., AnyEngineSpec], tuple[Kind, str]]:
        return find_third_party, (self.kind, self.name)


def _third_party_names(kind: Kind) -> set[str]:
    return {point.name for point in importlib.metadata.entry_points(group=f"reachy_voice.{kind}")}


def find_third_party(kind: Kind, name: str) -> AnyEngineSpec:
    """The spec of the third-party engine ``name``. Raises ``ConfigError`` if it cannot be used,
    ``LookupError`` if it is not installed."""
    points = importlib.metadata.entry_points(group=f"reachy_voice.{kind}", name=name)
    if not points:
        raise LookupError(name)
    point = next(iter(points))
    where = f"the {kind} engine {name!r}, entry point {point.value!r}"
    try:
        thing = point.load()
    except Exception as problem:
        raise _unusable(where, f"{type(problem).__name__}: {problem}") from problem
    if isinstance(thing, EngineSpec | UrlEngineSpec):
        return thing
    return _spec(kind, name, thing, where)


def _spec(kind: Kind, name: str, thing: Any, where: str) -> EngineSpec:
    build = getattr(thing, "build", None)
    if not callable(build):
        raise _unusable(where, "it has no function build(options, weights)")
    run_in: Placement = getattr(thing, "run_in", "thread")
    if run_in not in typing.get_args(Placement):
        raise _unusable(where, f"its run_in is {run_in!r}, not thread, process or inline")
    options = _options(kind, name, getattr(thing, "Options", None), where)
    summary = str(getattr(thing, "summary", ""))
    return TheirSpec(name, kind, options, build, summary, run_in=run_in)


def _options(kind: Kind, name: str, theirs: Any, where: str) -> type[EngineOptions]:
    """A pydantic model with the annotated attributes of ``theirs``; one without a default is
    required."""
    fields: dict[str, Any] = {"engine": (Literal[name], name)}
    if theirs is not None:
        try:
            hints = typing.get_type_hints(theirs, include_extras=True)
        except Exception as problem:
            raise _unusable(where, f"its Options: {problem}") from problem
        for key, hint in hints.items():
            fields[key] = (hint, _default(theirs, key))
    title = f"{name} options"
    base: type[TheirOptions] = TheirOptions
    if kind is Kind.STT and "words" not in fields:
        base = TheirSttOptions
    try:
        model: type[TheirOptions] = create_model(title, __base__=base, **fields)
    except (PydanticUserError, TypeError, ValueError, NameError) as problem:
        why = str(problem).partition("\n")[0]
        raise _unusable(where, f"its Options cannot be used: {why}") from problem
    model.kind = kind
    return model


def _default(theirs: Any, key: str) -> Any:
    """The default of one attribute, or ``...`` if it has none. A dataclass keeps its defaults in
    its fields."""
    for field in dataclasses.fields(theirs) if dataclasses.is_dataclass(theirs) else ():
        if field.name == key:
            if field.default_factory is not dataclasses.MISSING:
                return Field(default_factory=field.default_factory)
            return ... if field.default is dataclasses.MISSING else field.default
    return inspect.getattr_static(theirs, key, ...)


def _options_again(kind: Kind, values: dict[str, Any]) -> EngineOptions:
    return find_third_party(kind, values["engine"]).options.model_validate(values)


def _unusable(where: str, why: str) -> ConfigError:
    return ConfigError(
        f"{where[0].upper()}{where[1:]}, cannot be used",
        why=why,
        fix="Report this to its author (see docs/engines.md), or choose another engine",
    )
