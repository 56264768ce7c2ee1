"""The JSON schema of a settings file, for completion and validation in an editor."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.settings.check import EXTENDS
from app.settings.load import config_dir
from app.settings.model import Settings
from pipeline.engines.registry import Kind, engine_names, engine_spec


def schema_path() -> Path:
    """Path of the generated schema."""
    return config_dir() / "schema.json"


def schema_text() -> str:
    """The text that ``schema_path()`` must contain."""
    return json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n"


def build_schema() -> dict[str, Any]:
    """The settings, with the options of every built-in engine.

    No key is required, because a file may contain only what it changes. For the same reason an
    engine section is ``anyOf``: without ``engine`` it may match several.
    """
    engines = {kind: _options(kind) for kind in Kind}
    models: list[type[BaseModel]] = [Settings, *(m for o in engines.values() for m in o.values())]
    refs, schema = models_json_schema([(model, "validation") for model in models])
    definitions = schema["$defs"]
    root = definitions.pop(_name(refs[Settings, "validation"]))
    for kind, options in engines.items():
        choices = [refs[model, "validation"] for model in options.values()]
        root["properties"][kind] = choices[0] if len(choices) == 1 else {"anyOf": choices}
        for name, ref in zip(options, choices, strict=True):
            definitions[_name(ref)]["properties"]["engine"] = {"const": name}
    extends = {"type": "string", "description": "The profile or file that this one starts from."}
    root["properties"][EXTENDS] = extends
    definitions.pop("EngineOptions", None)
    for definition in (root, *definitions.values()):
        definition.pop("required", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "title": "reachy-voice settings",
        "$defs": dict(sorted(definitions.items())),
    }


def _name(ref: dict[str, Any]) -> str:
    """``SileroOptions`` of ``{"$ref": "#/$defs/SileroOptions"}``."""
    return str(ref["$ref"]).rpartition("/")[2]


def _options(kind: Kind) -> dict[str, type[BaseModel]]:
    """Built-in engines only: the schema must not depend on what else is installed."""
    points = importlib.metadata.entry_points(group=f"reachy_voice.{kind}")
    others = {point.name for point in points}
    names = [name for name in engine_names(kind) if name not in others]
    return {name: engine_spec(kind, name).options for name in names}
