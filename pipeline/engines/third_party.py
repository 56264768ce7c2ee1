"""Engines of other people, found by entry point, which need to import nothing of ours.

An entry point of the group ``reachy_voice.<kind>`` names an object (a module, most simply) with

    build(options, weights)     -> the engine; see the protocols in ``pipeline.engines.contract``
    Options                     a class whose annotated attributes are the section of the YAML, with
                                their defaults; optional
    run_in                      "thread" (as without it), "process" or "inline"; optional
    summary                     one line; optional

or an ``EngineSpec`` or ``UrlEngineSpec`` itself. See docs/engines.md.
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
    """Base of the options of all of them. Unpickled by name: a child process has no such class
    before it has found the engine."""

    kind: ClassVar[Kind]

    def __reduce__(self) -> tuple[Callable[..., EngineOptions], tuple[Kind, dict[str, Any]]]:
        return _options_again, (self.kind, self.model_dump())


class TheirSpec(EngineSpec):
    """Found again by its name in a child process."""

    def __reduce__(self) -> tuple[Callable[..., AnyEngineSpec], tuple[Kind, str]]:
        return find, (self.kind, self.name)


def names(kind: Kind) -> set[str]:
    """Of all engines that are installed besides ours."""
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
        raise _unusable(where, f"its run_in is {run_in!r}, and not thread, process or inline")
    options = _options(kind, name, getattr(thing, "Options", None), where)
    summary = str(getattr(thing, "summary", ""))
    return TheirSpec(name, kind, options, build, summary, run_in=run_in)


def _options(kind: Kind, name: str, theirs: Any, where: str) -> type[EngineOptions]:
    """A model with the annotated attributes of ``theirs``; one without a default must be set."""
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
        fix="Tell its author (docs/engines.md says what it needs), or choose another engine",
    )
