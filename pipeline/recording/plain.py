"""Converts the pipeline's frozen dataclasses to plain data for JSON.

    a dataclass      {"is": "DeleteItem", "item_id": "item_5"}
    samples          {"samples": 480}: the sound itself is in WAV files
    a mapping        {"json": {...}}, whose values are plain already
    a sequence       [...]

Fields with their default value are left out, and so are fields whose metadata marks them as secret.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.errors import ReachyVoiceError


class RecordingError(ReachyVoiceError):
    """A recording cannot be written or read."""

    exit_code = 7


def to_plain(value: Any) -> Any:
    """``value`` as plain data."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return {"samples": len(value)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {"json": dict(value)}
    if isinstance(value, Sequence):
        return [to_plain(element) for element in value]
    plain = {field.name: to_plain(getattr(value, field.name)) for field in _fields(value)}
    return {"is": type(value).__name__, **plain}


def _fields(value: Any) -> list[dataclasses.Field[Any]]:
    """The fields of a dataclass that differ from their default, without secrets."""
    return [
        field
        for field in dataclasses.fields(value)
        if not field.metadata.get("secret")
        and (
            isinstance(content := getattr(value, field.name), np.ndarray)
            or field.default is dataclasses.MISSING
            or content != field.default
        )
    ]
