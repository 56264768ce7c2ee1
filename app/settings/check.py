"""Check a merged tree of settings and report every problem with its file, line and key."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from app.settings.model import TLS_FILES, Settings
from app.settings.yaml_tree import Branch, Leaf, Node, origin_of, plain
from pipeline.engines.registry import REPLACED, EngineOptions, Kind, engine_spec
from pipeline.errors import ConfigError

log = logging.getLogger("reachy_voice.settings")

EXTENDS = "extends"
"""The one top-level key that is not a setting."""


_ADVICE = defaultdict(
    str,
    empty="; remove it to have the default",
    bool_type="; write true or false",
    tuple_type="; write a list, as in [a, b]",
    string_type="; write text, in quotes",
    dict_type="; write keys and values",
    model_type="; write keys and values",
)
"""What to do, by pydantic's type of error."""


class SettingsError(ConfigError):
    """The settings cannot be used; ``problems`` has one line for each problem."""

    def __init__(self, problems: list[str]) -> None:
        one = len(problems) == 1
        super().__init__(
            "The settings cannot be used" if one else f"{len(problems)} settings cannot be used",
            why="\n       ".join(problems),  # below the first one, as the command line shows it
            fix="`reachy-voice config explain` shows every key, its value and where it comes from",
        )
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[type[SettingsError], tuple[list[str]]]:
        return type(self), (list(self.problems),)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return super().__str__()
        listed = "".join(f"\n  {problem}" for problem in self.problems)
        return f"The settings have {len(self.problems)} problems:{listed}\n{self.fix}"


def check(tree: Branch) -> Settings:
    """Validate each section against its model. Raises ``SettingsError`` with every problem."""
    problems: list[str] = []
    sections: dict[str, BaseModel] = {}
    models = _models(tree, problems)
    for name, node in tree.children.items():
        if name in models:
            checked = _section(name, node, models[name], models, problems)
            if checked is not None:
                sections[name] = checked
        elif name not in Settings.model_fields and name != EXTENDS:
            problems.append(_unknown(tree, (name,), models))
    problems += [f"{kind}: this section is missing" for kind in Kind if kind not in tree.children]
    if problems:
        raise SettingsError(problems)
    return Settings.model_validate(sections)


def _models(tree: Branch, problems: list[str]) -> dict[str, type[BaseModel]]:
    """Section -> the model that it must match. Sections without a usable engine are left out."""
    models: dict[str, type[BaseModel]] = {}
    for name, field in Settings.model_fields.items():
        if name not in list(Kind):
            models[name] = _as_model(field.annotation)
        elif name in tree.children:
            options = _options(Kind(name), tree.children[name], problems)
            if options is not None:
                models[name] = options
    return models


def _options(kind: Kind, node: Node, problems: list[str]) -> type[EngineOptions] | None:
    engine = node.children.get("engine") if isinstance(node, Branch) else None
    if not isinstance(node, Branch) or engine is None:
        problems.append(f"{node.origin}: {kind} must name its engine: `{kind}: {{engine: ...}}`")
        return None
    name = str(plain(engine))
    if new := REPLACED.get((kind, name)):
        sent = "; extra is sent to it as it is" if "extra" in node.children else ""
        log.warning("%s: %s.engine: %s is now %s%s", engine.origin, kind, name, new, sent)
        node.children["engine"], name = Leaf(new, engine.origin), new
    try:
        return engine_spec(kind, name).options
    except (ImportError, AttributeError) as error:
        problems.append(f"{engine.origin}: {kind}.engine: {name!r} cannot be loaded: {error}")
    except ConfigError as error:
        problems.append(f"{engine.origin}: {kind}.engine: {error}")
    return None


def _section(
    name: str,
    node: Node,
    model: type[BaseModel],
    models: dict[str, type[BaseModel]],
    problems: list[str],
) -> BaseModel | None:
    """Validate one section, in JSON mode because YAML has no tuples, paths or enums either."""
    if isinstance(node, Leaf):
        keys = ", ".join(model.model_fields)
        problems.append(f"{node.origin}: {name} must be a section with keys ({keys})")
        return None
    for key in set(getattr(model, "retired", ())) & node.children.keys():
        origin = node.children.pop(key).origin
        log.warning("%s: %s.%s no longer has an effect; remove it", origin, name, key)
    try:
        return model.model_validate_json(json.dumps(plain(node)), strict=True)
    except ValidationError as errors:
        details = errors.errors(include_url=False, include_context=False)
        problems.extend(_problem(node, name, error, models) for error in details)
        return None


