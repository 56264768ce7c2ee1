"""Third-party engines, found by entry point. They need not import anything from this package.

An entry point in the group ``reachy_voice.<kind>`` names an object (usually a module) with

    build(options, weights)     -> the engine; see the protocols in ``pipeline.engines.contract``
    Options                     a class whose annotated attributes are the keys of the YAML section,
                                with their defaults; optional
    run_in                      "thread" (the default), "process" or "inline"; optional
    summary                     one line; optional

or an ``EngineSpec`` or ``UrlEngineSpec``. See docs/engines.md.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import typing
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pydantic import Field, create_model
from pydantic.errors import PydanticUserError

from pipeline.engines.registry import (
    AnyEngineSpec,
    EngineOptions,
    EngineSpec,
    Kind,
    Placement,
    UrlEngineSpec,
)
from pipeline.errors import ConfigError


class TheirOptions(EngineOptions):
    """Base of all third-party options. Unpickled by name: a child process does not have the class
    until it has found the engine."""

    kind: ClassVar[Kind]

    def __reduce__(self) -> tuple[Callable[..., EngineOptions], tuple[Kind, dict[str, Any]]]:
        return _options_again, (self.kind, self.model_dump())


class TheirSpec(EngineSpec):
    """A spec that a child process looks up again by name."""

    def __reduce__(self) -> tuple[Callable[..., AnyEngineSpec], tuple[Kind, str]]:
        return find, (self.kind, self.name)


def names(kind: Kind) -> set[str]:
    """Names of all installed third-party engines."""
    return {point.name for point in importlib.metadata.entry_points(group=f"reachy_voice.{kind}")}


def find(kind: Kind, name: str) -> AnyEngineSpec:
    """The engine with that name. Raises ``ConfigError`` if it cannot be used, ``LookupError``
    if it is not installed."""
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
    """A model with the annotated attributes of ``theirs``; those without a default are required."""
    fields: dict[str, Any] = {"engine": (Literal[name], name)}
    if theirs is not None:
        try:
            hints = typing.get_type_hints(theirs, include_extras=True)
        except Exception as problem:
            raise _unusable(where, f"its Options: {problem}") from problem
        for key, hint in hints.items():
            fields[key] = (hint, _default(theirs, key))
    title = f"{name} options"
    try:
        model: type[TheirOptions] = create_model(title, __base__=TheirOptions, **fields)
    except (PydanticUserError, TypeError, ValueError, NameError) as problem:
        why = str(problem).partition("\n")[0]
        raise _unusable(where, f"its Options cannot be used: {why}") from problem
    model.kind = kind
    return model


def _default(theirs: Any, key: str) -> Any:
    """The default of one attribute, or ``...``. A dataclass keeps its defaults in its fields."""
    for field in dataclasses.fields(theirs) if dataclasses.is_dataclass(theirs) else ():
        if field.name == key:
            if field.default_factory is not dataclasses.MISSING:
                return Field(default_factory=field.default_factory)
            return ... if field.default is dataclasses.MISSING else field.default
    return inspect.getattr_static(theirs, key, ...)


def _options_again(kind: Kind, values: dict[str, Any]) -> EngineOptions:
    return find(kind, values["engine"]).options.model_validate(values)


def _unusable(where: str, why: str) -> ConfigError:
    return ConfigError(
        f"{where[0].upper()}{where[1:]}, cannot be used",
        why=why,
        fix="Report this to its author (see docs/engines.md), or choose another engine",
    )
