"""Strict shapes of client messages, and error messages for mismatches."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from pipeline.realtime.wire import WireError, invalid, missing


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Tolerant(BaseModel):
    """An object of which only some fields are used; others are dropped."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


Read = TypeVar("Read", bound=BaseModel)


def read(shape: type[Read], body: Mapping[str, Any]) -> Read:
    """``body`` as ``shape``. Raises ``WireError`` for the first mismatch, with its path."""
    try:
        return shape.model_validate(body)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
    # Raised outside the ``except``, and without the validator's own error. Pydantic's error holds
    # that one, whose traceback holds this frame and its callers, unseen by the garbage collector.
    problem.get("ctx", {}).pop("error", None)
    raise _refusal(body, problem)


def nearest(name: str, known: Sequence[str]) -> str:
    """A hint for a misspelt name, or an empty string."""
    close = difflib.get_close_matches(name[:64], known, n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def _refusal(body: Mapping[str, Any], problem: ErrorDetails) -> WireError:
    path = _path(body, problem)
    match problem["type"]:
        case "missing":
            return missing(path)
        case "union_tag_not_found":
            return missing(f"{path}.type")
        case "union_tag_invalid":
            tags = problem["ctx"]["expected_tags"]
            return invalid(f"{path}.type", f"must be one of {tags}")
        case "extra_forbidden":
            return WireError("unknown_parameter", f"Unknown parameter: '{path}'.", param=path)
    return invalid(path, problem["msg"].removeprefix("Value error, ")[:300])


def _path(body: object, problem: ErrorDetails) -> str:
    """Where in the message the mismatch is, without pydantic's names for branches of a union."""
    path = ""
    steps = problem["loc"]
    for at, step in enumerate(steps):
        absent = problem["type"] == "missing" and at == len(steps) - 1
        if isinstance(step, int) and isinstance(body, Sequence):
            path, body = f"{path}[{step}]", body[step]
        elif isinstance(body, Mapping) and (step in body or absent):
            path, body = f"{path}.{step}" if path else str(step), body.get(step)
    return path[:256]