def _problem(
    section: Branch, name: str, error: ErrorDetails, models: dict[str, type[BaseModel]]
) -> str:
    loc = tuple(part for part in error["loc"] if part != TLS_FILES)
    if error["type"] == "extra_forbidden":
        return _unknown(Branch("", {name: section}), (name, *loc), models)
    key = ".".join(str(part) for part in (name, *loc))
    message = error["msg"].removeprefix("Value error, ")
    garbled = error["type"] == "json_invalid"  # we wrote the JSON, so only its text can be wrong
    if garbled:
        message = "holds text that is not valid UTF-8"
    silent = garbled or isinstance(error["input"], dict) or _hidden(models[name], loc)
    got = "" if silent else f", not {json.dumps(error['input'])}"
    advice = _ADVICE["empty" if error["input"] is None else error["type"]]
    return f"{origin_of(section, loc)}: {key}: {message[0].lower()}{message[1:]}{got}{advice}"


def _hidden(model: type[BaseModel], loc: tuple[int | str, ...]) -> bool:
    """Whether ``loc`` is, or contains, a field that is never shown (``repr=False``)."""
    inner, field = _inside(model, loc)
    return any(not each.repr for each in ([field] if field else inner.model_fields.values()))


def _inside(
    model: type[BaseModel], loc: tuple[int | str, ...]
) -> tuple[type[BaseModel], FieldInfo | None]:
    """The innermost model on the way to ``loc``, and its field where the way ends, if any."""
    keys = iter(loc)
    for key in keys:
        field = model.model_fields.get(str(key))
        if not (field and (inner := _inner_model(field.annotation))):
            return model, field
        if get_origin(field.annotation) in (dict, tuple):
            next(keys, None)  # a name that the owner chose, or a place in a list
        model = inner
    return model, None


# --- keys --------------------------------------------------------------------------------------


def _unknown(tree: Branch, keys: tuple[str | int, ...], models: dict[str, type[BaseModel]]) -> str:
    """Suggest the nearest valid key: in the same section if possible, else anywhere."""
    key = ".".join(map(str, keys))
    section, *inner = keys
    siblings = _inside(models[str(section)], (*inner[:-1],))[0].model_fields if inner else models
    near = get_close_matches(str(keys[-1]), siblings, n=1)
    everything = list(_dotted(models))
    if key in everything:  # written with dots, as in --set
        parts = key.split(".")
        hint = f"write {': {'.join(parts)}: ...{'}' * (len(parts) - 1)}"
    elif near:
        hint = f"did you mean {'.'.join(map(str, (*keys[:-1], *near)))}?"
    elif elsewhere := _elsewhere(str(keys[-1]), everything):
        hint = f"did you mean {elsewhere}?"
    else:
        hint = f"known here: {', '.join(siblings)}"
    return f"{origin_of(tree, keys)}: {key} is not a known key; {hint}"


def _elsewhere(name: str, everything: list[str]) -> str:
    """The key in another section that is the same, or nearly; else empty."""
    last = {key.rpartition(".")[2]: key for key in reversed(everything)}
    near = get_close_matches(name, last, n=1, cutoff=0.8)
    return last[near[0]] if near else ""


def _dotted(models: dict[str, type[BaseModel]]) -> Iterator[str]:
    for name, model in models.items():
        yield name
        yield from (f"{name}.{key}" for key in _keys(model))


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield name
        if (inner := _inner_model(field.annotation)) is not None:
            yield from (f"{name}.{key}" for key in _keys(inner))


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    """The model in ``Model``, ``Model | None`` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_inner_model, get_args(annotation))), None)


def _as_model(annotation: Any) -> type[BaseModel]:
    model = _inner_model(annotation)
    assert model is not None, annotation
    return model
